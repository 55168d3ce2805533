#include "copies.hpp"
#include "engine_copies.hpp"
#include "faults.hpp"

#include <algorithm>
#include <cstring>

namespace lsm {
namespace {

constexpr size_t page_bytes  = 4096;
constexpr size_t block_bytes = 1u << 20;
static_assert(block_bytes % page_bytes == 0);

Status no_host_memory(size_t size_bytes) {
    return Status::error(LSM_E_NO_MEMORY, "the host has no room for a copy of " + std::to_string(size_bytes) + " bytes of device memory");
}

// A byte tensor over the whole buffer: lets the backend copy any range.
ggml_tensor raw_view(const Entry & entry) {
    ggml_tensor view = {};
    view.type   = GGML_TYPE_I8;
    view.buffer = entry.shell;
    view.data   = entry.region.address;
    return view;
}

void raw_read(const Entry & entry, size_t offset, void * to, size_t n) {
    if (entry.provider->host_memory) {
        std::memcpy(to, static_cast<const char *>(entry.region.address) + offset, n);
    } else {
        const ggml_tensor view = raw_view(entry);
        entry.inner.get_tensor(entry.shell, &view, to, offset, n);
    }
}

void raw_write(const Entry & entry, size_t offset, const void * from, size_t n) {
    if (entry.provider->host_memory) {
        std::memcpy(static_cast<char *>(entry.region.address) + offset, from, n);
    } else {
        ggml_tensor view = raw_view(entry);
        entry.inner.set_tensor(entry.shell, &view, from, offset, n);
    }
}

// The backend stores the file's bytes as they are (a repacked buffer cannot be read back and says so by having no get_tensor).
bool plain_layout(const Entry & entry) { return entry.inner.get_tensor != nullptr; }

bool by_engine(const Entry & entry) { return entry.provider->engine && plain_layout(entry); }

size_t offset_of(const Entry & entry, const ggml_tensor * tensor) {
    return static_cast<size_t>(static_cast<const char *>(tensor->data) - static_cast<const char *>(entry.region.address));
}

bool all_zero(const uint8_t * bytes, size_t n) { return n == 0 || (bytes[0] == 0 && std::memcmp(bytes, bytes + 1, n - 1) == 0); }

// ---- weights

Status same_as_file(const Entry & entry, const FileTensor & part, std::vector<uint8_t> & file, std::vector<uint8_t> & memory, bool & same) {
    const size_t start = offset_of(entry, part.tensor);
    same = true;
    for (uint64_t done = 0; done < part.span.size_bytes && same; done += block_bytes) {
        const size_t n = std::min<uint64_t>(block_bytes, part.span.size_bytes - done);
        if (auto status = part.span.source->read(part.span.offset_bytes + done, file.data(), n); !status.ok()) return status;
        raw_read(entry, start + done, memory.data(), n);
        same = std::memcmp(file.data(), memory.data(), n) == 0;
    }
    return {};
}

Status keep_tensor(Entry & entry, const ggml_tensor * tensor) {
    const size_t size = ggml_backend_buffer_get_alloc_size(entry.shell, tensor);
    KeptTensor kept{ offset_of(entry, tensor), {} };
    if (!kept.bytes.allocate(size)) return no_host_memory(size);
    raw_read(entry, kept.offset_bytes, kept.bytes.data(), size);
    entry.kept_tensors.push_back(std::move(kept));
    return {};
}

Status fill_from_file(const Entry & entry, const FileTensor & part, HostBlock & staging) {
    const auto & [tensor, span] = part;
    if (entry.provider->host_memory && plain_layout(entry)) return span.source->read(span.offset_bytes, tensor->data, span.size_bytes);
    // The layout on the device is made by the backend from whole tensors, exactly as at load time.
    if (staging.size_bytes() < span.size_bytes && !staging.allocate(span.size_bytes)) return no_host_memory(span.size_bytes);
    if (auto status = span.source->read(span.offset_bytes, staging.data(), span.size_bytes); !status.ok()) return status;
    entry.inner.set_tensor(entry.shell, tensor, staging.data(), 0, span.size_bytes);
    return {};
}

// A copy of the whole buffer, if the bound has room for it.
bool keep_whole(Entry & entry) {
    HostCopy copy;
    if (!copy.allocate(entry.region.size_bytes)) return false;
    raw_read(entry, 0, copy.block.data(), entry.region.size_bytes);
    Ledger::instance().set_copy(entry, std::move(copy));
    entry.bound = true;
    return true;
}

Status fill_weights(Entry & entry) {
    if (const auto & whole = entry.copy.block; whole.size_bytes() > 0) {
        raw_write(entry, 0, whole.data(), whole.size_bytes());
        return {};
    }
    HostBlock staging;
    for (const auto & part : entry.from_file) {
        if (auto status = fill_from_file(entry, part, staging); !status.ok()) return status;
    }
    for (const auto & kept : entry.kept_tensors) raw_write(entry, kept.offset_bytes, kept.bytes.data(), kept.bytes.size_bytes());
    return {};
}

// ---- live memory (KV, recurrent state, ...)

void add_page(std::vector<KeptPages::Run> & runs, size_t offset, size_t n) {
    if (!runs.empty() && runs.back().offset_bytes + runs.back().size_bytes == offset) {
        runs.back().size_bytes += n;
    } else {
        runs.push_back({ offset, n });
    }
}

// llama.cpp zeroes its caches when it makes them, so pages that are still zero were never used: whatever the layout
// (transposed V, sliding window, recurrent state), the cost follows the use.
std::vector<KeptPages::Run> used_runs(const Entry & entry) {
    std::vector<KeptPages::Run> runs;
    std::vector<bool>    touched;
    std::vector<uint8_t> staging;
    if (entry.provider->touched_pages) touched = entry.provider->touched_pages(entry.region);
    if (!entry.provider->host_memory) staging.resize(block_bytes);
    const size_t size = entry.region.size_bytes;
    for (size_t block = 0; block < size; block += block_bytes) {
        const size_t block_size = std::min(block_bytes, size - block);
        const uint8_t * bytes = static_cast<const uint8_t *>(entry.region.address) + block;
        if (!entry.provider->host_memory) {
            raw_read(entry, block, staging.data(), block_size);
            bytes = staging.data();
        }
        for (size_t page = 0; page < block_size; page += page_bytes) {
            const size_t n = std::min(page_bytes, block_size - page);
            if (!touched.empty() && !touched[(block + page) / page_bytes]) continue;
            if (!all_zero(bytes + page, n)) add_page(runs, block + page, n);
        }
    }
    return runs;
}

// Calls `body(run, at)` for each run, `at` being where its bytes stand among those kept.
template <typename Body> Status for_each_run(const KeptPages & kept, Body && body) {
    size_t at = 0;
    for (const auto & run : kept.runs) {
        if (auto status = body(run, at); !status.ok()) return status;
        at += run.size_bytes;
    }
    return {};
}

Status save_to_memory(const Entry & entry, size_t size_bytes, KeptPages & kept) {
    if (fault_now(LSM_FAULT_SAVE) || !kept.bytes.allocate(size_bytes)) return no_host_memory(size_bytes);
    return for_each_run(kept, [&](const auto & run, size_t at) {
        raw_read(entry, run.offset_bytes, kept.bytes.data() + at, run.size_bytes);
        return Status{};
    });
}

Status save_to_file(const Entry & entry, const std::string & folder, size_t size_bytes, KeptPages & kept) {
    if (size_bytes == 0) return {};
    if (auto status = SpillFile::create(folder, size_bytes, kept.file); !status.ok()) return status;
    return for_each_run(kept, [&](const auto & run, size_t at) {
        return kept.file.write(at, static_cast<const char *>(entry.region.address) + run.offset_bytes, run.size_bytes);
    });
}

Status save_pages(Entry & entry) {
    KeptPages kept;
    kept.runs = used_runs(entry);
    size_t total = 0;
    for (const auto & run : kept.runs) total += run.size_bytes;
    const std::string folder = entry.provider->host_ram ? spill_folder() : "";
    auto status = folder.empty() ? save_to_memory(entry, total, kept) : save_to_file(entry, folder, total, kept);
    if (!status.ok()) return status;
    kept.valid       = true;
    entry.kept_pages = std::move(kept);
    entry.count();
    return {};
}

Status fill_pages(Entry & entry) {
    auto & kept = entry.kept_pages;
    if (!kept.file.is_open()) {
        return for_each_run(kept, [&](const auto & run, size_t at) {
            raw_write(entry, run.offset_bytes, kept.bytes.data() + at, run.size_bytes);
            return Status{};
        });
    }
    auto status = for_each_run(kept, [&](const auto & run, size_t at) {
        return kept.file.read(at, static_cast<char *>(entry.region.address) + run.offset_bytes, run.size_bytes);
    });
    return status.ok() ? kept.file.intact() : status;
}

}  // namespace

Status bind_to_sources(Entry & entry, const std::vector<std::shared_ptr<Source>> & sources) {
    if (by_engine(entry)) return bind_by_engine(entry, sources);
    const bool readable = entry.provider->host_memory || plain_layout(entry);
    if (shadow_kind() != LSM_SHADOW_FILE && readable && keep_whole(entry)) return {};
    std::vector<uint8_t> file(block_bytes), memory(block_bytes);
    for (ggml_tensor * tensor : entry.tensors) {
        FileTensor part{ tensor, {} };
        bool from_file = false;
        for (const auto & source : sources) {  // two adapters have tensors of the same names: the bytes tell
            from_file = source->find(tensor, part.span);
            if (from_file && plain_layout(entry)) {
                if (auto status = same_as_file(entry, part, file, memory, from_file); !status.ok()) return status;
            }
            if (from_file) break;
        }
        if (from_file) {
            entry.from_file.push_back(part);
        } else if (auto status = keep_tensor(entry, tensor); !status.ok()) {
            return status;
        }
    }
    entry.bound = true;
    entry.count();
    return {};
}

Status save(Entry & entry) {
    if (entry.shell->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE || entry.bound) return {};
    return by_engine(entry) ? save_by_engine(entry) : save_pages(entry);
}

Status fill(Entry & entry) {
    if (fault_now(LSM_FAULT_FILL)) return Status::error(LSM_E_READ, "a read failed on demand of a test");
    if (by_engine(entry)) return fill_by_engine(entry);
    if (entry.bound) return fill_weights(entry);
    return entry.kept_pages.valid ? fill_pages(entry) : Status{};
}

void drop_saved(Entry & entry) {
    entry.kept_pages = {};
    entry.count();
}

}  // namespace lsm
