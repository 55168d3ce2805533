// Host memory of which a device reads and writes some parts directly: those that are pinned. Pinning takes long (a mapping of a file
// that is in memory 10 ms/GiB, fresh memory 0.6 s/GiB), so it is done at load time or on a thread of its own.
#pragma once
#include "host_block.hpp"
#include "host_bound.hpp"
#include "provider.hpp"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace lsm {

// Pins a range in steps, from its start, as far as the bound for host memory and the driver permit.
class Pinning {
public:
    Pinning(const CopyEngine & engine, void * start, size_t size_bytes, bool read_only);
    ~Pinning();
    Pinning(const Pinning &) = delete;
    Pinning & operator=(const Pinning &) = delete;

    void run();        // until all is pinned, or no more can be
    void run_later();  // the same on a thread of its own
    void wait();       // until that thread has ended

    size_t pinned_bytes() const { return pinned_bytes_.load(std::memory_order_acquire); }  // from the start; any thread

    // A copy must not cross the border of two steps: the driver knows them as two allocations.
    void add_pieces(size_t offset_bytes, size_t in_range, size_t size_bytes, std::vector<Piece> & out) const;

private:
    static constexpr size_t step_bytes = 64u << 20;

    const CopyEngine &  engine_;
    uint8_t * const     start_;
    const size_t        size_bytes_;
    const bool          read_only_;
    std::atomic<size_t> pinned_bytes_ = 0;
    std::atomic<bool>   stop_         = false;
    std::thread         thread_;
};

// Memory of our own, which may be pinned.
struct HostCopy {
    HostBlock                block;
    HostShare                share;
    std::unique_ptr<Pinning> pinning;  // after `block`: unpinned before it is freed

    HostCopy() = default;
    HostCopy(HostCopy &&) noexcept = default;
    HostCopy & operator=(HostCopy && other) noexcept {
        pinning.reset();
        block   = std::move(other.block);
        share   = std::move(other.share);
        pinning = std::move(other.pinning);
        return *this;
    }

    size_t pinned_bytes() const { return pinning ? pinning->pinned_bytes() : 0; }
    size_t pageable_bytes() const { return pinning ? 0 : block.size_bytes(); }

    bool allocate(size_t size_bytes);                                      // within the bound
    bool allocate_for_pinning(const CopyEngine &, size_t size_bytes);      // costs nothing until it is pinned
};

}  // namespace lsm
