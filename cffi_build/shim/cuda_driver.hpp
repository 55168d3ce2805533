// CUDA's virtual memory management, found in the driver at run time: nothing is linked to a driver, and a machine without one loads us too.
#pragma once
#include <cuda.h>

namespace lsm {

struct CudaDriver {
    decltype(&cuMemAddressReserve)           address_reserve;
    decltype(&cuMemAddressFree)              address_free;
    decltype(&cuMemCreate)                   create;
    decltype(&cuMemRelease)                  release;
    decltype(&cuMemMap)                      map;
    decltype(&cuMemUnmap)                    unmap;
    decltype(&cuMemSetAccess)                set_access;
    decltype(&cuMemGetAllocationGranularity) granularity;
    decltype(&cuDeviceGetAttribute)          device_attribute;
};

// Null without a driver, or with one that is too old.
const CudaDriver * cuda_driver();

}  // namespace lsm
