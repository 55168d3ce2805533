#include "sources.hpp"
#include "gguf.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace lsm {
namespace {

Fingerprint fingerprint(const struct stat & st) {
    return { static_cast<uint64_t>(st.st_dev), static_cast<uint64_t>(st.st_ino), static_cast<uint64_t>(st.st_size),
             static_cast<uint64_t>(st.st_mtim.tv_sec) * 1000000000ull + static_cast<uint64_t>(st.st_mtim.tv_nsec) };
}

}  // namespace

Status Source::open(int memory_class, const std::string & path, std::shared_ptr<Source> & out) {
    std::shared_ptr<Source> source(new Source(memory_class, path));
    source->fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (source->fd_ < 0) return Status::error(LSM_E_READ, path + " cannot be opened: " + std::strerror(errno));
    struct stat st;
    if (fstat(source->fd_, &st) != 0) return Status::error(LSM_E_READ, path + " cannot be examined: " + std::strerror(errno));
    source->loaded_ = fingerprint(st);
    if (auto status = source->read_tensor_table(); !status.ok()) return status;
    out = std::move(source);
    return {};
}

Source::~Source() {
    pinning_.reset();
    if (mapping_) munmap(mapping_, loaded_.size_bytes);
    if (fd_ >= 0) close(fd_);
}

Status Source::read_tensor_table() {
    gguf_init_params params = {};
    params.no_alloc = true;
    std::unique_ptr<gguf_context, decltype(&gguf_free)> gguf(gguf_init_from_file(path_.c_str(), params), gguf_free);
    if (!gguf) return Status::error(LSM_E_READ, path_ + " is not a readable GGUF file");
    const uint64_t data_offset = gguf_get_data_offset(gguf.get());
    for (int64_t i = 0; i < gguf_get_n_tensors(gguf.get()); i++) {
        tensors_[gguf_get_tensor_name(gguf.get(), i)] = { gguf_get_tensor_type(gguf.get(), i),
                                                          data_offset + gguf_get_tensor_offset(gguf.get(), i),
                                                          gguf_get_tensor_size(gguf.get(), i) };
    }
    return {};
}

bool Source::find(const ggml_tensor * tensor, FileSpan & out) const {
    const auto it = tensors_.find(tensor->name);
    if (it == tensors_.end() || it->second.type != tensor->type || it->second.size_bytes != ggml_nbytes(tensor)) return false;
    out = { this, it->second.offset_bytes, it->second.size_bytes };
    return true;
}

Status Source::unchanged() const {
    struct stat by_path, by_descriptor;
    if (stat(path_.c_str(), &by_path) != 0) {
        return Status::error(LSM_E_SOURCE_CHANGED, path_ + " is gone (" + std::strerror(errno) + "): put the file back and load the model again");
    }
    if (fstat(fd_, &by_descriptor) != 0 || !(fingerprint(by_path) == loaded_) || !(fingerprint(by_descriptor) == loaded_)) {
        return Status::error(LSM_E_SOURCE_CHANGED, path_ + " was changed or replaced since the model was loaded: load the model again");
    }
    return {};
}

Status Source::read(uint64_t offset_bytes, void * to, uint64_t size_bytes) const {
    uint64_t done = 0;
    while (done < size_bytes) {
        const ssize_t n = pread(fd_, static_cast<char *>(to) + done, size_bytes - done, static_cast<off_t>(offset_bytes + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return Status::error(LSM_E_READ, path_ + " cannot be read: " + std::strerror(errno));
        if (n == 0) return Status::error(LSM_E_SOURCE_CHANGED, path_ + " ends too early: it was truncated since the model was loaded");
        done += static_cast<uint64_t>(n);
    }
    return {};
}

void Source::pin(const CopyEngine & engine) {
    if (pinning_ || loaded_.size_bytes == 0) return;
    void * mapping = mmap(nullptr, loaded_.size_bytes, PROT_READ, MAP_SHARED, fd_, 0);
    if (mapping == MAP_FAILED) return;
    mapping_ = mapping;
    auto pinning = std::make_unique<Pinning>(engine, mapping, loaded_.size_bytes, true);
    pinning->run();
    pinning_ = std::move(pinning);
}

}  // namespace lsm
