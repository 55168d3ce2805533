// GGUF files that serve as the copy of weights: opened once, read by pread (a truncated file is an error, not a SIGBUS).
#pragma once
#include "ggml.h"
#include "pinned.hpp"
#include "status.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <unordered_map>

namespace lsm {

struct Fingerprint {
    uint64_t device = 0, inode = 0, size_bytes = 0, mtime_ns = 0;
    bool operator==(const Fingerprint & other) const {
        return device == other.device && inode == other.inode && size_bytes == other.size_bytes && mtime_ns == other.mtime_ns;
    }
};

class Source;

struct FileSpan {
    const Source * source       = nullptr;
    uint64_t       offset_bytes = 0;
    uint64_t       size_bytes   = 0;
};

class Source {
public:
    static Status open(int memory_class, const std::string & path, std::shared_ptr<Source> & out);
    ~Source();
    Source(const Source &) = delete;
    Source & operator=(const Source &) = delete;

    int memory_class() const { return memory_class_; }

    // True if the file holds a tensor of this name, type and size.
    bool find(const ggml_tensor * tensor, FileSpan & out) const;

    // Compares the file now behind the path, and the one behind our descriptor, with the one that was loaded.
    Status unchanged() const;

    Status read(uint64_t offset_bytes, void * to, uint64_t size_bytes) const;

    // Maps the file and pins the mapping, from its start, as far as the bound and the driver permit. The processor never reads the
    // mapping: what a truncation takes away would end the process. Pinned pages stay, whatever happens to the file.
    void pin(const CopyEngine &);
    const Pinning * pinning() const { return pinning_.get(); }
    size_t pinned_bytes() const { return pinning_ ? pinning_->pinned_bytes() : 0; }

private:
    struct FileTensorInfo { ggml_type type; uint64_t offset_bytes, size_bytes; };

    Source(int memory_class, std::string path) : memory_class_(memory_class), path_(std::move(path)) {}
    Status read_tensor_table();

    int         memory_class_;
    std::string path_;
    int         fd_ = -1;
    Fingerprint loaded_;
    void *      mapping_ = nullptr;
    std::unique_ptr<Pinning> pinning_;
    std::unordered_map<std::string, FileTensorInfo> tensors_;
};

}  // namespace lsm
