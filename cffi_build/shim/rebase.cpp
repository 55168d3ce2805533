#include "rebase.hpp"
#include "llama-context.h"

#include <mutex>
#include <unordered_map>

namespace lsm {
namespace {

// A private member, by the book: an explicit instantiation may name it.
template <typename Tag, typename Tag::type Member> struct Reveal {
    friend typename Tag::type reveal(Tag) { return Member; }
};
struct LastGraph {
    using type = llm_graph_result * llama_context::*;
    friend type reveal(LastGraph);
};
template struct Reveal<LastGraph, &llama_context::gf_res_prev_active>;

std::mutex mutex;
std::unordered_map<llama_context *, int> owners;

char * base_of(const Entry & entry) { return static_cast<char *>(entry.inner.get_base(entry.shell)); }

void move_tensors(Entry & entry, ptrdiff_t distance) {
    for (ggml_tensor * tensor : entry.tensors) tensor->data = static_cast<char *>(tensor->data) + distance;
    for (ggml_tensor * view : entry.views) view->data = static_cast<char *>(view->data) + distance;
}

ggml_backend_buffer_t allocate_anew(const Entry & entry, size_t size_bytes) {
    const auto & provider = *entry.provider;
    return provider.allocate ? provider.allocate(entry.type, size_bytes) : entry.original(entry.type, size_bytes);
}

bool take_elsewhere(Entry & entry) {
    ggml_backend_buffer_t fresh = allocate_anew(entry, entry.region.size_bytes);
    if (!fresh) return false;
    entry.shell->context     = fresh->context;
    fresh->iface.free_buffer = nullptr;
    ggml_backend_buffer_free(fresh);  // only its shell: ours, which may have another type's functions, has the memory now
    char * base = base_of(entry);
    move_tensors(entry, base - static_cast<char *>(entry.region.address));
    entry.region.address = base;
    if (entry.shell->usage != GGML_BACKEND_BUFFER_USAGE_COMPUTE) entry.inner.clear(entry.shell, 0);
    return true;
}

ggml_backend_buffer_t allocate_fixed(Entry & entry, size_t size_bytes) {
    const auto & provider = *entry.provider;
    if (!provider.reserve(entry.region, size_bytes)) return nullptr;
    if (provider.map(entry.region)) {
        if (auto * buffer = provider.make_buffer(entry.type, entry.original, entry.region)) return buffer;
        provider.unmap(entry.region);
    }
    provider.unreserve(entry.region);
    return nullptr;
}

}  // namespace

ggml_backend_buffer_t allocate(Entry & entry, size_t size_bytes) {
    if (!entry.provider->moves()) return allocate_fixed(entry, size_bytes);
    ggml_backend_buffer_t buffer = allocate_anew(entry, size_bytes);
    if (buffer) entry.region = { buffer->iface.get_base(buffer), size_bytes, size_bytes, nullptr };
    return buffer;
}

bool take_memory(Entry & entry) { return entry.provider->moves() ? take_elsewhere(entry) : entry.provider->map(entry.region); }

bool give_back_memory(Entry & entry) {
    if (!entry.provider->moves()) return entry.provider->unmap(entry.region);
    entry.inner.free_buffer(entry.shell);
    entry.shell->context = nullptr;
    return true;
}

void free_memory(Entry & entry) {
    if (entry.provider && entry.provider->moves()) {
        if (entry.resident) entry.inner.free_buffer(entry.shell);
        return;
    }
    if (entry.inner.free_buffer) entry.inner.free_buffer(entry.shell);
    if (!entry.provider) return;
    if (entry.resident) entry.provider->unmap(entry.region);
    entry.provider->unreserve(entry.region);
}

void watch_context(int owner, llama_context * context) {
    std::lock_guard lock(mutex);
    owners[context] = owner;
}

void unwatch_context(llama_context * context) {
    std::lock_guard lock(mutex);
    owners.erase(context);
}

void forget_graphs(int owner) {
    std::lock_guard lock(mutex);
    for (auto & [context, its_owner] : owners) {
        if (its_owner == owner) context->*reveal(LastGraph{}) = nullptr;
    }
}

void synchronize_contexts(int owner) {
    std::vector<llama_context *> contexts;
    {
        std::lock_guard lock(mutex);
        for (auto & [context, its_owner] : owners) {
            if (its_owner == owner) contexts.push_back(context);
        }
    }
    for (llama_context * context : contexts) llama_synchronize(context);
}

}  // namespace lsm
