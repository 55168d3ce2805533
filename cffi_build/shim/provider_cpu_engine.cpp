// For tests: host memory that is reached as a device's own is, through a copy engine only. What came before is not zero.
#include "provider.hpp"

#include <cstring>

namespace lsm {
namespace {

constexpr size_t page_bytes = 4096;

uint8_t * at(const Region & region, size_t offset_bytes) { return static_cast<uint8_t *>(region.address) + offset_bytes; }

bool map(Region & region) {
    if (!cpu_provider().map(region)) return false;
    std::memset(region.address, 0xA5, region.reserved_bytes);
    return true;
}

bool pin(void *, size_t, bool) { return true; }
void unpin(void *) {}

bool read(const Region & region, const std::vector<Piece> & pieces) {
    for (const auto & piece : pieces) std::memcpy(piece.host, at(region, piece.offset_bytes), piece.size_bytes);
    return true;
}

bool write(const Region & region, const std::vector<Piece> & pieces, bool zero_rest) {
    if (zero_rest) std::memset(region.address, 0, region.reserved_bytes);
    for (const auto & piece : pieces) std::memcpy(at(region, piece.offset_bytes), piece.host, piece.size_bytes);
    return true;
}

bool find_used(const Region & region, std::vector<Span> & runs) {
    for (size_t page = 0; page < region.size_bytes; page += page_bytes) {
        const uint8_t * bytes = at(region, page);
        if (bytes[0] == 0 && std::memcmp(bytes, bytes + 1, page_bytes - 1) == 0) continue;
        if (!runs.empty() && runs.back().offset_bytes + runs.back().size_bytes == page) {
            runs.back().size_bytes += page_bytes;
        } else {
            runs.push_back({ page, page_bytes });
        }
    }
    return true;
}

}  // namespace

const Provider & cpu_engine_provider() {
    static const CopyEngine engine = { pin, unpin, read, write, find_used };
    static const Provider provider = [] {
        Provider made      = cpu_provider();
        made.host_memory   = false;
        made.host_ram      = false;
        made.map           = map;
        made.zero          = nullptr;
        made.touched_pages = nullptr;
        made.engine        = &engine;
        return made;
    }();
    return provider;
}

}  // namespace lsm
