// Bytes between a device and host memory that is not pinned, or a file: through small pinned blocks, by several threads, so that
// the processor copies into one block while the device reads another.
#pragma once
#include "provider.hpp"
#include "sources.hpp"

#include <vector>

namespace lsm {

struct StagedPart {
    size_t    offset_bytes;  // in the region
    size_t    size_bytes;
    uint8_t * host;          // null: the bytes are in the file
    FileSpan  span;          // of this size
};

// Allocates and pins the blocks, once for the process. Before the first request; without it the first of the calls below does it.
bool prepare_staging(const CopyEngine &);

Status staged_write(const CopyEngine &, const Region &, const std::vector<StagedPart> &);
Status staged_read(const CopyEngine &, const Region &, const std::vector<StagedPart> &);

// Whether the device has the same bytes as the files, by reading all of both.
Status staged_compare(const CopyEngine &, const Region &, const std::vector<StagedPart> &, std::vector<bool> & same);

}  // namespace lsm
