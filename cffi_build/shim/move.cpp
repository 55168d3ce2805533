// Release and restore: the order of steps that makes each of them all or nothing.
#include "move.hpp"
#include "backends.hpp"
#include "copies.hpp"
#include "engine_copies.hpp"
#include "faults.hpp"
#include "meter.hpp"
#include "rebase.hpp"

#include <algorithm>
#include <set>

namespace lsm {
namespace {

constexpr int releasable_classes = LSM_CLASS_WEIGHTS | LSM_CLASS_KV | LSM_CLASS_COMPUTE | LSM_CLASS_ENCODER | LSM_CLASS_ADAPTERS;

Status busy(int owner) { return Status::error(LSM_E_BUSY, "another release or restore of owner " + std::to_string(owner) + " is running"); }

bool stays(const Entry & entry) {
    return entry.provider && entry.provider->keeps_compute && entry.shell->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE;
}

std::vector<Entry *> entries_where(int owner, int classes, bool resident) {
    auto entries = Ledger::instance().entries(owner, classes & releasable_classes);
    const auto is_other = [&](const Entry * entry) { return entry->resident != resident || stays(*entry); };
    entries.erase(std::remove_if(entries.begin(), entries.end(), is_other), entries.end());
    return entries;
}

Status all_movable(const std::vector<Entry *> & entries) {
    for (const Entry * entry : entries) {
        if (!entry->provider) {
            return Status::error(LSM_E_NOT_MOVABLE, std::string("buffers of type ") + ggml_backend_buffer_name(entry->shell) +
                                                        " cannot be released: load the model without extra buffer types");
        }
    }
    return {};
}

Status sources_unchanged(const std::vector<Entry *> & entries) {
    std::set<const Source *> sources;
    for (const Entry * entry : entries) {
        for (const auto & part : entry->from_file) sources.insert(part.span.source);
    }
    for (const Source * source : sources) {
        if (auto status = source->unchanged(); !status.ok()) return status;
    }
    return {};
}

bool take(Entry & entry) {
    if (fault_now(LSM_FAULT_MAP) || !take_memory(entry)) return false;
    meter_taken(entry.owner, entry.region.size_bytes);
    return true;
}

bool give_back(Entry & entry) {
    if (!give_back_memory(entry)) return false;
    meter_given_back(entry.owner, entry.region.size_bytes);
    return true;
}

// Takes all the memory, or none of it.
Status take_all(const std::vector<Entry *> & entries) {
    for (size_t i = 0; i < entries.size(); i++) {
        if (take(*entries[i])) continue;
        for (size_t j = 0; j < i; j++) give_back(*entries[j]);
        return Status::error(LSM_E_NO_MEMORY, "the device has no room for " + std::to_string(entries[i]->region.size_bytes) + " bytes");
    }
    return {};
}

Status fill_all(const std::vector<Entry *> & entries) {
    for (Entry * entry : entries) {
        if (auto status = fill(*entry); !status.ok()) return status;
    }
    return sources_unchanged(entries);  // a file that was rewritten under our reads
}

}  // namespace

Status release(int owner, int classes) {
    OwnerCall call(owner);
    if (!call.entered) return busy(owner);
    const auto entries = entries_where(owner, classes, true);
    if (auto status = all_movable(entries); !status.ok()) return status;
    if (!entries.empty()) synchronize_contexts(owner);
    for (Entry * entry : entries) {
        if (auto status = save(*entry); !status.ok()) {
            for (Entry * saved : entries) drop_saved(*saved);
            return status;
        }
    }
    for (Entry * entry : entries) {
        // A refusal here (the kernel's limit of mappings) leaves this buffer and those after it resident and whole.
        if (!give_back(*entry)) {
            for (Entry * rest : entries) if (rest->resident) drop_saved(*rest);
            return Status::error(LSM_E_FAILED, "the device did not take back " + std::to_string(entry->region.size_bytes) + " bytes: try again");
        }
        Ledger::instance().mark_released(*entry);
    }
    if (classes & LSM_CLASS_COMPUTE) renew_backends(owner);
    return {};
}

Status restore(int owner, int classes) {
    OwnerCall call(owner);
    if (!call.entered) return busy(owner);
    const auto entries = entries_where(owner, classes, false);
    if (auto status = sources_unchanged(entries); !status.ok()) return status;
    if (auto status = take_all(entries); !status.ok()) return status;
    if (auto status = fill_all(entries); !status.ok()) {
        for (Entry * entry : entries) give_back(*entry);
        return status;
    }
    for (Entry * entry : entries) {
        Ledger::instance().mark_resident(*entry);
        drop_saved(*entry);  // only now: until here every copy could still be needed
    }
    if (std::any_of(entries.begin(), entries.end(), [](const Entry * entry) { return entry->provider->moves(); })) forget_graphs(owner);
    return {};
}

Status prepare(int owner, int classes) {
    OwnerCall call(owner);
    if (!call.entered) return busy(owner);
    for (Entry * entry : entries_where(owner, classes, true)) {
        const bool live = !entry->bound && entry->shell->usage != GGML_BACKEND_BUFFER_USAGE_COMPUTE;
        if (!live || !entry->provider || !entry->provider->engine || entry->copy.pinning) continue;
        if (auto status = prepare_room(*entry); !status.ok()) return status;
    }
    return {};
}

void wait_for_room(int owner, int classes) {
    for (Entry * entry : Ledger::instance().entries(owner, classes)) {
        if (entry->copy.pinning) entry->copy.pinning->wait();
    }
}

}  // namespace lsm
