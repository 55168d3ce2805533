// Host memory as a device: PROT_NONE reserves the addresses, mprotect puts memory under them, a fresh PROT_NONE mapping takes it away.
#include "provider.hpp"
#include "ggml-cpu.h"

#include <cstdint>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace lsm {
namespace {

constexpr size_t page_bytes = 4096;

size_t round_up(size_t n) {
    const size_t step = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return (n + step - 1) / step * step;
}

bool reserve(Region & region, size_t size_bytes) {
    const size_t reserved = round_up(size_bytes);
    void * address = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) return false;
    region = { address, size_bytes, reserved, nullptr };
    return true;
}

bool map(Region & region) { return mprotect(region.address, region.reserved_bytes, PROT_READ | PROT_WRITE) == 0; }

bool unmap(Region & region) {
    void * address = mmap(region.address, region.reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    return address == region.address;
}

void unreserve(Region & region) { munmap(region.address, region.reserved_bytes); }

ggml_backend_buffer_t make_buffer(ggml_backend_buffer_type_t type, AllocBuffer, const Region & region) {
    ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(region.address, region.size_bytes);
    if (buffer) buffer->buft = type;  // the scheduler compares buffer types
    return buffer;
}

bool zero(Region & region) { return madvise(region.address, region.reserved_bytes, MADV_DONTNEED) == 0; }

// /proc/self/pagemap tells which pages exist (in memory or swapped out) without touching the others, so that the cost of
// looking at a large, mostly unused KV cache follows its use.
std::vector<bool> touched_pages(const Region & region) {
    const size_t page_size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    if (page_size != page_bytes) return {};
    const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return {};
    const size_t n_pages = region.reserved_bytes / page_bytes;
    std::vector<uint64_t> entries(n_pages);
    const size_t want = n_pages * sizeof(uint64_t);
    const off_t  from = static_cast<off_t>(reinterpret_cast<uintptr_t>(region.address) / page_bytes * sizeof(uint64_t));
    size_t got = 0;
    while (got < want) {
        const ssize_t n = pread(fd, reinterpret_cast<char *>(entries.data()) + got, want - got, from + static_cast<off_t>(got));
        if (n <= 0) break;
        got += static_cast<size_t>(n);
    }
    close(fd);
    if (got != want) return {};
    constexpr uint64_t present_or_swapped = (1ull << 63) | (1ull << 62);
    std::vector<bool> touched(n_pages);
    for (size_t i = 0; i < n_pages; i++) touched[i] = (entries[i] & present_or_swapped) != 0;
    return touched;
}

}  // namespace

const Provider & cpu_provider() {
    static const Provider provider = { true, true, reserve, map, unmap, unreserve, make_buffer, zero, touched_pages, nullptr, nullptr, false, false };
    return provider;
}

}  // namespace lsm
