#pragma once
#include "provider.hpp"

namespace lsm {

const CopyEngine & cuda_engine();

std::vector<bool> cuda_used_pages(const Region &);

}  // namespace lsm
