#pragma once
#include "provider.hpp"

namespace lsm {

const CopyEngine & cuda_engine();

}  // namespace lsm
