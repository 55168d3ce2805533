// The same as copies.hpp, for devices with a copy engine.
#pragma once
#include "ledger.hpp"

namespace lsm {

Status bind_by_engine(Entry &, const std::vector<std::shared_ptr<Source>> &);
Status save_by_engine(Entry &);
Status fill_by_engine(Entry &);

// Host memory as large as the entry, pinned in the background, so that no release has to wait for that.
Status prepare_room(Entry &);

}  // namespace lsm
