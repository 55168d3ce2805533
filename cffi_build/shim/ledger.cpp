#include "ledger.hpp"
#include "faults.hpp"
#include "meter.hpp"
#include "rebase.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

namespace lsm {

int Entry::memory_class() const {
    if (scope_class != LSM_CLASS_AUTO) return scope_class;
    switch (shell->usage) {
        case GGML_BACKEND_BUFFER_USAGE_WEIGHTS: return LSM_CLASS_WEIGHTS;
        case GGML_BACKEND_BUFFER_USAGE_COMPUTE: return LSM_CLASS_COMPUTE;
        default: return tensors.empty() ? LSM_CLASS_OTHER : LSM_CLASS_KV;
    }
}

void Entry::count() {
    uint64_t host = kept_pages.bytes.size_bytes(), file = kept_pages.file.size_bytes();
    for (const auto & kept : kept_tensors) host += kept.bytes.size_bytes();
    for (const auto & part : from_file) file += part.span.size_bytes;
    host_bytes = host;
    file_bytes = file;
}

Ledger & Ledger::instance() {
    // Never destroyed: models may be freed by other static destructors after ours would have run.
    static Ledger * ledger = new Ledger;
    return *ledger;
}

namespace {
thread_local int  scope             = 0;
thread_local bool allocation_failed = false;
// Total over all owners, so that the gate of a graph costs one load while nothing is released.
std::atomic<int> n_released{0};
}  // namespace

int pack_scope(int owner, int memory_class) { return owner << 8 | memory_class; }
int exchange_scope(int packed) { return std::exchange(scope, packed); }
int scope_owner() { return scope >> 8; }

bool take_allocation_failure() { return std::exchange(allocation_failed, false); }

// The wrappers that stand in front of a buffer's own functions.
struct BufferHooks {
    static ggml_backend_buffer_t allocate(ggml_backend_buffer_type_t type, size_t size_bytes) {
        auto & ledger = Ledger::instance();
        const int owner = scope >> 8;
        Ledger::TypeHook hook;
        bool stays;
        {
            std::lock_guard lock(ledger.mutex_);
            hook  = ledger.types_.at(type);
            stays = ledger.stays(hook, owner);
        }
        if (stays) return hook.original(type, size_bytes);
        if (!hook.provider) return allocate_through_another_type(type, hook, size_bytes);

        ggml_backend_buffer_t buffer = allocate_movable(type, hook, size_bytes);
        if (!buffer) allocation_failed = true;
        return buffer;
    }

    static ggml_backend_buffer_t allocate_movable(ggml_backend_buffer_type_t type, const Ledger::TypeHook & hook, size_t size_bytes) {
        auto entry      = std::make_unique<Entry>();
        const auto & ledger = Ledger::instance();
        const bool cpu  = hook.provider == &cpu_provider();
        entry->provider = cpu && ledger.cpu_buffers_move_ ? &moving_cpu_provider() : cpu && ledger.cpu_by_engine_ ? &cpu_engine_provider() : hook.provider;
        entry->region.device = hook.device;
        entry->type     = type;
        entry->original = hook.original;
        if (fault_now(LSM_FAULT_MAP)) return nullptr;
        entry->shell = lsm::allocate(*entry, size_bytes);
        return entry->shell ? record(std::move(entry)) : nullptr;
    }

    // Repacking types take a buffer of the plain CPU type (ours by then) and exchange some of its functions.
    static ggml_backend_buffer_t allocate_through_another_type(ggml_backend_buffer_type_t type, const Ledger::TypeHook & hook, size_t size_bytes) {
        ggml_backend_buffer_t buffer = hook.original(type, size_bytes);
        if (!buffer) return nullptr;
        auto & ledger = Ledger::instance();
        {
            std::lock_guard lock(ledger.mutex_);
            if (Entry * entry = ledger.find(buffer)) {
                auto own         = buffer->iface;
                own.free_buffer  = entry->inner.free_buffer;
                own.clear        = entry->inner.clear;
                if (own.init_tensor == init_tensor) own.init_tensor = entry->inner.init_tensor;
                entry->inner = own;
                wrap(*entry);
                return buffer;
            }
        }
        auto entry   = std::make_unique<Entry>();
        entry->shell = buffer;
        entry->region.size_bytes = buffer->size;
        return record(std::move(entry));
    }

