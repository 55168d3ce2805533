#include "lsm_step.h"
#include "ledger.hpp"
#include "llama-context.h"
#include "sampler.hpp"

#include <cstring>
#include <string>
#include <vector>

using lsm::Status;

namespace {

constexpr int needed_classes = LSM_CLASS_WEIGHTS | LSM_CLASS_KV | LSM_CLASS_COMPUTE | LSM_CLASS_ADAPTERS;

// Compute buffers may be made anew inside a decode: they must find their owner.
class Scope {
public:
    explicit Scope(int owner) : previous_(lsm::exchange_scope(lsm::pack_scope(owner, LSM_CLASS_AUTO))) {}
    ~Scope() { lsm::exchange_scope(previous_); }
    Scope(const Scope &) = delete;
    Scope & operator=(const Scope &) = delete;
private:
    int previous_;
};

// llama_batch wants mutable pointers and one pointer per token; nothing is written through them.
class Batch {
public:
    Batch(int n, const int32_t * tokens, const int32_t * positions, const int32_t * sequences, const int8_t * outputs)
        : n_sequences_(n, 1), sequence_pointers_(n) {
        for (int i = 0; i < n; i++) sequence_pointers_[i] = const_cast<int32_t *>(sequences + i);
        batch_ = { n, const_cast<int32_t *>(tokens), nullptr, const_cast<int32_t *>(positions), n_sequences_.data(), sequence_pointers_.data(),
                   const_cast<int8_t *>(outputs) };
    }
    const llama_batch & get() const { return batch_; }

private:
    std::vector<int32_t>   n_sequences_;
    std::vector<int32_t *> sequence_pointers_;
    llama_batch            batch_;
};

// Lets each token of a batch see those behind it, for one decode.
class NonCausal {
public:
    NonCausal(llama_context * ctx, bool wanted) : ctx_(wanted ? ctx : nullptr) { if (ctx_) llama_set_causal_attn(ctx_, false); }
    ~NonCausal() { if (ctx_) llama_set_causal_attn(ctx_, true); }
    NonCausal(const NonCausal &) = delete;
    NonCausal & operator=(const NonCausal &) = delete;
private:
    llama_context * ctx_;
};

class EmbeddingBatch {
public:
    EmbeddingBatch(int n, const float * embeddings, const int32_t * positions, int sequence, bool output_last)
        : n_sequences_(n, 1), sequence_(sequence), sequence_pointers_(n, &sequence_), outputs_(n, 0) {
        outputs_[n - 1] = output_last;
        batch_ = { n, nullptr, const_cast<float *>(embeddings), const_cast<int32_t *>(positions), n_sequences_.data(), sequence_pointers_.data(),
                   outputs_.data() };
    }
    const llama_batch & get() const { return batch_; }

private:
    std::vector<int32_t>   n_sequences_;
    int32_t                sequence_;
    std::vector<int32_t *> sequence_pointers_;
    std::vector<int8_t>    outputs_;
    llama_batch            batch_;
};

Status check_embeddings(llama_context * ctx, int n_tokens, int n_embd, int n_pos, bool causal) {
    const llama_model * model = llama_get_model(ctx);
    const auto rope = llama_model_rope_type(model);
    const int n_pos_wanted = rope == LLAMA_ROPE_TYPE_MROPE || rope == LLAMA_ROPE_TYPE_IMROPE ? 4 : 1;
    if (n_embd != llama_model_n_embd_inp(model) || n_pos != n_pos_wanted) {
        return Status::error(LSM_E_ARGUMENT, "the model takes embeddings of " + std::to_string(llama_model_n_embd_inp(model)) + " numbers at " +
                                                 std::to_string(n_pos_wanted) + " positions");
    }
    if (!causal && static_cast<uint32_t>(n_tokens) > llama_n_ubatch(ctx)) {  // llama.cpp would end the process
        return Status::error(LSM_E_ARGUMENT, std::to_string(n_tokens) + " embeddings that see each other need --ubatch-size " +
                                                 std::to_string(n_tokens) + "; it is " + std::to_string(llama_n_ubatch(ctx)));
    }
    return {};
}

Status check_resident(int owner) {
    if (lsm::Ledger::instance().any_released(owner, needed_classes)) {
        return Status::error(LSM_E_RELEASED, "the model's device memory is released: restore weights, adapters, kv and compute before decoding");
    }
    return {};
}

Status check(llama_context * ctx, int owner, int n_tokens) {
    if (n_tokens <= 0 || static_cast<uint32_t>(n_tokens) > llama_n_batch(ctx)) {
        return Status::error(LSM_E_ARGUMENT, "a batch has 1 to " + std::to_string(llama_n_batch(ctx)) + " tokens, not " + std::to_string(n_tokens));
    }
    return check_resident(owner);
}

constexpr int32_t no_guess = -1;

// `forced`: what stands whatever the sampler chooses, or no_guess.
Status serve_row(llama_context * ctx, int row, lsm_sampler * sampler, int32_t & sampled, float * logits, int32_t forced = no_guess) {
    sampled = LLAMA_TOKEN_NULL;
    if (logits) {
        const float * from = llama_get_logits_ith(ctx, row);
        if (!from) return Status::error(LSM_E_ARGUMENT, "row " + std::to_string(row) + " of the batch asked for no logits");
        std::memcpy(logits, from, sizeof(float) * llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(ctx))));
    }
    if (!sampler) return {};
    char why[256];
    const int code = lsm::guarded(why, sizeof(why), [&]() -> Status {
        if (auto status = sampler->sample(ctx, row, false, nullptr, sampled); !status.ok()) return status;
        const bool is_own = forced == no_guess;
        if (!is_own) sampled = forced;
        if (!sampler->deferred) sampler->accept(sampled, is_own);
        return {};
    });
    if (code == LSM_E_FAILED) sampled = LLAMA_TOKEN_NULL;  // the misfortune of one row; the others have their tokens
    return code == LSM_E_FAILED ? Status{} : Status{ code, why };
}

