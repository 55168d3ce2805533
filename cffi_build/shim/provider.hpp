// How one kind of device reserves addresses and puts memory under them. The ledger knows nothing else about devices.
#pragma once
#include "ggml-backend-impl.h"
#include <cstddef>
#include <vector>

namespace lsm {

struct Region {
    void * address        = nullptr;
    size_t size_bytes     = 0;  // as llama.cpp asked
    size_t reserved_bytes = 0;  // rounded up to the device's granularity
    void * handle         = nullptr;
};

using AllocBuffer = ggml_backend_buffer_t (*)(ggml_backend_buffer_type_t, size_t);

struct Provider {
    bool host_memory;  // the CPU can read and write the addresses directly
    bool host_ram;     // and it is the host's own RAM: what a release keeps of it goes to a file

    // Fixed addresses: a tensor stays where it is. All five are null in a provider whose buffers move.
    bool (*reserve)(Region &, size_t size_bytes);
    bool (*map)(Region &);    // fresh memory, all zero
    bool (*unmap)(Region &);  // the memory goes back, the addresses stay ours
    void (*unreserve)(Region &);

    // A ggml buffer of this type whose base is region.address. `original` is the hooked buffer type's own allocation.
    ggml_backend_buffer_t (*make_buffer)(ggml_backend_buffer_type_t, AllocBuffer original, const Region &);

    // Optional. Makes the whole region read as zero more cheaply than writing zeroes.
    bool (*zero)(Region &);

    // Optional. One flag per 4 KiB page: false where the page was never written and reads as zero. Empty when unknown.
    std::vector<bool> (*touched_pages)(const Region &);

    // For a provider whose buffers move, and optional there: a new buffer in place of the hooked type's own allocation.
    ggml_backend_buffer_t (*allocate)(ggml_backend_buffer_type_t, size_t size_bytes);

    bool moves() const { return map == nullptr; }
};

const Provider & cpu_provider();
const Provider & moving_cpu_provider();  // for tests of the moving kind
const Provider & vulkan_provider();

}  // namespace lsm
