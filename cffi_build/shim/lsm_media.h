// What of libmtmd can throw, or has no C interface. Everything else of it is called as it is.
#pragma once
#include "mtmd.h"
#include "mtmd-helper.h"
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

// An image or sound from the bytes of its file; NULL with a sentence in `err` if they cannot be decoded. mtmd_bitmap_free() it.
struct mtmd_bitmap * lsm_media_bitmap(const struct mtmd_context * ctx, const uint8_t * data, int64_t size_bytes, char * err, int err_len);

// Bytes that the projector in the file at `path` needs on its device (weights and compute), without taking them: it builds the graphs.
// Ends the process where llama.cpp's own checks of the file's tensors do. 0 or a negative LSM_E_ code.
int lsm_media_measure(const char * path, uint64_t * size_bytes, char * err, int err_len);

#ifdef __cplusplus
}
#endif
