// How much of the host's memory copies of device memory may take, pinned or not, in this process; and which kind of copy is wanted.
#pragma once
#include "lsm_device.h"
#include <cstddef>
#include <cstdint>
#include <utility>

namespace lsm {

void set_shadow(int kind, uint64_t max_bytes);
int  shadow_kind();

// True if `size_bytes` more may be taken; give them back when they are free again.
bool take_host_memory(size_t size_bytes);
void give_host_memory(size_t size_bytes);

// Such a share, given back with its holder.
class HostShare {
public:
    HostShare() = default;
    HostShare(HostShare && other) noexcept { std::swap(size_bytes_, other.size_bytes_); }
    HostShare & operator=(HostShare && other) noexcept { std::swap(size_bytes_, other.size_bytes_); return *this; }
    HostShare(const HostShare &) = delete;
    HostShare & operator=(const HostShare &) = delete;
    ~HostShare() { give_host_memory(size_bytes_); }

    bool take(size_t size_bytes) {
        if (!take_host_memory(size_bytes)) return false;
        size_bytes_ += size_bytes;
        return true;
    }

private:
    size_t size_bytes_ = 0;
};

}  // namespace lsm
