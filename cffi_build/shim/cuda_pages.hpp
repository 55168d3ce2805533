// The two things that only a program on the device can do fast: find the pages that are in use, and move many small pieces at once.
#pragma once
#include <cuda_runtime_api.h>
#include <cstddef>
#include <cstdint>

namespace lsm {

constexpr size_t cuda_page_bytes = 4096;

// One flag for each page of `memory`: 1 where any byte is not zero. `size_bytes` is a multiple of the page; `flags` may be pinned host memory.
cudaError_t find_used_pages(const void * memory, size_t size_bytes, uint8_t * flags, cudaStream_t);

struct DevicePiece {
    uint8_t *       to;
    const uint8_t * from;
    size_t          size_bytes;
};

// Copies n pieces, one block of threads each; `pieces` and one of `to` and `from` may be pinned host memory. Addresses and sizes are
// multiples of 16 bytes.
cudaError_t move_pieces(const DevicePiece * pieces, int n, cudaStream_t);

}  // namespace lsm
