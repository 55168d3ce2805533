// How one kind of device reserves addresses and puts memory under them. The ledger knows nothing else about devices.
#pragma once
#include "ggml-backend-impl.h"
#include <cstddef>
#include <cstdint>
#include <shared_mutex>
#include <vector>

namespace lsm {

struct Region {
    void * address        = nullptr;
    size_t size_bytes     = 0;  // as llama.cpp asked
    size_t reserved_bytes = 0;  // rounded up to the device's granularity
    void * handle         = nullptr;
    int    device         = 0;  // which of the provider's devices
};

// A part of a region and the host memory that holds, or shall hold, the same bytes.
struct Piece {
    size_t    offset_bytes;
    uint8_t * host;
    size_t    size_bytes;
};

struct Span {
    size_t offset_bytes, size_bytes;
};

// What a device with a copy engine of its own adds: many pieces in flight, the host's memory read and written by the device itself.
struct CopyEngine {
    // Host memory may be given to `read` and `write` after it was pinned. `read_only` for a file's mapping. Nothing is touched by the
    // CPU: where memory cannot be pinned (a limit; a file that ends too early) the answer is false.
    bool (*pin)(void * host, size_t size_bytes, bool read_only);
    void (*unpin)(void * host);

    // Device to host, and back; they return when all is there. `zero_rest`: what no piece covers shall read as zero. Pieces are in the
    // order of their offsets and do not overlap. Any thread; threads do not wait for each other.
    bool (*read)(const Region &, const std::vector<Piece> &);
    bool (*write)(const Region &, const std::vector<Piece> &, bool zero_rest);

    // The runs of 4 KiB pages that are not all zero, in order; false if they cannot be found.
    bool (*find_used)(const Region &, std::vector<Span> &);
};

using AllocBuffer = ggml_backend_buffer_t (*)(ggml_backend_buffer_type_t, size_t);

struct Provider {
    bool host_memory;  // the CPU can read and write the addresses directly
    bool host_ram;     // and it is the host's own RAM: what a release keeps of it goes to a file

    // Fixed addresses: a tensor stays where it is. All five are null in a provider whose buffers move.
    bool (*reserve)(Region &, size_t size_bytes);  // `device` is set; fills in the rest
    bool (*map)(Region &);    // fresh memory: all zero, or of unknown contents where there is a copy engine
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

    // Optional: null where bytes move through the backend's own functions.
    const CopyEngine * engine;

    // Optional: a backend object gathers scratch memory, library handles and captured graphs, which only its end gives back.
    bool backend_gathers_memory;

    // Compute buffers stay: a driver of this kind does not survive that they are made anew under a living backend.
    bool keeps_compute;

    bool moves() const { return map == nullptr; }
};

const Provider & cpu_provider();
const Provider & moving_cpu_provider();  // for tests of the moving kind
const Provider & vulkan_provider();
const Provider & cpu_engine_provider();  // for tests of what a copy engine does

// Null where the device has no fixed addresses to offer; `index` becomes the `device` of its regions. Without CUDA in the build: null.
const Provider * cuda_provider(ggml_backend_dev_t, int & index);

// Held shared while a graph is handed to a device that may capture it, and alone by calls on other threads that such a capture does not
// survive: taking memory and giving it back.
std::shared_mutex & capture_mutex();

// The region of a live buffer, null if the ledger has none: for providers that answer a buffer's functions themselves.
const Region * region_of(ggml_backend_buffer_t);

}  // namespace lsm
