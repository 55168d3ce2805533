// Memory under a buffer, taken and given back. Where the device keeps addresses (a provider with `map`), only the memory changes. Elsewhere
// the buffer is allocated anew: the shell that llama.cpp holds gets the new one's context, and whatever points into it is moved.
#pragma once
#include "ledger.hpp"

struct llama_context;

namespace lsm {

// A new buffer's shell, its region filled in; null if the device has no room.
ggml_backend_buffer_t allocate(Entry &, size_t size_bytes);

// Fresh memory (all zero, but for compute buffers) under a released buffer; false if the device has no room. The shell goes on showing the
// released interface.
bool take_memory(Entry &);

// The memory goes back to the device; false if it does not take it.
bool give_back_memory(Entry &);

// The last of it, with the buffer itself.
void free_memory(Entry &);

// Contexts of an owner keep the graph of their last batch, to run it again. After a move its addresses are wrong: it must be forgotten.
void watch_context(int owner, llama_context *);
void unwatch_context(llama_context *);
void forget_graphs(int owner);

// Waits until the devices have done all that the owner's contexts asked for.
void synchronize_contexts(int owner);

}  // namespace lsm
