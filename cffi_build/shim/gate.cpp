// The second line of defence: a graph that touches released memory is refused before its first node runs, so that llama_decode
// returns an error and the process lives. The first line is lsm_step_decode(), which asks before it builds a graph at all.
#include "backends.hpp"
#include "ledger.hpp"
#include "ggml.h"

#include "llama.h"

#include <string>
#include <unordered_map>

namespace lsm {
namespace {

using InitBackend  = ggml_backend_t (*)(ggml_backend_dev_t, const char *);
using GraphCompute = ggml_status (*)(ggml_backend_t, ggml_cgraph *);

struct DeviceFunctions {
    InitBackend  init_backend;
    bool         captures;
    GraphCompute graph_compute;  // set when the first backend of this device is made
};

std::mutex mutex;
std::unordered_map<ggml_backend_dev_t, DeviceFunctions> devices;

ggml_backend_buffer_t buffer_of(const ggml_tensor * tensor) { return tensor->view_src ? tensor->view_src->buffer : tensor->buffer; }

const ggml_tensor * released_operand(ggml_cgraph * graph) {
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const ggml_tensor * node = ggml_graph_node(graph, i);
        if (is_released(buffer_of(node))) return node;
        for (const ggml_tensor * operand : node->src) {
            if (operand && is_released(buffer_of(operand))) return operand;
        }
    }
    return nullptr;
}

// Into the log of llama.cpp, wherever that goes.
void log_error(const std::string & message) {
    ggml_log_callback callback;
    void * user_data;
    llama_log_get(&callback, &user_data);
    callback(GGML_LOG_LEVEL_ERROR, (message + "\n").c_str(), user_data);
}

DeviceFunctions functions_of(ggml_backend_dev_t device) {
    std::lock_guard lock(mutex);
    return devices.at(device);
}

ggml_status compute(ggml_backend_t backend, ggml_cgraph * graph) {
    if (Ledger::instance().any_released()) {
        if (const ggml_tensor * tensor = released_operand(graph)) {
            log_error(std::string("graph refused: tensor ") + tensor->name + " is in released device memory");
            return GGML_STATUS_FAILED;
        }
    }
    const auto functions = functions_of(backend->device);
    std::shared_lock lock(capture_mutex(), std::defer_lock);
    if (functions.captures) lock.lock();
    return functions.graph_compute(backend, graph);
}

ggml_backend_t init_backend(ggml_backend_dev_t device, const char * params) {
    InitBackend original;
    {
        std::lock_guard lock(mutex);
        original = devices.at(device).init_backend;
    }
    ggml_backend_t backend = original(device, params);
    if (!backend) return nullptr;
    remember_backend(scope_owner(), backend);
    std::lock_guard lock(mutex);
    devices.at(device).graph_compute = backend->iface.graph_compute;
    backend->iface.graph_compute     = compute;
    return backend;
}

}  // namespace

std::shared_mutex & capture_mutex() {
    static std::shared_mutex * mutex = new std::shared_mutex;  // never destroyed: models may be freed after our destructors ran
    return *mutex;
}

void hook_graph_compute(ggml_backend_dev_t device) {
    const bool captures = backend_gathers_memory(device);
    std::lock_guard lock(mutex);
    devices.emplace(device, DeviceFunctions{ device->iface.init_backend, captures, nullptr });
    device->iface.init_backend = init_backend;
}

}  // namespace lsm
