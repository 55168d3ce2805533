#include "lsm_measure.h"
#include "ledger.hpp"

#include "llama-ext.h"

extern "C" int lsm_measure(const struct llama_context * ctx, uint64_t * out, char * err, int err_len) {
    return lsm::guarded(err, err_len, [&] {
        out[0] = out[1] = out[2] = 0;
        for (const auto & [type, size] : llama_get_memory_breakdown(ctx)) {
            if (!lsm::Ledger::instance().hooks(type)) continue;
            out[0] += size.model;
            out[1] += size.context;
            out[2] += size.compute;
        }
        return lsm::Status{};
    });
}
