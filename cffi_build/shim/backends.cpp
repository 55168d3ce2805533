#include "backends.hpp"
#include "ledger.hpp"

#include <mutex>
#include <unordered_map>
#include <utility>

namespace lsm {
namespace {

using FreeBackend = void (*)(ggml_backend_t);

struct Known {
    int         owner;
    FreeBackend free;
};

std::mutex mutex;
std::unordered_map<ggml_backend_t, Known> backends;

void free_backend(ggml_backend_t backend) {
    FreeBackend original;
    {
        std::lock_guard lock(mutex);
        const auto it = backends.find(backend);
        original      = it->second.free;
        backends.erase(it);
    }
    original(backend);
}

// Whoever holds the backend goes on holding it: only what it points to is exchanged, and the old insides go with the new shell.
void renew(ggml_backend_t backend) {
    ggml_backend_t fresh = ggml_backend_dev_init(backend->device, nullptr);
    if (!fresh) return;  // then it keeps what it has
    std::swap(fresh->context, backend->context);
    ggml_backend_free(fresh);
}

}  // namespace

void remember_backend(int owner, ggml_backend_t backend) {
    std::lock_guard lock(mutex);
    backends.emplace(backend, Known{ owner, backend->iface.free });
    backend->iface.free = free_backend;
}

void renew_backends(int owner) {
    std::vector<ggml_backend_t> found;
    {
        std::lock_guard lock(mutex);
        for (const auto & [backend, known] : backends) {
            if (known.owner == owner && backend_gathers_memory(backend->device)) found.push_back(backend);
        }
    }
    for (ggml_backend_t backend : found) renew(backend);
}

}  // namespace lsm
