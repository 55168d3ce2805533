// An NVIDIA device: reserved addresses stay, physical memory is mapped under them and taken away. Captured CUDA graphs stay valid.
#include "cuda_driver.hpp"
#include "cuda_engine.hpp"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdio>
#include <mutex>

namespace lsm {
namespace {

constexpr size_t shell_bytes = 256;  // what the backend's own allocation is asked for, to get a buffer with its functions

CUmemAllocationProp memory_of(int device) {
    CUmemAllocationProp properties = {};
    properties.type          = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id   = device;
    return properties;
}

CUdeviceptr address_of(const Region & region) { return reinterpret_cast<CUdeviceptr>(region.address); }

CUmemGenericAllocationHandle handle_of(const Region & region) {
    return static_cast<CUmemGenericAllocationHandle>(reinterpret_cast<uintptr_t>(region.handle));
}

// Makes the device's context the thread's; older runtimes make that context only with the first call that needs it.
bool use(int device) {
    static std::atomic<uint64_t> made = 0;
    if (cudaSetDevice(device) != cudaSuccess) return false;
    const uint64_t bit = 1ull << device % 64;
    if (made & bit) return true;
    made |= bit;
    return cudaFree(nullptr) == cudaSuccess;
}

bool reserve(Region & region, size_t size_bytes) {
    if (!use(region.device)) return false;
    const auto properties = memory_of(region.device);
    size_t step = 0;
    if (cuda_driver()->granularity(&step, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) != CUDA_SUCCESS) return false;
    const size_t reserved = (size_bytes + step - 1) / step * step;
    CUdeviceptr address = 0;
    if (cuda_driver()->address_reserve(&address, reserved, 0, 0, 0) != CUDA_SUCCESS) return false;
    region.address        = reinterpret_cast<void *>(address);
    region.size_bytes     = size_bytes;
    region.reserved_bytes = reserved;
    return true;
}

// Unlike memory from cudaMalloc, mapped memory is open to other devices only where access is granted.
bool grant_access(const Region & region) {
    int n_devices = 0;
    if (cudaGetDeviceCount(&n_devices) != cudaSuccess) return false;
    std::vector<CUmemAccessDesc> access;
    for (int other = 0; other < n_devices; other++) {
        int reaches = other == region.device;
        if (!reaches && cudaDeviceCanAccessPeer(&reaches, other, region.device) != cudaSuccess) cudaGetLastError();
        if (reaches) access.push_back({ { CU_MEM_LOCATION_TYPE_DEVICE, { other } }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE });
    }
    return cuda_driver()->set_access(address_of(region), region.reserved_bytes, access.data(), access.size()) == CUDA_SUCCESS;
}

bool map(Region & region) {
    std::unique_lock lock(capture_mutex());
    if (!use(region.device)) return false;
    const auto properties = memory_of(region.device);
    CUmemGenericAllocationHandle handle;
    if (cuda_driver()->create(&handle, region.reserved_bytes, &properties, 0) != CUDA_SUCCESS) return false;
    if (cuda_driver()->map(address_of(region), region.reserved_bytes, 0, handle, 0) != CUDA_SUCCESS) {
        cuda_driver()->release(handle);
        return false;
    }
    if (!grant_access(region)) {
        cuda_driver()->unmap(address_of(region), region.reserved_bytes);
        cuda_driver()->release(handle);
        return false;
    }
    region.handle = reinterpret_cast<void *>(static_cast<uintptr_t>(handle));
    return true;
}

// Does not wait for work that uses the memory: there is none, the owner's contexts were synchronized.
bool unmap(Region & region) {
    std::unique_lock lock(capture_mutex());
    if (!use(region.device)) return false;
    if (cuda_driver()->unmap(address_of(region), region.reserved_bytes) != CUDA_SUCCESS) return false;
    return cuda_driver()->release(handle_of(region)) == CUDA_SUCCESS;
}

void unreserve(Region & region) {
    if (use(region.device)) cuda_driver()->address_free(address_of(region), region.reserved_bytes);
}

// ---- what a buffer answers itself

void * get_base(ggml_backend_buffer_t buffer) { return region_of(buffer)->address; }

void clear(ggml_backend_buffer_t buffer, uint8_t value) {
    const Region * region = region_of(buffer);
    if (cudaSetDevice(region->device) != cudaSuccess || cudaMemsetAsync(region->address, value, region->size_bytes, cudaStreamPerThread) != cudaSuccess ||
        cudaStreamSynchronize(cudaStreamPerThread) != cudaSuccess) {
        GGML_ABORT("a CUDA device did not clear a buffer: %s", cudaGetErrorString(cudaGetLastError()));
    }
}

// The backend knows its own buffers by their free_buffer, which is ours here. One address space: the driver sees which device is which.
bool copy_tensor(ggml_backend_buffer_t, const ggml_tensor * from, ggml_tensor * to) {
    if (!region_of(from->view_src ? from->view_src->buffer : from->buffer)) return false;
    return cudaMemcpyAsync(to->data, from->data, ggml_nbytes(from), cudaMemcpyDefault, cudaStreamPerThread) == cudaSuccess &&
           cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess;
}

ggml_backend_buffer_t make_buffer(ggml_backend_buffer_type_t type, AllocBuffer original, const Region & region) {
    ggml_backend_buffer_t buffer = original(type, shell_bytes);
    if (!buffer) return nullptr;
    buffer->size             = region.size_bytes;
    buffer->iface.get_base   = get_base;
    buffer->iface.clear      = clear;
    buffer->iface.cpy_tensor = copy_tensor;
    return buffer;
}

// ggml numbers its devices in their name; where it pretends to have more than there are, they take turns. Asking for the device's
// properties would tell too, but make a context on each device of the machine, which costs memory there.
bool find_device(ggml_backend_dev_t device, int & index) {
    int number = 0, n_devices = 0;
    if (std::sscanf(ggml_backend_dev_name(device), "CUDA%d", &number) != 1) return false;
    if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0) return false;
    index = number % n_devices;
    return true;
}

}  // namespace

const Provider * cuda_provider(ggml_backend_dev_t device, int & index) {
    static const Provider provider = { false, false, reserve, map, unmap, unreserve, make_buffer, nullptr, nullptr, nullptr, &cuda_engine(), true, false };
    int virtual_memory = 0;
    if (!cuda_driver() || !find_device(device, index)) return nullptr;
    cuda_driver()->device_attribute(&virtual_memory, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, index);
    return virtual_memory ? &provider : nullptr;
}

}  // namespace lsm
