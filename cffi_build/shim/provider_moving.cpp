// Devices that promise no addresses, so that a restored buffer is a new one (rebase.hpp).
#include "provider.hpp"
#include "ggml-cpu.h"

#include <sys/mman.h>
#include <unistd.h>

namespace lsm {
namespace {

// Host memory that never comes back where it was: addresses that were given up stay forbidden, so that whoever kept one is caught.
void free_for_ever(ggml_backend_buffer_t buffer) {
    mmap(buffer->context, buffer->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

ggml_backend_buffer_t allocate_where_nothing_was(ggml_backend_buffer_type_t type, size_t size_bytes) {
    void * address = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return nullptr;
    ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(address, size_bytes);
    if (!buffer) {
        munmap(address, size_bytes);
        return nullptr;
    }
    buffer->buft              = type;  // the scheduler compares buffer types
    buffer->iface.free_buffer = free_for_ever;
    return buffer;
}

Provider moving(bool host, ggml_backend_buffer_t (*allocate)(ggml_backend_buffer_type_t, size_t)) {
    Provider provider      = {};
    provider.host_memory   = host;
    provider.host_ram      = host;
    provider.allocate      = allocate;
    provider.keeps_compute = !host;
    return provider;
}

}  // namespace

const Provider & moving_cpu_provider() {
    static const Provider provider = moving(true, allocate_where_nothing_was);
    return provider;
}

const Provider & vulkan_provider() {
    static const Provider provider = moving(false, nullptr);
    return provider;
}

}  // namespace lsm
