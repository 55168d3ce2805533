// What moves directly between the device and pinned memory does so at once, all of it in flight together; the rest is staged.
#include "engine_copies.hpp"
#include "faults.hpp"
#include "staging.hpp"

#include <algorithm>
#include <string>

namespace lsm {
namespace {

Status no_host_memory(size_t size_bytes) {
    return Status::error(LSM_E_NO_MEMORY, "the host has no room for a copy of " + std::to_string(size_bytes) + " bytes of device memory");
}

Status device_failed() { return Status::error(LSM_E_FAILED, "the device did not copy its memory"); }

size_t offset_of(const Entry & entry, const ggml_tensor * tensor) {
    return static_cast<size_t>(static_cast<const char *>(tensor->data) - static_cast<const char *>(entry.region.address));
}

// What shall move between an entry's memory and the host, sorted by the way it takes.
struct Plan {
    const Entry &           entry;
    std::vector<Piece>      direct;
    std::vector<StagedPart> staged;

    // `in_range`: where the bytes are in the range that `pinning` is about (null: nowhere). `part`: the same, for the part that is not pinned.
    void add(const Pinning * pinning, size_t pinned_bytes, size_t in_range, const StagedPart & part) {
        if (pinning && in_range + part.size_bytes <= pinned_bytes) {
            pinning->add_pieces(part.offset_bytes, in_range, part.size_bytes, direct);
        } else {
            staged.push_back(part);
        }
    }

    Status write(bool zero_rest) {
        const auto & engine = *entry.provider->engine;
        std::sort(direct.begin(), direct.end(), [](const Piece & a, const Piece & b) { return a.offset_bytes < b.offset_bytes; });
        if (!engine.write(entry.region, direct, zero_rest)) return device_failed();
        return staged_write(engine, entry.region, staged);
    }

