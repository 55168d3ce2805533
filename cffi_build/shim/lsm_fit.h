// What a model and its context would take, without memory for them: a load in which nothing is allocated.
#pragma once
#include "llama.h"
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

struct lsm_memory_use {
    int64_t      total_bytes; // of the device; 0 for a GPU that does not say
    int64_t      free_bytes;
    int64_t      model_bytes;
    int64_t      context_bytes;
    int64_t      compute_bytes;
    const char * buffer;      // ggml's name of the device's buffer type
};

// devices [n_max]: those that hold the model beside the host, in llama.cpp's order; *n_devices of them.
// host: what ordinary memory takes, and memory that a device keeps there.
// facts: layers without the output layer, the context that the model was trained for, experts in a layer.
// The parameters' allocation and load mode are ours; all else counts. Returns 0 or a negative LSM_E_ code, LSM_E_READ where llama.cpp refuses.
int lsm_fit_measure(const char * path, const struct llama_model_params * model_params, const struct llama_context_params * context_params,
                    int n_max, struct lsm_memory_use * devices, int * n_devices, struct lsm_memory_use * host, int32_t facts[3],
                    char * err, int err_len);

#ifdef __cplusplus
}
#endif
