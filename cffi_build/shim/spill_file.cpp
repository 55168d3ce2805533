#include "spill_file.hpp"
#include "faults.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <mutex>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace lsm {
namespace {

std::mutex  folder_mutex;
std::string chosen_folder;

Status cannot_keep(const std::string & folder, size_t size_bytes, int error) {
    return Status::error(LSM_E_SPILL, folder + " cannot take " + std::to_string(size_bytes) + " bytes of released memory: " + std::strerror(error) +
                                          ". Make room there, or name a folder on another disk with LSM_SPILL_DIR");
}

Status cannot_read(const std::string & folder, const std::string & why) {
    return Status::error(LSM_E_SPILL, "released memory that was kept in " + folder + " cannot be read back: " + why);
}

// Made at each need: whoever empties caches may have removed it since the last one.
void make_folder(const std::string & folder) {
    std::error_code ignored;  // what matters is whether a file can be made there
    std::filesystem::create_directories(std::filesystem::path(folder).parent_path(), ignored);
    mkdir(folder.c_str(), 0700);
}

int make_unnamed(const std::string & folder) {
    int fd = -1;
    if (!fault_now(LSM_FAULT_UNNAMED)) {
        fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
    }
    // Not every file system has files without a name; there, one has a name for an instant, and no bytes yet.
    std::string name = folder + "/spill-XXXXXX";
    fd = mkostemp(name.data(), O_CLOEXEC);
    if (fd >= 0) unlink(name.c_str());
    return fd;
}

// Sets the blocks aside, so that a full disk is found before anything is copied. 0, or the error.
int set_aside(int fd, size_t size_bytes) {
    if (fault_now(LSM_FAULT_SAVE)) return ENOSPC;
    while (fallocate(fd, 0, 0, static_cast<off_t>(size_bytes)) != 0) {
        if (errno == EOPNOTSUPP || errno == ENOSYS) return 0;  // then the writes will tell
        if (errno != EINTR) return errno;
    }
    return 0;
}

}  // namespace

void set_spill_folder(std::string path) {
    std::lock_guard lock(folder_mutex);
    chosen_folder = std::move(path);
}

std::string spill_folder() {
    std::lock_guard lock(folder_mutex);
    return chosen_folder;
}

Status SpillFile::create(const std::string & folder, size_t size_bytes, SpillFile & out) {
    SpillFile file;
    make_folder(folder);
    file.folder_     = folder;
    file.size_bytes_ = size_bytes;
    file.fd_         = make_unnamed(folder);
    if (!file.is_open()) return cannot_keep(folder, size_bytes, errno);
    if (const int error = set_aside(file.fd_, size_bytes)) return cannot_keep(folder, size_bytes, error);
    out = std::move(file);
    return {};
}

SpillFile::~SpillFile() {
    if (is_open()) close(fd_);
}

Status SpillFile::write(size_t offset_bytes, const void * from, size_t n) const {
    for (size_t done = 0; done < n;) {
        const ssize_t wrote = pwrite(fd_, static_cast<const char *>(from) + done, n - done, static_cast<off_t>(offset_bytes + done));
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return cannot_keep(folder_, size_bytes_, wrote < 0 ? errno : ENOSPC);
        done += static_cast<size_t>(wrote);
    }
    return {};
}

Status SpillFile::read(size_t offset_bytes, void * to, size_t n) const {
    for (size_t done = 0; done < n;) {
        const ssize_t got = pread(fd_, static_cast<char *>(to) + done, n - done, static_cast<off_t>(offset_bytes + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return cannot_read(folder_, std::strerror(errno));
        if (got == 0) return cannot_read(folder_, "the file ends too early");
        done += static_cast<size_t>(got);
    }
    return {};
}

Status SpillFile::intact() {
    // Starts no write-back; it waits for what is under way and tells of a failed one. The kernel tells only once, so we remember.
    const bool failed = sync_file_range(fd_, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE) != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT);
    damaged_ = damaged_ || failed || fault_now(LSM_FAULT_WRITE_BACK);
    return damaged_ ? cannot_read(folder_, "the disk lost some of it. Load the model again") : Status{};
}

void SpillFile::swap(SpillFile & other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(folder_, other.folder_);
    std::swap(damaged_, other.damaged_);
}

}  // namespace lsm
