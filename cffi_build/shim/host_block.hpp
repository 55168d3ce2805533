// Host memory for kept bytes, straight from the kernel: it goes back the moment it is dropped.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lsm {

class HostBlock {
public:
    HostBlock() = default;
    HostBlock(HostBlock && other) noexcept { swap(other); }
    HostBlock & operator=(HostBlock && other) noexcept { swap(other); return *this; }
    HostBlock(const HostBlock &) = delete;
    HostBlock & operator=(const HostBlock &) = delete;
    ~HostBlock() { free(); }

    bool allocate(size_t size_bytes);  // contents are zero; 0 bytes always succeeds
    void free();

    uint8_t * data() const { return data_; }
    size_t    size_bytes() const { return size_bytes_; }

private:
    void swap(HostBlock & other) noexcept;

    uint8_t * data_       = nullptr;
    size_t    size_bytes_ = 0;
};

}  // namespace lsm
