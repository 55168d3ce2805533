#include "pinned.hpp"

#include <algorithm>
#include <sys/mman.h>
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace lsm {

Pinning::Pinning(const CopyEngine & engine, void * start, size_t size_bytes, bool read_only)
    : engine_(engine), start_(static_cast<uint8_t *>(start)), size_bytes_(size_bytes), read_only_(read_only) {}

Pinning::~Pinning() {
    stop_ = true;
    wait();
    for (size_t at = 0; at < pinned_bytes_; at += step_bytes) {
        engine_.unpin(start_ + at);
        give_host_memory(std::min(step_bytes, size_bytes_ - at));
    }
}

void Pinning::run() {
    for (size_t at = pinned_bytes_; at < size_bytes_ && !stop_; at += step_bytes) {
        const size_t n = std::min(step_bytes, size_bytes_ - at);
        if (!take_host_memory(n)) return;
        // Faster than to let the driver fault the pages in one by one. Kernels that do not know it leave that to the driver.
        if (!read_only_) madvise(start_ + at, n, MADV_POPULATE_WRITE);
        if (!engine_.pin(start_ + at, n, read_only_)) {
            give_host_memory(n);
            return;
        }
        pinned_bytes_.store(at + n, std::memory_order_release);
    }
}

void Pinning::run_later() {
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
}

void Pinning::wait() {
    if (thread_.joinable()) thread_.join();
}

void Pinning::add_pieces(size_t offset_bytes, size_t in_range, size_t size_bytes, std::vector<Piece> & out) const {
    while (size_bytes > 0) {
        const size_t n = std::min(size_bytes, step_bytes - in_range % step_bytes);
        out.push_back({ offset_bytes, start_ + in_range, n });
        offset_bytes += n;
        in_range += n;
        size_bytes -= n;
    }
}

bool HostCopy::allocate(size_t size_bytes) { return share.take(size_bytes) && block.allocate(size_bytes); }

bool HostCopy::allocate_for_pinning(const CopyEngine & engine, size_t size_bytes) {
    if (!block.allocate(size_bytes)) return false;
    pinning = std::make_unique<Pinning>(engine, block.data(), size_bytes, false);
    return true;
}

}  // namespace lsm