bool flag_is_set(void * flag) { return __atomic_load_n(static_cast<const int32_t *>(flag), __ATOMIC_RELAXED) != 0; }

}  // namespace

extern "C" {

int lsm_step_decode(struct llama_context * ctx, int owner,
                    int n_tokens, const int32_t * tokens, const int32_t * positions, const int32_t * sequences, const int8_t * outputs,
                    int n_rows, const int32_t * rows, struct lsm_sampler ** samplers, const int32_t * drafted, const int8_t * forced,
                    int32_t * sampled, float * logits, char * err, int err_len) {
    int decoded = 0;
    const int code = lsm::guarded(err, err_len, [&]() -> Status {
        if (auto status = check(ctx, owner, n_tokens); !status.ok()) return status;
        Scope scope(owner);
        decoded = llama_decode(ctx, Batch(n_tokens, tokens, positions, sequences, outputs).get());
        if (decoded != 0) return {};
        const size_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(ctx)));
        bool is_refused = false;  // a guess; those behind it, up to the end of their row of guesses, stand on it
        for (int i = 0; i < n_rows; i++) {
            const int32_t guess = drafted ? drafted[i] : no_guess;
            if (is_refused) {
                sampled[i] = LSM_STEP_NOT_REACHED;
                is_refused = guess != no_guess;
                continue;
            }
            lsm_sampler * sampler = samplers ? samplers[i] : nullptr;
            float * row_logits = logits ? logits + static_cast<size_t>(i) * n_vocab : nullptr;
            const int32_t stands = forced && forced[i] ? guess : no_guess;
            if (auto status = serve_row(ctx, rows[i], sampler, sampled[i], row_logits, stands); !status.ok()) return status;
            is_refused = guess != no_guess && (sampled[i] != guess || (sampler && (sampler->deferred || sampler->observer)));
        }
        return {};
    });
    return code != LSM_OK ? code : decoded;
}

int lsm_step_decode_embeddings(struct llama_context * ctx, int owner, int n_tokens, int n_embd, const float * embeddings,
                               int n_pos, const int32_t * positions, int sequence, int causal,
                               struct lsm_sampler * sampler, int32_t * sampled, char * err, int err_len) {
    int decoded = 0;
    const int code = lsm::guarded(err, err_len, [&]() -> Status {
        if (auto status = check(ctx, owner, n_tokens); !status.ok()) return status;
        if (auto status = check_embeddings(ctx, n_tokens, n_embd, n_pos, causal); !status.ok()) return status;
        Scope scope(owner);
        NonCausal non_causal(ctx, !causal);
        decoded = llama_decode(ctx, EmbeddingBatch(n_tokens, embeddings, positions, sequence, sampler != nullptr).get());
        if (decoded != 0) return {};
        return serve_row(ctx, n_tokens - 1, sampler, *sampled, nullptr);
    });
    return code != LSM_OK ? code : decoded;
}

int lsm_step_encode(struct llama_context * ctx, int owner,
                    int n_tokens, const int32_t * tokens, const int32_t * positions, const int32_t * sequences, const int8_t * outputs,
                    char * err, int err_len) {
    int encoded = 0;
    const int code = lsm::guarded(err, err_len, [&]() -> Status {
        if (auto status = check(ctx, owner, n_tokens); !status.ok()) return status;
        Scope scope(owner);
        encoded = llama_encode(ctx, Batch(n_tokens, tokens, positions, sequences, outputs).get());
        return {};
    });
    return code != LSM_OK ? code : encoded;
}

int lsm_step_settle(struct llama_context * ctx, int owner, char * err, int err_len) {
    return lsm::guarded(err, err_len, [&]() -> Status {
        if (auto status = check_resident(owner); !status.ok()) return status;
        Scope scope(owner);
        ctx->memory_update(false);
        ctx->synchronize();
        return {};
    });
}

void lsm_step_abort_on(struct llama_context * ctx, const int32_t * flag) {
    llama_set_abort_callback(ctx, flag_is_set, const_cast<int32_t *>(flag));
}

}  // extern "C"
