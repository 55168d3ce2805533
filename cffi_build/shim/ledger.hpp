// Which buffers exist, whose they are, which tensors live in them, and where their memory is.
#pragma once
#include "host_block.hpp"
#include "provider.hpp"
#include "sources.hpp"
#include "spill_file.hpp"
#include "status.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

namespace lsm {

// Bytes of one tensor that its file cannot give back: kept for the life of the buffer.
struct KeptTensor {
    size_t    offset_bytes;
    HostBlock bytes;
};

// Pages that were not all zero when the buffer was released, one after the other in `bytes` or in `file`.
struct KeptPages {
    using Run = Span;
    std::vector<Run> runs;
    HostBlock        bytes;
    SpillFile        file;
    bool             valid = false;
};

struct FileTensor {
    ggml_tensor * tensor;
    FileSpan      span;
};

struct Entry {
    ggml_backend_buffer_t shell    = nullptr;  // llama.cpp holds this pointer: it lives from allocation to free
    const Provider *      provider = nullptr;  // null: a buffer type that makes its own memory; counted, never moved
    Region                region;
    ggml_backend_buffer_type_t type = nullptr;  // the hooked type that allocated it, and its own function
    AllocBuffer           original  = nullptr;
    int                   owner       = 0;
    int                   scope_class = LSM_CLASS_AUTO;
    std::atomic<bool>     resident    = true;

    ggml_backend_buffer_i inner = {};  // the backend's functions
    ggml_backend_buffer_i live  = {};  // the same with our wrappers in front: what a resident shell shows

    std::vector<ggml_tensor *> tensors;  // leaves only; views share their source's memory
    std::vector<ggml_tensor *> views;    // made with the buffer, as lasting as the leaves; where it moves they move too
    bool                       complete = false;  // views that come later are a graph's, and go with it

    bool                    bound = false;  // the two lists below say how the weights come back
    std::vector<FileTensor> from_file;
    std::vector<KeptTensor> kept_tensors;
    KeptPages               kept_pages;
    HostCopy                copy;  // of the whole buffer once it is bound, else room for kept_pages; set through Ledger::set_copy

    // What the lists above amount to, for readers on other threads.
    std::atomic<uint64_t> host_bytes = 0;
    std::atomic<uint64_t> file_bytes = 0;

    int  memory_class() const;
    bool weights() const { return shell->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS; }
    void count();  // after a change of the lists
};

struct Bytes {
    uint64_t device = 0, released = 0;
    uint64_t host = 0, pinned = 0;      // copies in our own memory
    uint64_t file = 0, registered = 0;  // what files can give back; how much of the files is pinned
};

class Ledger {
public:
    static Ledger & instance();

    Status install();

    // For the owner's own thread: the pointers are valid until that thread frees a buffer.
    std::vector<Entry *> entries(int owner, int classes);

    // For any thread.
    Bytes bytes(int owner, int classes);
    bool  any_released() const;
    bool  any_released(int owner, int classes);

    bool hooks(ggml_backend_buffer_type_t);  // whether buffers of this type are entered here

    void mark_released(Entry &);
    void mark_resident(Entry &);
    void drop_kept_pages(ggml_backend_buffer_t);
    void set_copy(Entry &, HostCopy &&);
    const Region * region(ggml_backend_buffer_t);

    // Whether the owner's buffers in the host's own RAM are left alone: it has another device, and that is what is shared.
    void let_host_stay(int owner, bool yes);

    // For tests: the CPU's buffers that are made from now on move when they come back.
    void let_cpu_buffers_move(bool yes) { cpu_buffers_move_ = yes; }

    // For tests: they are reached through a copy engine, as a device's own memory is.
    void reach_cpu_by_engine(bool yes) { cpu_by_engine_ = yes; }

    std::vector<std::shared_ptr<Source>> sources(int owner, int memory_class);
    void add_source(int owner, std::shared_ptr<Source>);
    void forget_sources(int owner, int classes);

    bool begin(int owner);  // false while another call for this owner runs
    void end(int owner);

private:
    friend struct BufferHooks;

    struct TypeHook {
        AllocBuffer      original;
        const Provider * provider;  // null for types that allocate through another hooked type
        int              device;
    };

    Entry * find(ggml_backend_buffer_t);
    template <typename Visit> void visit(int owner, int classes, Visit &&);
    void hook_type(ggml_backend_buffer_type_t, const Provider *, int device);
    void hook_device(ggml_backend_dev_t, const Provider &, int index);
    bool stays(const TypeHook &, int owner);

    std::mutex mutex_;
    bool       installed_ = false;
    std::atomic<bool> cpu_buffers_move_ = false, cpu_by_engine_ = false;
    std::unordered_map<ggml_backend_buffer_t, std::unique_ptr<Entry>> entries_;
    std::unordered_map<ggml_backend_buffer_type_t, TypeHook>         types_;
    std::unordered_map<int, std::vector<std::shared_ptr<Source>>>    sources_;
    std::set<int> busy_, host_stays_;
};

struct OwnerCall {
    explicit OwnerCall(int owner) : owner_(owner), entered(Ledger::instance().begin(owner)) {}
    ~OwnerCall() { if (entered) Ledger::instance().end(owner_); }
    OwnerCall(const OwnerCall &) = delete;
    OwnerCall & operator=(const OwnerCall &) = delete;
private:
    int owner_;
public:
    const bool entered;
};

// Whether buffers of this device can be hooked, and so can leave it.
bool can_release(ggml_backend_dev_t);

// Whether its backend objects keep device memory of their own (provider.hpp).
bool backend_gathers_memory(ggml_backend_dev_t);

// The thread's scope: owner in the upper bits, class in the lower eight.
int  exchange_scope(int packed);
int  pack_scope(int owner, int memory_class);
int  scope_owner();

// True once after an allocation in a scope of this thread failed.
bool take_allocation_failure();

// What the shell of a released buffer shows (released.cpp).
extern const ggml_backend_buffer_i released_interface;
bool is_released(ggml_backend_buffer_t);

void hook_graph_compute(ggml_backend_dev_t);  // gate.cpp

}  // namespace lsm
