#include "lsm_device.h"
#include "copies.hpp"
#include "faults.hpp"
#include "ledger.hpp"
#include "meter.hpp"
#include "move.hpp"
#include "rebase.hpp"

#include <algorithm>
#include <cstring>

namespace lsm {

void write_message(const std::string & message, char * err, int err_len) {
    if (!err || err_len <= 0) return;
    const size_t n = std::min(message.size(), static_cast<size_t>(err_len) - 1);
    std::memcpy(err, message.data(), n);
    err[n] = '\0';
}

namespace {

Status check_owner(int owner) {
    if (owner > 0 && owner < (1 << 23)) return {};
    return Status::error(LSM_E_ARGUMENT, "owner " + std::to_string(owner) + " is not between 1 and 8388607");
}

Status open_source(int owner, int memory_class, const char * path) {
    if (auto status = check_owner(owner); !status.ok()) return status;
    std::shared_ptr<Source> source;
    if (auto status = Source::open(memory_class, path, source); !status.ok()) return status;
    Ledger::instance().add_source(owner, std::move(source));
    return {};
}

// An adapter's buffer looks like live memory; that its file holds every tensor in it tells it from a control vector's.
bool holds_weights(const Entry & entry, const std::vector<std::shared_ptr<Source>> & sources) {
    if (entry.weights()) return true;
    FileSpan span;
    const auto in_a_file = [&](const ggml_tensor * tensor) {
        return std::any_of(sources.begin(), sources.end(), [&](const auto & source) { return source->find(tensor, span); });
    };
    return entry.scope_class == LSM_CLASS_ADAPTERS && std::all_of(entry.tensors.begin(), entry.tensors.end(), in_a_file);
}

Status bind_sources(int owner, int memory_class) {
    auto & ledger = Ledger::instance();
    const auto sources = ledger.sources(owner, memory_class);
    for (const auto & source : sources) {
        if (auto status = source->unchanged(); !status.ok()) return status;  // replaced between our open and the load
    }
    for (Entry * entry : ledger.entries(owner, memory_class)) {
        if (!entry->provider || entry->bound || !holds_weights(*entry, sources)) continue;
        if (auto status = bind_to_sources(*entry, sources); !status.ok()) return status;
    }
    return {};
}

}  // namespace
}  // namespace lsm

extern "C" {

int lsm_device_install(char * err, int err_len) {
    return lsm::guarded(err, err_len, [&] { return lsm::Ledger::instance().install(); });
}

void lsm_device_spill_dir(const char * path) { lsm::set_spill_folder(path ? path : ""); }

void lsm_device_shadow(int kind, uint64_t max_bytes) { lsm::set_shadow(kind, max_bytes); }

int lsm_device_can_release(ggml_backend_dev_t device) { return lsm::can_release(device) ? 1 : 0; }

void lsm_device_let_host_stay(int owner, int yes) { lsm::Ledger::instance().let_host_stay(owner, yes != 0); }

int lsm_device_prepare(int owner, int classes, char * err, int err_len) {
    return lsm::guarded(err, err_len, [&] { return lsm::prepare(owner, classes); });
}

void lsm_device_wait_for_room(int owner, int classes) { lsm::wait_for_room(owner, classes); }

int lsm_device_scope(int owner, int memory_class) { return lsm::exchange_scope(lsm::pack_scope(owner, memory_class)); }

void lsm_device_scope_restore(int previous) { lsm::exchange_scope(previous); }

int lsm_source_open(int owner, int memory_class, const char * path, char * err, int err_len) {
    return lsm::guarded(err, err_len, [&] { return lsm::open_source(owner, memory_class, path); });
}

int lsm_source_bind(int owner, int memory_class, char * err, int err_len) {
    return lsm::guarded(err, err_len, [&] { return lsm::bind_sources(owner, memory_class); });
}

int lsm_device_release(int owner, int classes, char * err, int err_len) {
    return lsm::guarded(err, err_len, [&] { return lsm::release(owner, classes); });
}

int lsm_device_restore(int owner, int classes, char * err, int err_len) {
    return lsm::guarded(err, err_len, [&] { return lsm::restore(owner, classes); });
}

int lsm_device_is_released(int owner, int classes) { return lsm::Ledger::instance().any_released(owner, classes) ? 1 : 0; }

void lsm_device_bytes(int owner, int classes, uint64_t * out) {
    const lsm::Bytes bytes = lsm::Ledger::instance().bytes(owner, classes);
    out[0] = bytes.device;
    out[1] = bytes.released;
    out[2] = bytes.host;
    out[3] = bytes.file;
    out[4] = bytes.pinned;
    out[5] = bytes.registered;
}

uint64_t lsm_device_peak(int owner, int restart) { return lsm::meter_peak(owner, restart != 0); }

int lsm_device_allocation_failed(void) { return lsm::take_allocation_failure() ? 1 : 0; }

void lsm_device_watch_context(int owner, struct llama_context * ctx) { lsm::watch_context(owner, ctx); }

void lsm_device_unwatch_context(struct llama_context * ctx) { lsm::unwatch_context(ctx); }

void lsm_device_forget(int owner) {
    lsm::Ledger::instance().forget_sources(owner, ~0);
    lsm::meter_forget(owner);
}

void lsm_device_abandon(int owner, int classes) {
    for (lsm::Entry * entry : lsm::Ledger::instance().entries(owner, classes)) ggml_backend_buffer_free(entry->shell);
    lsm::Ledger::instance().forget_sources(owner, classes);
}

void lsm_device_fail_at(int fault_point, int n) { lsm::arm_fault(fault_point, n); }

void lsm_device_let_cpu_buffers_move(int yes) { lsm::Ledger::instance().let_cpu_buffers_move(yes != 0); }

void lsm_device_reach_cpu_by_engine(int yes) { lsm::Ledger::instance().reach_cpu_by_engine(yes != 0); }

}  // extern "C"
