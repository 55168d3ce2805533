#include "lsm_fit.h"
#include "ggml-backend.h"
#include "llama-ext.h"
#include "status.hpp"

#include <memory>
#include <string>

using lsm::Status;

namespace {

template <auto Free> struct Freed {
    template <typename T> void operator()(T * object) const { Free(object); }
};
using Model   = std::unique_ptr<llama_model, Freed<llama_model_free>>;
using Context = std::unique_ptr<llama_context, Freed<llama_free>>;

lsm_memory_use empty_use(ggml_backend_dev_t device) {
    size_t free = 0, total = 0;
    ggml_backend_dev_memory(device, &free, &total);
    const char * buffer = ggml_backend_buft_name(ggml_backend_dev_buffer_type(device));
    return { static_cast<int64_t>(total), static_cast<int64_t>(free), 0, 0, 0, buffer };
}

void add(lsm_memory_use & use, const llama_memory_breakdown_data & taken) {
    use.model_bytes   += static_cast<int64_t>(taken.model);
    use.context_bytes += static_cast<int64_t>(taken.context);
    use.compute_bytes += static_cast<int64_t>(taken.compute);
}

bool is_gpu(ggml_backend_dev_t device) {
    const auto type = ggml_backend_dev_type(device);
    return type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU;
}

// Memory of the host, and of devices that are not the model's, goes to the host's account.
lsm_memory_use & account(const llama_model * model, ggml_backend_buffer_type_t type, lsm_memory_use * devices, int n, lsm_memory_use & host) {
    if (!ggml_backend_buft_is_host(type)) {
        const ggml_backend_dev_t device = ggml_backend_buft_get_device(type);
        for (int i = 0; i < n; i++) {
            if (device && llama_model_get_device(model, i) == device) return devices[i];
        }
    }
    return host;
}

int32_t count_layers(const llama_model * model, bool with_mtp) {
    return llama_model_n_layer(model) + (with_mtp ? llama_model_n_layer_nextn(model) : 0);
}

}  // namespace

extern "C" int lsm_fit_measure(const char * path, const struct llama_model_params * model_params, const struct llama_context_params * context_params,
                               int n_max, struct lsm_memory_use * devices, int * n_devices, struct lsm_memory_use * host, int32_t facts[3],
                               char * err, int err_len) {
    return lsm::guarded(err, err_len, [&]() -> Status {
        llama_model_params params = *model_params;
        params.no_alloc  = true;
        params.load_mode = LLAMA_LOAD_MODE_NONE;
        const Model model(llama_model_load_from_file(path, params));
        if (!model) return Status::error(LSM_E_READ, std::string(path) + ": llama.cpp cannot load this file; the log says why");
        const Context context(llama_init_from_model(model.get(), *context_params));
        if (!context) return Status::error(LSM_E_FAILED, "llama.cpp refuses to make a context with these settings; its log says why");

        *n_devices = llama_model_n_devices(model.get());
        if (*n_devices > n_max) return Status::error(LSM_E_ARGUMENT, "the model is on more devices than there is room to tell of");
        *host = empty_use(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU));
        for (int i = 0; i < *n_devices; i++) {
            const ggml_backend_dev_t device = llama_model_get_device(model.get(), i);
            devices[i] = empty_use(device);
            if (devices[i].total_bytes == 0 && !is_gpu(device)) {  // an accelerator that computes in the host's memory
                devices[i].total_bytes = host->total_bytes;
                devices[i].free_bytes  = host->free_bytes;
            }
        }
        for (const auto & [type, taken] : llama_get_memory_breakdown(context.get())) {
            add(account(model.get(), type, devices, *n_devices, *host), taken);
        }
        facts[0] = count_layers(model.get(), params.load_mtp);
        facts[1] = llama_model_n_ctx_train(model.get());
        facts[2] = llama_model_n_expert(model.get());
        return {};
    });
}
