#pragma once
#include "status.hpp"

namespace lsm {

Status release(int owner, int classes);
Status restore(int owner, int classes);
Status prepare(int owner, int classes);
void   wait_for_room(int owner, int classes);

}  // namespace lsm
