// Copies between an NVIDIA device and pinned host memory, all in flight at once. Each calling thread has its own stream.
#include "cuda_engine.hpp"
#include "cuda_pages.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>

namespace lsm {
namespace {

constexpr size_t small_bytes = 256u << 10;  // below this the start of a copy costs more than the copy
constexpr size_t many_pieces = 512;

// Pinned memory for what the host and a kernel tell each other. Grows, and stays: a release must not wait for it.
struct Scratch {
    std::mutex mutex;  // held while it is in use
    void *     data       = nullptr;
    size_t     size_bytes = 0;

    void * at_least(size_t n) {
        if (n <= size_bytes) return data;
        cudaFreeHost(data);
        data       = nullptr;
        size_bytes = 0;
        if (cudaHostAlloc(&data, n, cudaHostAllocPortable) != cudaSuccess) {
            cudaGetLastError();
            return data = nullptr;
        }
        size_bytes = n;
        return data;
    }
};

Scratch & scratch() {
    static Scratch * scratch = new Scratch;  // never destroyed: the driver may be gone before our destructors run
    return *scratch;
}

bool done(cudaError_t error) {
    if (error == cudaSuccess) return true;
    cudaGetLastError();
    return false;
}

bool finish() { return done(cudaStreamSynchronize(cudaStreamPerThread)); }

uint8_t * at(const Region & region, size_t offset_bytes) { return static_cast<uint8_t *>(region.address) + offset_bytes; }

bool pin(void * host, size_t size_bytes, bool read_only) {
    const unsigned flags = cudaHostRegisterPortable | (read_only ? cudaHostRegisterReadOnly : 0);
    return done(cudaHostRegister(host, size_bytes, flags));
}

void unpin(void * host) { done(cudaHostUnregister(host)); }

// A kernel may use the host's own pointers to memory that was pinned in place.
bool kernels_reach_host(int device) {
    int yes = 0;
    return done(cudaDeviceGetAttribute(&yes, cudaDevAttrCanUseHostPointerForRegisteredMem, device)) && yes;
}

bool for_kernel(const Piece & piece) {
    const bool aligned = piece.size_bytes % 16 == 0 && piece.offset_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(piece.host) % 16 == 0;
    return aligned && piece.size_bytes < small_bytes;
}

bool copy(const Region & region, const Piece & piece, bool to_device) {
    void * device = at(region, piece.offset_bytes);
    return done(to_device ? cudaMemcpyAsync(device, piece.host, piece.size_bytes, cudaMemcpyHostToDevice, cudaStreamPerThread)
                          : cudaMemcpyAsync(piece.host, device, piece.size_bytes, cudaMemcpyDeviceToHost, cudaStreamPerThread));
}

bool copy_by_kernel(const Region & region, const std::vector<Piece> & pieces, bool to_device) {
    std::lock_guard lock(scratch().mutex);
    auto * list = static_cast<DevicePiece *>(scratch().at_least(pieces.size() * sizeof(DevicePiece)));
    if (!list) return false;
    for (size_t i = 0; i < pieces.size(); i++) {
        uint8_t * device = at(region, pieces[i].offset_bytes);
        list[i] = to_device ? DevicePiece{ device, pieces[i].host, pieces[i].size_bytes } : DevicePiece{ pieces[i].host, device, pieces[i].size_bytes };
    }
    return done(move_pieces(list, static_cast<int>(pieces.size()), cudaStreamPerThread)) && finish();
}

bool copy_all(const Region & region, const std::vector<Piece> & pieces, bool to_device) {
    std::vector<Piece> small;
    const size_t n_small = static_cast<size_t>(std::count_if(pieces.begin(), pieces.end(), for_kernel));
    const bool   kernel  = n_small >= many_pieces && kernels_reach_host(region.device);
    for (const auto & piece : pieces) {
        if (kernel && for_kernel(piece)) {
            small.push_back(piece);
        } else if (!copy(region, piece, to_device)) {
            return false;
        }
    }
    return small.empty() || copy_by_kernel(region, small, to_device);
}

std::vector<Span> rest_of(const Region & region, const std::vector<Piece> & pieces) {
    std::vector<Span> rest;
    size_t end = 0;
    for (const auto & piece : pieces) {
        if (piece.offset_bytes > end) rest.push_back({ end, piece.offset_bytes - end });
        end = piece.offset_bytes + piece.size_bytes;
    }
    if (region.reserved_bytes > end) rest.push_back({ end, region.reserved_bytes - end });
    return rest;
}

// On a stream of its own: the copies need the bus, this does not. Or all of the region before the copies, if it is in many parts.
bool zero_rest_of(const Region & region, const std::vector<Piece> & pieces, cudaStream_t beside) {
    const auto rest = rest_of(region, pieces);
    if (rest.size() >= many_pieces) return done(cudaMemsetAsync(region.address, 0, region.reserved_bytes, cudaStreamPerThread));
    return std::all_of(rest.begin(), rest.end(), [&](const Span & span) {
        return done(cudaMemsetAsync(at(region, span.offset_bytes), 0, span.size_bytes, beside));
    });
}

bool read(const Region & region, const std::vector<Piece> & pieces) {
    return done(cudaSetDevice(region.device)) && copy_all(region, pieces, false) && finish();
}

bool write(const Region & region, const std::vector<Piece> & pieces, bool zero_rest) {
    if (!done(cudaSetDevice(region.device))) return false;
    if (!zero_rest) return copy_all(region, pieces, true) && finish();
    cudaStream_t beside;
    if (!done(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking))) return false;
    const bool copied = zero_rest_of(region, pieces, beside) && copy_all(region, pieces, true) && finish();
    const bool zeroed = done(cudaStreamSynchronize(beside));
    cudaStreamDestroy(beside);
    return copied && zeroed;
}

bool find_used(const Region & region, std::vector<Span> & runs) {
    const size_t n_pages = (region.size_bytes + cuda_page_bytes - 1) / cuda_page_bytes;  // reserved to a multiple of more than a page
    std::lock_guard lock(scratch().mutex);
    auto * flags = static_cast<uint8_t *>(scratch().at_least(n_pages));
    if (!flags || !done(cudaSetDevice(region.device))) return false;
    if (!done(find_used_pages(region.address, n_pages * cuda_page_bytes, flags, cudaStreamPerThread)) || !finish()) return false;
    const uint8_t * end = flags + n_pages;
    for (const uint8_t * first = flags; (first = static_cast<const uint8_t *>(std::memchr(first, 1, end - first)));) {
        const auto * after = static_cast<const uint8_t *>(std::memchr(first, 0, end - first));
        if (!after) after = end;
        runs.push_back({ (first - flags) * cuda_page_bytes, (after - first) * cuda_page_bytes });
        first = after;
        if (first == end) break;
    }
    return true;
}

}  // namespace

const CopyEngine & cuda_engine() {
    static const CopyEngine engine = { pin, unpin, read, write, find_used };
    return engine;
}

}  // namespace lsm
