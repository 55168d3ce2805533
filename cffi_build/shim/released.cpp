// What a released buffer answers. Reads have no right answer and mean that a caller forgot to restore: they end the process
// with a clear message rather than hand out garbage. The callers in this shim and in lsm.native ask first, so nobody should get here.
#include "ledger.hpp"

#include <cstdio>
#include <cstdlib>

namespace lsm {
namespace {

[[noreturn]] void refuse(const char * what, ggml_backend_buffer_t buffer, const char * tensor_name) {
    std::fprintf(stderr, "lsm: %s of released device memory (buffer type %s, %zu bytes, tensor %s): restore it first\n", what,
                 ggml_backend_buffer_name(buffer), buffer->size, tensor_name);
    std::abort();
}

// Allocating a graph in a released compute buffer only moves pointers; the gate refuses to run it.
ggml_status init_tensor(ggml_backend_buffer_t, ggml_tensor *) { return GGML_STATUS_SUCCESS; }

void set_tensor(ggml_backend_buffer_t buffer, ggml_tensor * tensor, const void *, size_t, size_t) {
    if (buffer->usage != GGML_BACKEND_BUFFER_USAGE_COMPUTE) refuse("a write", buffer, tensor->name);
}

void memset_tensor(ggml_backend_buffer_t buffer, ggml_tensor * tensor, uint8_t, size_t, size_t) { refuse("a write", buffer, tensor->name); }
void get_tensor(ggml_backend_buffer_t buffer, const ggml_tensor * tensor, void *, size_t, size_t) { refuse("a read", buffer, tensor->name); }
bool cpy_tensor(ggml_backend_buffer_t buffer, const ggml_tensor *, ggml_tensor * to) { refuse("a copy", buffer, to->name); }

// Clearing the KV cache while it is released: there is nothing to keep any more, and a restore without copies gives zeroes.
void clear(ggml_backend_buffer_t buffer, uint8_t value) {
    if (value != 0 || buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS) refuse("a clear", buffer, "-");
    Ledger::instance().drop_kept_pages(buffer);
}

}  // namespace

const ggml_backend_buffer_i released_interface = {
    /* free_buffer   */ nullptr,
    /* get_base      */ nullptr,
    /* init_tensor   */ init_tensor,
    /* memset_tensor */ memset_tensor,
    /* set_tensor    */ set_tensor,
    /* get_tensor    */ get_tensor,
    /* set_tensor_2d */ nullptr,
    /* get_tensor_2d */ nullptr,
    /* cpy_tensor    */ cpy_tensor,
    /* clear         */ clear,
    /* reset         */ nullptr,
};

bool is_released(ggml_backend_buffer_t buffer) { return buffer && buffer->iface.set_tensor == set_tensor; }

}  // namespace lsm
