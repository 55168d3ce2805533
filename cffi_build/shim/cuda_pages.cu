#include "cuda_pages.hpp"

#include <algorithm>

namespace lsm {
namespace {

constexpr int threads   = 256;  // 16 bytes each: one page a step
constexpr int per_block = 256;  // pages whose flags one block writes, together: they may be on their way to the host
static_assert(threads * sizeof(uint4) == cuda_page_bytes && per_block <= threads);

__global__ void find_used_pages_kernel(const uint4 * memory, size_t n_pages, uint8_t * flags) {
    __shared__ uint8_t found[per_block];
    for (size_t first = blockIdx.x * size_t(per_block); first < n_pages; first += gridDim.x * size_t(per_block)) {
        const int n = static_cast<int>(min(n_pages - first, size_t(per_block)));
        for (int i = 0; i < n; i++) {
            const uint4 word = memory[(first + i) * threads + threadIdx.x];
            const int used   = __syncthreads_or((word.x | word.y | word.z | word.w) != 0);
            if (threadIdx.x == 0) found[i] = used != 0;
        }
        __syncthreads();
        if (threadIdx.x < n) flags[first + threadIdx.x] = found[threadIdx.x];
        __syncthreads();
    }
}

__global__ void move_pieces_kernel(const DevicePiece * pieces, int n) {
    for (int i = blockIdx.x; i < n; i += gridDim.x) {
        const DevicePiece piece = pieces[i];
        auto * to         = reinterpret_cast<uint4 *>(piece.to);
        const auto * from = reinterpret_cast<const uint4 *>(piece.from);
        for (size_t at = threadIdx.x; at < piece.size_bytes / sizeof(uint4); at += blockDim.x) to[at] = from[at];
    }
}

unsigned blocks(size_t n) { return static_cast<unsigned>(std::min<size_t>(n, 4096)); }

}  // namespace

cudaError_t find_used_pages(const void * memory, size_t size_bytes, uint8_t * flags, cudaStream_t stream) {
    const size_t n_pages = size_bytes / cuda_page_bytes;
    if (n_pages == 0) return cudaSuccess;
    find_used_pages_kernel<<<blocks((n_pages + per_block - 1) / per_block), threads, 0, stream>>>(static_cast<const uint4 *>(memory), n_pages, flags);
    return cudaGetLastError();
}

cudaError_t move_pieces(const DevicePiece * pieces, int n, cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    move_pieces_kernel<<<blocks(n), threads, 0, stream>>>(pieces, n);
    return cudaGetLastError();
}

}  // namespace lsm
