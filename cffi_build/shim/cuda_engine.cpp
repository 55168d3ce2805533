// Copies between an NVIDIA device and pinned host memory, all in flight at once. Each calling thread has its own stream.
#include "cuda_engine.hpp"
#include "cuda_pages.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <numeric>

namespace lsm {
namespace {

constexpr size_t small_bytes  = 256u << 10;  // below this the start of a copy costs more than the copy
constexpr size_t many_pieces  = 512;
constexpr size_t large_bytes  = 64u << 20;  // from here on a copy is worth the streams
constexpr size_t kernel_bytes = 64u << 10;  // for one block of threads
constexpr size_t early_part   = 9;          // of newly mapped memory: the rate at which it is zeroed over that of the bus, rounded up

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

// For copies worth it: one stream for the copy engine, one for what needs no bus.
struct Streams {
    std::mutex   mutex;  // held while they are in use
    cudaStream_t copies = nullptr, beside = nullptr;

    bool ready() {
        if (!copies && cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking) != cudaSuccess) return false;
        return beside || cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking) == cudaSuccess;
    }
};

Streams & streams_of(int device) {
    static auto * all = new std::array<Streams, 64>;  // never destroyed, for the same reason
    return (*all)[static_cast<size_t>(device) % all->size()];
}

bool done(cudaError_t error) {
    if (error == cudaSuccess) return true;
    cudaGetLastError();
    return false;
}

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

bool aligned(const Piece & piece) {
    return piece.size_bytes % 16 == 0 && piece.offset_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(piece.host) % 16 == 0;
}

bool finish(cudaStream_t stream) { return done(cudaStreamSynchronize(stream)); }

bool copy(const Region & region, const Piece & piece, bool to_device, cudaStream_t stream) {
    void * device = at(region, piece.offset_bytes);
    return done(to_device ? cudaMemcpyAsync(device, piece.host, piece.size_bytes, cudaMemcpyHostToDevice, stream)
                          : cudaMemcpyAsync(piece.host, device, piece.size_bytes, cudaMemcpyDeviceToHost, stream));
}

// Starts on the thread's stream; `list` is in use until that is finished.
bool start_kernel(const Region & region, const std::vector<Piece> & pieces, bool to_device, DevicePiece * list) {
    for (size_t i = 0; i < pieces.size(); i++) {
        uint8_t * device = at(region, pieces[i].offset_bytes);
        list[i] = to_device ? DevicePiece{ device, pieces[i].host, pieces[i].size_bytes } : DevicePiece{ pieces[i].host, device, pieces[i].size_bytes };
    }
    return done(move_pieces(list, static_cast<int>(pieces.size()), cudaStreamPerThread));
}

size_t total_of(const std::vector<Piece> & pieces) {
    return std::accumulate(pieces.begin(), pieces.end(), size_t(0), [](size_t sum, const Piece & piece) { return sum + piece.size_bytes; });
}

// Who moves what. A kernel moves pieces of which there are too many for the copy engine; and, into memory that was just mapped, the first
// part of the others: the driver has the copy engine zero such memory before it lets it copy (2.3 ms/GB seen), and meanwhile the bus is free.
struct Shares {
    std::vector<Piece> kernel, engine;

    Shares(const Region & region, const std::vector<Piece> & pieces, bool to_device) {
        const bool reach = kernels_reach_host(region.device);
        const bool many  = reach && std::count_if(pieces.begin(), pieces.end(), is_small) >= static_cast<ptrdiff_t>(many_pieces);
        size_t     early = reach && to_device ? region.reserved_bytes / early_part : 0;
        for (const auto & piece : pieces) {
            const size_t now = std::min(piece.size_bytes, early / kernel_bytes * kernel_bytes);
            const size_t n   = !aligned(piece) ? 0 : many && is_small(piece) ? piece.size_bytes : now;
            early -= std::min(early, n);
            for (size_t from = 0; from < n; from += kernel_bytes) add(kernel, piece, from, std::min(kernel_bytes, n - from));
            if (n < piece.size_bytes) add(engine, piece, n, piece.size_bytes - n);
        }
    }

