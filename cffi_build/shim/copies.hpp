// What is kept while a buffer is released, and how it comes back.
#pragma once
#include "ledger.hpp"

namespace lsm {

// Pairs every tensor of a freshly loaded weights buffer with its bytes in a source; keeps a copy of those that no source can give back.
Status bind_to_sources(Entry &, const std::vector<std::shared_ptr<Source>> &);

// Before a release: copies to the host, in its memory or in a file, what neither a file nor a new computation can give back.
Status save(Entry &);

// After the memory is mapped again (all zero): puts the contents back. The shell may still show the released interface.
Status fill(Entry &);

// After the whole restore is committed.
void drop_saved(Entry &);

}  // namespace lsm
