// How much device memory a model will take, before it takes any.
#pragma once
#include "llama.h"
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

// `ctx` is of a model that was loaded with no_alloc: nothing is on a device, but everything has its size. Only memory that
// lsm_device_bytes() would count counts. out[0] weights, out[1] KV cache, out[2] compute buffers, in bytes.
int lsm_measure(const struct llama_context * ctx, uint64_t * out, char * err, int err_len);

#ifdef __cplusplus
}
#endif
