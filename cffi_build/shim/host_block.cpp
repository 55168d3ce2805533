#include "host_block.hpp"
#include <sys/mman.h>
#include <utility>

namespace lsm {

bool HostBlock::allocate(size_t size_bytes) {
    free();
    if (size_bytes == 0) return true;
    void * data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return false;
    data_       = static_cast<uint8_t *>(data);
    size_bytes_ = size_bytes;
    return true;
}

void HostBlock::free() {
    if (data_) munmap(data_, size_bytes_);
    data_       = nullptr;
    size_bytes_ = 0;
}

void HostBlock::swap(HostBlock & other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
}

}  // namespace lsm
