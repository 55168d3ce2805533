// Device memory that comes and goes: release and restore, in place, what a loaded llama.cpp model holds on its device.
//
// Where the device can keep addresses they never change: a released buffer keeps its reserved range, so tensors, cached graphs and
// llama.cpp's own pointers stay valid and only the memory underneath is given back. Elsewhere (Vulkan) a restored buffer is a new one:
// tensors are moved, and the contexts of the owner forget the graph that they keep.
//
// Rules for the caller:
//   * lsm_device_install() comes before the first model or context.
//   * An owner is a positive number of the caller's choice, one per model. Buffers made while a scope names an owner belong to it;
//     buffers made without a scope are not ours and are left alone.
//   * The calls that move an owner's memory come from one thread at a time, the one that may also free its buffers, and never while a
//     graph of this owner runs (llama_synchronize first). Different owners do not disturb each other. lsm_device_is_released() and
//     lsm_device_bytes() may be called from any thread.
//   * Every function that can fail returns 0 or a negative LSM_E_ code and writes a sentence into `err` (always terminated).
#pragma once
#include "llama.h"
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

enum lsm_memory_class {
    LSM_CLASS_AUTO     = 0,  // in a scope: weights, KV or compute, by what the buffer turns out to be
    LSM_CLASS_WEIGHTS  = 1,
    LSM_CLASS_KV       = 2,
    LSM_CLASS_COMPUTE  = 4,
    LSM_CLASS_ENCODER  = 8,
    LSM_CLASS_ADAPTERS = 16,
    LSM_CLASS_OTHER    = 32, // output rows: read by the caller at any time, hence never released
};

enum lsm_error {
    LSM_OK                = 0,
    LSM_E_NO_MEMORY       = -101, // the device (or the host, for copies) has no room; nothing changed
    LSM_E_SOURCE_CHANGED  = -102, // the file is not the one that was loaded; nothing changed
    LSM_E_READ            = -103, // the file could not be read to the end; nothing changed
    LSM_E_RELEASED        = -104, // the memory that this call needs is released; restore first
    LSM_E_BUSY            = -105, // another call for the same owner is running
    LSM_E_ARGUMENT        = -106,
    LSM_E_NOT_MOVABLE     = -107, // a buffer of a kind that cannot be released on this build
    LSM_E_FAILED          = -108,
    LSM_E_SPILL           = -109, // the spill folder cannot take released memory or give it back; nothing changed
};

enum lsm_fault_point {
    LSM_FAULT_MAP        = 0, // the device has no room
    LSM_FAULT_FILL       = 1, // a model's file cannot be read
    LSM_FAULT_SAVE       = 2, // no room for copies, in memory or on the disk
    LSM_FAULT_WRITE_BACK = 3, // the disk lost bytes that it had taken
    LSM_FAULT_UNNAMED    = 4, // the file system has no files without a name
};

// Hooks the buffer types and the graph entry of every device of a kind that is known here. Later calls add nothing and return 0.
int lsm_device_install(char * err, int err_len);

// The folder for copies of device memory that is the host's own RAM (the CPU's): files without a name, whose bytes are no memory of this
// process. It is made, for this user alone, when first needed. Null, as at first: such copies stay in host memory, and nothing is saved by them.
void lsm_device_spill_dir(const char * path);

enum lsm_shadow {
    LSM_SHADOW_FILE     = 0, // the model's own file; pinned as far as `max_bytes` permits
    LSM_SHADOW_PINNED   = 1, // pinned memory, made at load time
    LSM_SHADOW_PAGEABLE = 2, // ordinary memory, made at load time
};

// What weights that are bound from now on come back from, and how much host memory copies of them, pinned files and pinned room for live
// memory may take in this process. Where `max_bytes` is reached, the file is read through small pinned blocks.
void lsm_device_shadow(int kind, uint64_t max_bytes);

// 1 if memory of this device can leave it and come back, else 0.
int lsm_device_can_release(ggml_backend_dev_t device);

// 1: what the owner allocates in the host's own RAM from now on is left alone, since it is another device that is shared. 0: as at first.
void lsm_device_let_host_stay(int owner, int yes);

// Sets this thread's scope; returns the previous one for lsm_device_scope_restore(). Owner 0 means no scope.
int lsm_device_scope(int owner, int memory_class);
void lsm_device_scope_restore(int previous);

// The GGUF file at `path` is the copy of the owner's weights of this class (WEIGHTS, ENCODER or ADAPTERS). Open before the load, bind after it;
// a split model opens each of its files. Bind verifies the bytes where the layout permits and keeps copies of what the files do not hold.
int lsm_source_open(int owner, int memory_class, const char * path, char * err, int err_len);
int lsm_source_bind(int owner, int memory_class, char * err, int err_len);

// `classes` are bits of lsm_memory_class. Both are idempotent. Restore is atomic: on any failure all of these classes are as before, their copies whole.
int lsm_device_release(int owner, int classes, char * err, int err_len);
int lsm_device_restore(int owner, int classes, char * err, int err_len);

// 1 if any buffer of these classes is released, else 0.
int lsm_device_is_released(int owner, int classes);

// Makes pinned room for copies of live memory of these classes, in the background. Without it a release copies into ordinary memory.
int lsm_device_prepare(int owner, int classes, char * err, int err_len);

// Returns when as much of that room is made as will be made. Nothing else needs to wait for it.
void lsm_device_wait_for_room(int owner, int classes);

// out[0] bytes on the device now, out[1] bytes released; copies: out[2] bytes in ordinary host memory, out[3] bytes for which a file is the
// copy, out[4] bytes of pinned memory; out[5] bytes of the files that are pinned.
void lsm_device_bytes(int owner, int classes, uint64_t * out);

// The most bytes that the owner had on the device at one time, all classes together, since the last call with `restart`.
uint64_t lsm_device_peak(int owner, int restart);

// 1 if an allocation for a scope of this thread has failed since the last call, else 0. Tells why llama.cpp returned NULL.
int lsm_device_allocation_failed(void);

// From the making of a context to just before it is freed: a restore that moves buffers must reach the owner's contexts.
void lsm_device_watch_context(int owner, struct llama_context * ctx);
void lsm_device_unwatch_context(struct llama_context * ctx);

// After the owner's model and contexts are freed: closes its files. Its buffers have left the ledger by themselves.
void lsm_device_forget(int owner);

// After a load of these classes that failed inside llama.cpp and leaked what it had made (a constructor that threw): frees the buffers, which
// nobody can name any more, and closes the files.
void lsm_device_abandon(int owner, int classes);

// For tests: the n-th (from 0) passage of this point from now on fails, once. Negative n disarms it.
void lsm_device_fail_at(int fault_point, int n);

// For tests: the CPU's buffers that are made from now on come back at other addresses (1), or at the same ones (0, as at first).
void lsm_device_let_cpu_buffers_move(int yes);

// For tests: the CPU's buffers that are made from now on are reached through a copy engine, as a GPU's are (1), or directly (0, as at first).
void lsm_device_reach_cpu_by_engine(int yes);

#ifdef __cplusplus
}
#endif
