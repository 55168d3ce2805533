#include "staging.hpp"
#include "pinned.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

namespace lsm {
namespace {

constexpr size_t   block_bytes = 4u << 20;
constexpr unsigned max_threads = 8;

// One block for each thread of one call; calls take turns.
struct Blocks {
    std::mutex  mutex;
    HostCopy    memory;
    unsigned    n = 0;

    bool ready(const CopyEngine & engine) {
        if (n > 0) return true;
        const unsigned wanted = std::clamp(std::thread::hardware_concurrency(), 1u, max_threads);
        if (!memory.allocate_for_pinning(engine, wanted * block_bytes)) return false;
        memory.pinning->run();  // where it cannot be pinned the driver copies once more
        n = wanted;
        return true;
    }
    uint8_t * block(unsigned i) const { return memory.block.data() + i * block_bytes; }
};

Blocks & blocks() {
    static Blocks * blocks = new Blocks;  // never destroyed: the driver may be gone before our destructors run
    return *blocks;
}

Status no_blocks() { return Status::error(LSM_E_NO_MEMORY, "the host has no memory for the copy of device memory"); }
Status device_failed() { return Status::error(LSM_E_FAILED, "the device did not copy its memory"); }

struct Chunk {
    const StagedPart * part;
    size_t             part_index, done, size_bytes;

    size_t offset_bytes() const { return part->offset_bytes + done; }
    Status load(uint8_t * to) const {
        if (!part->host) return part->span.source->read(part->span.offset_bytes + done, to, size_bytes);
        std::memcpy(to, part->host + done, size_bytes);
        return {};
    }
};

std::vector<Chunk> chunks_of(const std::vector<StagedPart> & parts) {
    std::vector<Chunk> chunks;
    for (size_t i = 0; i < parts.size(); i++) {
        for (size_t done = 0; done < parts[i].size_bytes; done += block_bytes) {
            chunks.push_back({ &parts[i], i, done, std::min(block_bytes, parts[i].size_bytes - done) });
        }
    }
    return chunks;
}

// Calls `body(chunk, block)` for each chunk, on several threads; the first error ends it.
Status for_each_chunk(const CopyEngine & engine, const std::vector<StagedPart> & parts, const std::function<Status(const Chunk &, uint8_t *)> & body) {
    const auto chunks = chunks_of(parts);
    if (chunks.empty()) return {};
    auto & pool = blocks();
    std::lock_guard lock(pool.mutex);
    if (!pool.ready(engine)) return no_blocks();
    std::atomic<size_t> next = 0;
    std::mutex          first_mutex;
    Status              first;
    auto work = [&](unsigned i) {
        for (size_t at; (at = next++) < chunks.size();) {
            auto status = body(chunks[at], pool.block(i));
            if (status.ok()) continue;
            std::lock_guard first_lock(first_mutex);
            if (first.ok()) first = std::move(status);
            next = chunks.size();
        }
    };
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < std::min<size_t>(pool.n, chunks.size()); i++) threads.emplace_back(work, i);
    work(0);
    for (auto & thread : threads) thread.join();
    return first;
}

}  // namespace

bool prepare_staging(const CopyEngine & engine) {
    std::lock_guard lock(blocks().mutex);
    return blocks().ready(engine);
}

Status staged_write(const CopyEngine & engine, const Region & region, const std::vector<StagedPart> & parts) {
    return for_each_chunk(engine, parts, [&](const Chunk & chunk, uint8_t * block) {
        if (auto status = chunk.load(block); !status.ok()) return status;
        return engine.write(region, { { chunk.offset_bytes(), block, chunk.size_bytes } }, false) ? Status{} : device_failed();
    });
}

Status staged_read(const CopyEngine & engine, const Region & region, const std::vector<StagedPart> & parts) {
    return for_each_chunk(engine, parts, [&](const Chunk & chunk, uint8_t * block) {
        if (!engine.read(region, { { chunk.offset_bytes(), block, chunk.size_bytes } })) return device_failed();
        std::memcpy(chunk.part->host + chunk.done, block, chunk.size_bytes);
        return Status{};
    });
}

Status staged_compare(const CopyEngine & engine, const Region & region, const std::vector<StagedPart> & parts, std::vector<bool> & same) {
    std::vector<std::atomic<bool>> differs(parts.size());
    auto status = for_each_chunk(engine, parts, [&](const Chunk & chunk, uint8_t * block) {
        thread_local std::vector<uint8_t> file(block_bytes);
        if (auto loaded = chunk.load(file.data()); !loaded.ok()) return loaded;
        if (!engine.read(region, { { chunk.offset_bytes(), block, chunk.size_bytes } })) return device_failed();
        if (std::memcmp(block, file.data(), chunk.size_bytes) != 0) differs[chunk.part_index] = true;
        return Status{};
    });
    same.clear();
    for (const auto & differs_here : differs) same.push_back(!differs_here);
    return status;
}

}  // namespace lsm
