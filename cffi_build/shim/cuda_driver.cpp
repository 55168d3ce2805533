#include "cuda_driver.hpp"

#include <cuda_runtime_api.h>

namespace lsm {
namespace {

template <typename Function> bool find(const char * name, Function & out) {
    void * found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, 11020, cudaEnableDefault, &result);
#else
    const cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
    if (error != cudaSuccess) cudaGetLastError();
    out = reinterpret_cast<Function>(found);
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess && found;
}

bool find_all(CudaDriver & driver) {
    return find("cuMemAddressReserve", driver.address_reserve) && find("cuMemAddressFree", driver.address_free) &&
           find("cuMemCreate", driver.create) && find("cuMemRelease", driver.release) && find("cuMemMap", driver.map) &&
           find("cuMemUnmap", driver.unmap) && find("cuMemSetAccess", driver.set_access) &&
           find("cuMemGetAllocationGranularity", driver.granularity) && find("cuDeviceGetAttribute", driver.device_attribute);
}

}  // namespace

const CudaDriver * cuda_driver() {
    static CudaDriver driver = {};
    static const bool complete = find_all(driver);
    return complete ? &driver : nullptr;
}

}  // namespace lsm
