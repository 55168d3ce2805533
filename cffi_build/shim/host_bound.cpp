#include "host_bound.hpp"
#include <atomic>

namespace lsm {
namespace {
std::atomic<int>      kind      = LSM_SHADOW_FILE;
std::atomic<uint64_t> max_bytes = UINT64_MAX;
std::atomic<uint64_t> taken     = 0;
}  // namespace

void set_shadow(int new_kind, uint64_t new_max_bytes) {
    kind      = new_kind;
    max_bytes = new_max_bytes;
}

int shadow_kind() { return kind; }

bool take_host_memory(size_t size_bytes) {
    uint64_t before = taken;
    do {
        const uint64_t max = max_bytes;
        if (before > max || size_bytes > max - before) return false;
    } while (!taken.compare_exchange_weak(before, before + size_bytes));
    return true;
}

void give_host_memory(size_t size_bytes) { taken -= size_bytes; }

}  // namespace lsm
