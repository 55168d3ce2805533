#include "lsm_media.h"
#include "status.hpp"

#include <limits>
#include <memory>

using lsm::Status;

namespace {

// mtmd refuses sounds of one sample by ending the process.
constexpr size_t min_sound_bytes = 2 * sizeof(float);

struct FreeBitmap {
    void operator()(mtmd_bitmap * bitmap) const { mtmd_bitmap_free(bitmap); }
};

Status read_bitmap(const mtmd_context * ctx, const uint8_t * data, int64_t size_bytes, std::unique_ptr<mtmd_bitmap, FreeBitmap> & out) {
    if (size_bytes <= 0 || size_bytes > std::numeric_limits<int>::max()) return Status::error(LSM_E_ARGUMENT, "is empty, or larger than 2 GiB");
    auto decoded = mtmd_helper_bitmap_init_from_buf(ctx, data, static_cast<size_t>(size_bytes), false, mtmd_helper_init_opt_default());
    out.reset(decoded.bitmap);
    if (decoded.video_ctx) {
        mtmd_helper_video_free(decoded.video_ctx);
        return Status::error(LSM_E_ARGUMENT, "is a video, which is not supported");
    }
    if (!out) return Status::error(LSM_E_ARGUMENT, "cannot be decoded: it is damaged, or cut off");
    if (mtmd_bitmap_is_audio(out.get()) && mtmd_bitmap_get_n_bytes(out.get()) < min_sound_bytes) {
        return Status::error(LSM_E_ARGUMENT, "has no sound in it");
    }
    return {};
}

Status measure(const char * path, uint64_t * size_bytes) {
    auto params = mtmd_context_params_default();
    params.use_gpu = false;
    params.print_timings = false;
    *size_bytes = 0;
    for (const auto & [_, bytes] : mtmd_get_memory_usage(path, params)) *size_bytes += bytes;
    if (*size_bytes == 0) return Status::error(LSM_E_READ, "llama.cpp cannot use this file as a projector");
    return {};
}

}  // namespace

extern "C" {

struct mtmd_bitmap * lsm_media_bitmap(const struct mtmd_context * ctx, const uint8_t * data, int64_t size_bytes, char * err, int err_len) {
    std::unique_ptr<mtmd_bitmap, FreeBitmap> bitmap;
    const int code = lsm::guarded(err, err_len, [&] { return read_bitmap(ctx, data, size_bytes, bitmap); });
    return code == LSM_OK ? bitmap.release() : nullptr;
}

int lsm_media_measure(const char * path, uint64_t * size_bytes, char * err, int err_len) {
    return lsm::guarded(err, err_len, [&] { return measure(path, size_bytes); });
}

}  // extern "C"
