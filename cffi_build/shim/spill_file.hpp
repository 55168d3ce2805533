// Kept bytes in a file, for device memory that is the host's own RAM: a copy in RAM would give nothing back.
//
// Written and read, never mapped. So the bytes are no memory of this process, the kernel may write them back and reclaim their page
// cache, and a disk that is full or fails is an error, not a SIGBUS. The file has no name: however the process ends, nothing stays.
#pragma once
#include "status.hpp"

#include <cstddef>
#include <string>

namespace lsm {

// Where such files are made from now on; empty: nowhere.
void        set_spill_folder(std::string path);
std::string spill_folder();

class SpillFile {
public:
    // With room for `size_bytes` set aside on the disk. Makes the folder if it is missing.
    static Status create(const std::string & folder, size_t size_bytes, SpillFile & out);

    SpillFile() = default;
    SpillFile(SpillFile && other) noexcept { swap(other); }
    SpillFile & operator=(SpillFile && other) noexcept { swap(other); return *this; }
    SpillFile(const SpillFile &) = delete;
    SpillFile & operator=(const SpillFile &) = delete;
    ~SpillFile();

    Status write(size_t offset_bytes, const void * from, size_t n) const;
    Status read(size_t offset_bytes, void * to, size_t n) const;

    // After the last read: an error if bytes were ever lost on the way to the disk, so that what was read may be wrong.
    Status intact();

    bool   is_open() const { return fd_ >= 0; }
    size_t size_bytes() const { return size_bytes_; }

private:
    void swap(SpillFile & other) noexcept;

    int         fd_         = -1;
    size_t      size_bytes_ = 0;
    std::string folder_;
    bool        damaged_    = false;
};

}  // namespace lsm
