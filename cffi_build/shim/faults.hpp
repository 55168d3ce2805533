// Failures on demand, for tests of the roll-back: each point fails once, at its n-th passage.
#pragma once

namespace lsm {

void arm_fault(int point, int n);
bool fault_now(int point);

}  // namespace lsm