    static ggml_backend_buffer_t record(std::unique_ptr<Entry> entry) {
        auto & ledger      = Ledger::instance();
        entry->owner       = scope >> 8;
        entry->scope_class = scope & 0xff;
        entry->inner       = entry->shell->iface;
        wrap(*entry);
        ggml_backend_buffer_t buffer = entry->shell;
        meter_taken(entry->owner, entry->region.size_bytes);
        std::lock_guard lock(ledger.mutex_);
        ledger.entries_.emplace(buffer, std::move(entry));
        return buffer;
    }

    static void wrap(Entry & entry) {
        entry.live             = entry.inner;
        entry.live.free_buffer = free_buffer;
        entry.live.init_tensor = init_tensor;
        if (entry.provider && (entry.provider->zero || entry.provider->moves())) entry.live.clear = clear;
        entry.shell->iface = entry.live;
    }

    static void free_buffer(ggml_backend_buffer_t buffer) {
        auto & ledger = Ledger::instance();
        std::unique_ptr<Entry> entry;
        {
            std::lock_guard lock(ledger.mutex_);
            auto it = ledger.entries_.find(buffer);
            entry   = std::move(it->second);
            ledger.entries_.erase(it);
        }
        if (!entry->resident) n_released--;
        free_memory(*entry);
        if (entry->resident) meter_given_back(entry->owner, entry->region.size_bytes);
    }

    // Of a released buffer: where it was last. Nothing reads there, and tensors keep their distance from it.
    static void * last_base(ggml_backend_buffer_t buffer) {
        auto & ledger = Ledger::instance();
        std::lock_guard lock(ledger.mutex_);
        return ledger.find(buffer)->region.address;
    }

    static ggml_status init_tensor(ggml_backend_buffer_t buffer, ggml_tensor * tensor) {
        auto & ledger = Ledger::instance();
        decltype(buffer->iface.init_tensor) inner;
        {
            std::lock_guard lock(ledger.mutex_);
            Entry * entry = ledger.find(buffer);
            inner         = entry->inner.init_tensor;
            if (buffer->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE) {
                // Every graph puts thousands of tensors into its compute buffer and none is worth recording: step aside.
                entry->live.init_tensor    = inner;
                buffer->iface.init_tensor  = inner;
            } else if (!tensor->view_src && tensor->op == GGML_OP_NONE) {
                entry->tensors.push_back(tensor);
            } else if (tensor->view_src && !entry->complete && !entry->weights() && !entry->bound && entry->provider && entry->provider->moves()) {
                entry->views.push_back(tensor);
            }
        }
        return inner ? inner(buffer, tensor) : GGML_STATUS_SUCCESS;
    }

    static void clear(ggml_backend_buffer_t buffer, uint8_t value) {
        auto & ledger = Ledger::instance();
        Entry * entry;
        {
            std::lock_guard lock(ledger.mutex_);
            entry = ledger.find(buffer);
        }
        entry->complete = true;  // caches are cleared when all that belongs to them is made
        if (value == 0 && entry->provider->zero && entry->provider->zero(entry->region)) return;
        entry->inner.clear(buffer, value);
    }
};

Entry * Ledger::find(ggml_backend_buffer_t buffer) {
    const auto it = entries_.find(buffer);
    return it == entries_.end() ? nullptr : it->second.get();
}

void Ledger::hook_type(ggml_backend_buffer_type_t type, const Provider * provider, int device) {
    types_.emplace(type, TypeHook{ type->iface.alloc_buffer, provider, device });
    type->iface.alloc_buffer = BufferHooks::allocate;
}

void Ledger::hook_device(ggml_backend_dev_t device, const Provider & provider, int index) {
    hook_type(ggml_backend_dev_buffer_type(device), &provider, index);
    const auto extra_types = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
    if (extra_types) {
        for (auto * type = extra_types(device); type && *type; type++) hook_type(*type, nullptr, index);
    }
    hook_graph_compute(device);
}

namespace {
const Provider * provider_of(ggml_backend_dev_t device, int & index) {
    const std::string backend = ggml_backend_reg_name(ggml_backend_dev_backend_reg(device));
    if (backend == "CPU") return &cpu_provider();
    if (backend == "CUDA") return cuda_provider(device, index);
    if (backend == "Vulkan") return &vulkan_provider();
    return nullptr;
}
}  // namespace

Status Ledger::install() {
    std::lock_guard lock(mutex_);
    if (installed_) return {};
    if (!ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU)) return Status::error(LSM_E_FAILED, "this build of llama.cpp has no CPU backend");
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        int index = 0;
        if (const Provider * provider = provider_of(device, index)) hook_device(device, *provider, index);
    }
    installed_ = true;
    return {};
}

