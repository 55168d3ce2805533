#include "faults.hpp"
#include "lsm_device.h"
#include <atomic>

namespace lsm {
namespace {
std::atomic<int> passages_left[] = { -1, -1, -1, -1, -1 };  // one for each lsm_fault_point
}

void arm_fault(int point, int n) {
    if (point >= LSM_FAULT_MAP && point <= LSM_FAULT_UNNAMED) passages_left[point] = n;
}

bool fault_now(int point) {
    auto & left = passages_left[point];
    if (left < 0) return false;
    return left-- == 0;
}

}  // namespace lsm