    Status read() {
        const auto & engine = *entry.provider->engine;
        if (!engine.read(entry.region, direct)) return device_failed();
        return staged_read(engine, entry.region, staged);
    }
};

// ---- weights

// True if the bound had room for the whole buffer.
bool keep_whole(Entry & entry, Status & status) {
    const auto & engine = *entry.provider->engine;
    const size_t size   = entry.region.size_bytes;
    HostCopy copy;
    if (shadow_kind() == LSM_SHADOW_PINNED) {
        if (!copy.allocate_for_pinning(engine, size)) return false;
        copy.pinning->run();
        if (copy.pinned_bytes() < size) return false;
    } else if (!copy.allocate(size)) {
        return false;
    }
    Plan plan{ entry, {}, {} };
    plan.add(copy.pinning.get(), copy.pinned_bytes(), 0, { 0, size, copy.block.data(), {} });
    status = plan.read();
    if (status.ok()) Ledger::instance().set_copy(entry, std::move(copy));
    return true;
}

Status keep_tensor(Entry & entry, const ggml_tensor * tensor) {
    const size_t size = ggml_backend_buffer_get_alloc_size(entry.shell, tensor);
    KeptTensor kept{ offset_of(entry, tensor), {} };
    if (!kept.bytes.allocate(size)) return no_host_memory(size);
    if (auto status = staged_read(*entry.provider->engine, entry.region, { { kept.offset_bytes, size, kept.bytes.data(), {} } }); !status.ok()) return status;
    entry.kept_tensors.push_back(std::move(kept));
    return {};
}

// Takes those of `tensors` out whose bytes are in the source.
Status bind_to_source(Entry & entry, const Source & source, std::vector<ggml_tensor *> & tensors) {
    std::vector<StagedPart>    parts;
    std::vector<ggml_tensor *> found, rest;
    for (ggml_tensor * tensor : tensors) {
        FileSpan span;
        if (source.find(tensor, span)) {
            parts.push_back({ offset_of(entry, tensor), span.size_bytes, nullptr, span });
            found.push_back(tensor);
        } else {
            rest.push_back(tensor);
        }
    }
    std::vector<bool> same;
    if (auto status = staged_compare(*entry.provider->engine, entry.region, parts, same); !status.ok()) return status;
    for (size_t i = 0; i < found.size(); i++) {
        if (same[i]) {
            entry.from_file.push_back({ found[i], parts[i].span });
        } else {
            rest.push_back(found[i]);
        }
    }
    tensors = std::move(rest);
    return {};
}

Status bind_to_files(Entry & entry, const std::vector<std::shared_ptr<Source>> & sources) {
    auto tensors = entry.tensors;
    for (const auto & source : sources) {
        if (auto status = bind_to_source(entry, *source, tensors); !status.ok()) return status;
    }
    for (const ggml_tensor * tensor : tensors) {
        if (auto status = keep_tensor(entry, tensor); !status.ok()) return status;
    }
    for (const auto & source : sources) source->pin(*entry.provider->engine);  // now, that it has just been read, it is in memory
    return {};
}

Status fill_weights(const Entry & entry) {
    Plan plan{ entry, {}, {} };
    const HostCopy & whole = entry.copy;
    if (whole.block.size_bytes() > 0) {
        plan.add(whole.pinning.get(), whole.pinned_bytes(), 0, { 0, entry.region.size_bytes, whole.block.data(), {} });
        return plan.write(false);
    }
    for (const auto & [tensor, span] : entry.from_file) {
        const Source & source = *span.source;
        plan.add(source.pinning(), source.pinned_bytes(), span.offset_bytes, { offset_of(entry, tensor), span.size_bytes, nullptr, span });
    }
    for (const auto & kept : entry.kept_tensors) plan.staged.push_back({ kept.offset_bytes, kept.bytes.size_bytes(), kept.bytes.data(), {} });
    return plan.write(true);  // the padding of quantized rows is read
}

// ---- live memory

// llama.cpp zeroes its caches when it makes them, so pages that are still zero were never used: whatever the layout, the cost follows the use.
std::vector<Span> used_runs(const Entry & entry) {
    std::vector<Span> runs;
    if (!entry.provider->engine->find_used(entry.region, runs)) return { { 0, entry.region.size_bytes } };
    if (!runs.empty()) {
        Span & last = runs.back();
        last.size_bytes = std::min(last.size_bytes, entry.region.size_bytes - last.offset_bytes);
    }
    return runs;
}

// The copy of live memory: in the room made for it, where there is one.
Plan plan_pages(const Entry & entry, const KeptPages & kept) {
    Plan plan{ entry, {}, {} };
    const HostCopy & room = entry.copy;
    const bool   in_room  = kept.bytes.size_bytes() == 0;
    uint8_t *    host     = in_room ? room.block.data() : kept.bytes.data();
    const size_t pinned   = in_room ? room.pinned_bytes() : 0;  // once: it grows meanwhile
    size_t at = 0;
    for (const auto & run : kept.runs) {
        // One run may be all of a large cache: what of it is pinned goes directly.
        const size_t first = std::min(run.size_bytes, pinned > at ? pinned - at : 0);
        if (first > 0) plan.add(room.pinning.get(), pinned, at, { run.offset_bytes, first, host + at, {} });
        if (first < run.size_bytes) plan.staged.push_back({ run.offset_bytes + first, run.size_bytes - first, host + at + first, {} });
        at += run.size_bytes;
    }
    return plan;
}

}  // namespace

Status bind_by_engine(Entry & entry, const std::vector<std::shared_ptr<Source>> & sources) {
    if (!prepare_staging(*entry.provider->engine)) return no_host_memory(entry.region.size_bytes);
    Status status;
    if (shadow_kind() == LSM_SHADOW_FILE || !keep_whole(entry, status)) status = bind_to_files(entry, sources);
    if (!status.ok()) return status;
    entry.bound = true;
    entry.count();
    return {};
}

Status save_by_engine(Entry & entry) {
    KeptPages kept;
    kept.runs = used_runs(entry);
    size_t total = 0;
    for (const auto & run : kept.runs) total += run.size_bytes;
    const bool in_room = total <= entry.copy.block.size_bytes();
    if (fault_now(LSM_FAULT_SAVE) || (!in_room && !kept.bytes.allocate(total))) return no_host_memory(total);
    if (auto status = plan_pages(entry, kept).read(); !status.ok()) return status;
    kept.valid       = true;
    entry.kept_pages = std::move(kept);
    entry.count();
    return {};
}

Status fill_by_engine(Entry & entry) {
    if (entry.bound) return fill_weights(entry);
    if (entry.kept_pages.valid) return plan_pages(entry, entry.kept_pages).write(true);
    if (entry.shell->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE) return {};
    return Plan{ entry, {}, {} }.write(true);  // it was cleared while it was away
}

Status prepare_room(Entry & entry) {
    if (!prepare_staging(*entry.provider->engine)) return no_host_memory(entry.region.size_bytes);
    HostCopy room;
    if (!room.allocate_for_pinning(*entry.provider->engine, entry.region.size_bytes)) return no_host_memory(entry.region.size_bytes);
    Ledger::instance().set_copy(entry, std::move(room));
    entry.copy.pinning->run_later();
    return {};
}

}  // namespace lsm