bool Ledger::stays(const TypeHook & hook, int owner) {
    return owner == 0 || ((!hook.provider || hook.provider->host_ram) && host_stays_.count(owner) > 0);
}

void Ledger::let_host_stay(int owner, bool yes) {
    std::lock_guard lock(mutex_);
    if (yes) host_stays_.insert(owner); else host_stays_.erase(owner);
}

bool can_release(ggml_backend_dev_t device) {
    int index;
    return provider_of(device, index) != nullptr;
}

bool backend_gathers_memory(ggml_backend_dev_t device) {
    int index;
    const Provider * provider = provider_of(device, index);
    return provider && provider->backend_gathers_memory;
}

const Region * region_of(ggml_backend_buffer_t buffer) { return Ledger::instance().region(buffer); }

const Region * Ledger::region(ggml_backend_buffer_t buffer) {
    std::lock_guard lock(mutex_);
    const Entry * entry = find(buffer);
    return entry ? &entry->region : nullptr;
}

template <typename Visit> void Ledger::visit(int owner, int classes, Visit && visit_entry) {
    std::lock_guard lock(mutex_);
    for (auto & [_, entry] : entries_) {
        if (entry->owner == owner && (entry->memory_class() & classes)) visit_entry(*entry);
    }
}

std::vector<Entry *> Ledger::entries(int owner, int classes) {
    std::vector<Entry *> found;
    visit(owner, classes, [&](Entry & entry) { found.push_back(&entry); });
    return found;
}

Bytes Ledger::bytes(int owner, int classes) {
    Bytes total;
    visit(owner, classes, [&](const Entry & entry) {
        (entry.resident ? total.device : total.released) += entry.region.size_bytes;
        total.host += entry.host_bytes;
        total.file += entry.file_bytes;
        total.host += entry.copy.pageable_bytes();
        total.pinned += entry.copy.pinned_bytes();
    });
    for (const auto & source : sources(owner, classes)) total.registered += source->pinned_bytes();
    return total;
}

bool Ledger::any_released() const { return n_released.load(std::memory_order_acquire) > 0; }

bool Ledger::any_released(int owner, int classes) {
    if (!any_released()) return false;
    bool released = false;
    visit(owner, classes, [&](const Entry & entry) { released = released || !entry.resident; });
    return released;
}

bool Ledger::hooks(ggml_backend_buffer_type_t type) {
    std::lock_guard lock(mutex_);
    return types_.count(type) > 0;
}

void Ledger::mark_released(Entry & entry) {
    entry.shell->iface             = released_interface;
    entry.shell->iface.free_buffer = BufferHooks::free_buffer;
    entry.shell->iface.get_base    = BufferHooks::last_base;
    entry.resident                 = false;
    n_released++;
}

void Ledger::mark_resident(Entry & entry) {
    entry.shell->iface = entry.live;
    entry.resident     = true;
    n_released--;
}

void Ledger::drop_kept_pages(ggml_backend_buffer_t buffer) {
    std::lock_guard lock(mutex_);
    if (Entry * entry = find(buffer)) {
        entry->kept_pages = {};
        entry->count();
    }
}

void Ledger::set_copy(Entry & entry, HostCopy && copy) {
    std::lock_guard lock(mutex_);
    entry.copy = std::move(copy);
}

std::vector<std::shared_ptr<Source>> Ledger::sources(int owner, int memory_class) {
    std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Source>> found;
    for (auto & source : sources_[owner]) {
        if (source->memory_class() & memory_class) found.push_back(source);
    }
    return found;
}

void Ledger::add_source(int owner, std::shared_ptr<Source> source) {
    std::lock_guard lock(mutex_);
    sources_[owner].push_back(std::move(source));
}

void Ledger::forget_sources(int owner, int classes) {
    std::lock_guard lock(mutex_);
    auto & sources = sources_[owner];
    sources.erase(std::remove_if(sources.begin(), sources.end(), [&](const auto & source) { return source->memory_class() & classes; }), sources.end());
    if (sources.empty()) sources_.erase(owner);
}

bool Ledger::begin(int owner) {
    std::lock_guard lock(mutex_);
    return busy_.insert(owner).second;
}

void Ledger::end(int owner) {
    std::lock_guard lock(mutex_);
    busy_.erase(owner);
}

}  // namespace lsm