    static bool is_small(const Piece & piece) { return piece.size_bytes < small_bytes; }
    static void add(std::vector<Piece> & to, const Piece & of, size_t from, size_t n) {
        to.push_back({ of.offset_bytes + from, of.host + from, n });
    }
};

bool copy_all(const Region & region, const std::vector<Piece> & pieces, bool to_device, Streams & out) {
    const Shares shares(region, pieces, to_device);
    std::unique_lock lock(scratch().mutex, std::defer_lock);
    bool good = true;
    if (!shares.kernel.empty()) {
        lock.lock();
        auto * list = static_cast<DevicePiece *>(scratch().at_least(shares.kernel.size() * sizeof(DevicePiece)));
        good = list && start_kernel(region, shares.kernel, to_device, list);
    }
    good = good && std::all_of(shares.engine.begin(), shares.engine.end(), [&](const Piece & piece) { return copy(region, piece, to_device, out.copies); });
    const bool by_engine = finish(out.copies), by_kernel = finish(cudaStreamPerThread);
    return good && by_engine && by_kernel;
}

// Little enough for the calling thread's own stream: threads that stage do not wait for each other.
bool copy_little(const Region & region, const std::vector<Piece> & pieces, bool to_device) {
    const bool started = std::all_of(pieces.begin(), pieces.end(), [&](const Piece & piece) { return copy(region, piece, to_device, cudaStreamPerThread); });
    return finish(cudaStreamPerThread) && started;
}

bool is_little(const std::vector<Piece> & pieces) { return pieces.size() < many_pieces && total_of(pieces) < large_bytes; }

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

// The copies need the bus, this does not. In many parts it is all of the region, before the copies.
bool zero_rest_of(const Region & region, const std::vector<Piece> & pieces, cudaStream_t beside) {
    const auto rest = rest_of(region, pieces);
    if (rest.size() >= many_pieces) return done(cudaMemsetAsync(region.address, 0, region.reserved_bytes, beside)) && finish(beside);
    return std::all_of(rest.begin(), rest.end(), [&](const Span & span) {
        return done(cudaMemsetAsync(at(region, span.offset_bytes), 0, span.size_bytes, beside));
    });
}

bool read(const Region & region, const std::vector<Piece> & pieces) {
    if (!done(cudaSetDevice(region.device))) return false;
    if (is_little(pieces)) return copy_little(region, pieces, false);
    Streams & out = streams_of(region.device);
    std::lock_guard lock(out.mutex);
    return out.ready() && copy_all(region, pieces, false, out);
}

bool write(const Region & region, const std::vector<Piece> & pieces, bool zero_rest) {
    if (!done(cudaSetDevice(region.device))) return false;
    if (!zero_rest && is_little(pieces)) return copy_little(region, pieces, true);
    Streams & out = streams_of(region.device);
    std::lock_guard lock(out.mutex);
    if (!out.ready()) return false;
    const bool copied = (!zero_rest || zero_rest_of(region, pieces, out.beside)) && copy_all(region, pieces, true, out);
    return finish(out.beside) && copied;
}

bool find_used(const Region & region, std::vector<Span> & runs) {
    const size_t n_pages = (region.size_bytes + cuda_page_bytes - 1) / cuda_page_bytes;  // reserved to a multiple of more than a page
    std::lock_guard lock(scratch().mutex);
    auto * flags = static_cast<uint8_t *>(scratch().at_least(n_pages));
    if (!flags || !done(cudaSetDevice(region.device))) return false;
    if (!done(find_used_pages(region.address, n_pages * cuda_page_bytes, flags, cudaStreamPerThread)) || !finish(cudaStreamPerThread)) return false;
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
