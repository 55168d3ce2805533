#include "lsm_sampler.h"
#include "probabilities.hpp"
#include "sampler.hpp"

#include <cmath>
#include <memory>
#include <string>

using lsm::Status;

lsm_sampler::~lsm_sampler() {
    llama_sampler_free(grammar);
    llama_sampler_free(chain);
}

// What the device has left of the vocabulary where the chain runs there, else all of it.
Status lsm_sampler::take_logits(llama_context * ctx, int row) {
    const llama_token * ids    = nullptr;
    const float       * p      = llama_get_sampled_probs_ith(ctx, row);
    const float       * logits = llama_get_sampled_logits_ith(ctx, row);
    size_t n = 0;
    if (p || logits) {
        ids = llama_get_sampled_candidates_ith(ctx, row);
        n   = p ? llama_get_sampled_probs_count_ith(ctx, row) : llama_get_sampled_logits_count_ith(ctx, row);
    } else {
        logits = llama_get_logits_ith(ctx, row);
        if (!logits) return Status::error(LSM_E_ARGUMENT, "row " + std::to_string(row) + " of the last batch has no logits");
        n = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(ctx)));
    }
    candidates_.resize(n);
    for (size_t i = 0; i < n; i++) {
        candidates_[i] = { ids ? ids[i] : static_cast<llama_token>(i), logits ? logits[i] : 0.0f, p ? p[i] : 0.0f };
    }
    left_ = { candidates_.data(), n, -1, false };
    return {};
}

Status lsm_sampler::choose(llama_context * ctx, int row, bool with_grammar, const int32_t * mask, int32_t & token) {
    if (auto status = take_logits(ctx, row); !status.ok()) return status;
    if (with_grammar) llama_sampler_apply(grammar, &left_);
    if (mask) {
        for (size_t i = 0; i < left_.size; i++) {
            const auto id = static_cast<uint32_t>(left_.data[i].id);
            if (!(static_cast<uint32_t>(mask[id / 32]) >> (id % 32) & 1)) left_.data[i].logit = -INFINITY;
        }
    }
    llama_sampler_apply(chain, &left_);
    if (left_.selected < 0 || static_cast<size_t>(left_.selected) >= left_.size) {
        return Status::error(LSM_E_FAILED, "the sampler chain chose no token: it must end with one that does (dist, greedy, mirostat)");
    }
    if (left_.data[left_.selected].logit == -INFINITY) return Status::error(LSM_E_FAILED, "the samplers leave no token to choose");
    token = left_.data[left_.selected].id;
    return {};
}

bool lsm_sampler::grammar_permits(int32_t token) {
    llama_token_data       one   = { token, 1.0f, 0.0f };
    llama_token_data_array array = { &one, 1, -1, false };
    llama_sampler_apply(grammar, &array);
    return one.logit != -INFINITY;
}

Status lsm_sampler::sample(llama_context * ctx, int row, bool grammar_first, const int32_t * mask, int32_t & token) {
    token = llama_get_sampled_token_ith(ctx, row);
    if (token != LLAMA_TOKEN_NULL) {
        if (auto status = take_logits(ctx, row); !status.ok()) return status;
    } else {
        const bool with_grammar = grammar && grammar_first;
        if (auto status = choose(ctx, row, with_grammar, mask, token); !status.ok()) return status;
        if (grammar && !with_grammar && !grammar_permits(token)) {
            if (auto status = choose(ctx, row, true, mask, token); !status.ok()) return status;
        }
    }
    if (observer) observe(ctx, row, token);
    return {};
}

void lsm_sampler::observe(llama_context * ctx, int row, int32_t token) {
    if (observer->after_chain) {
        lsm::probabilities_left(left_, token, *observer);
    } else if (const float * logits = llama_get_logits_ith(ctx, row)) {
        lsm::log_probabilities(logits, llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(ctx))), token, *observer);
    }
}

void lsm_sampler::accept(int32_t token, bool generated) {
    if (grammar && generated) llama_sampler_accept(grammar, token);
    llama_sampler_accept(chain, token);
}

namespace {

template <typename Make> llama_sampler * make_grammar(char * err, int err_len, Make && make) {
    llama_sampler * grammar = nullptr;
    lsm::guarded(err, err_len, [&] {
        grammar = make();
        return grammar ? Status{} : Status::error(LSM_E_ARGUMENT, "it is not a valid GBNF grammar");
    });
    return grammar;
}

}  // namespace

extern "C" {

struct llama_sampler * lsm_sampler_grammar(const struct llama_vocab * vocab, const char * gbnf, char * err, int err_len) {
    return make_grammar(err, err_len, [&] { return llama_sampler_init_grammar(vocab, gbnf, "root"); });
}

struct llama_sampler * lsm_sampler_lazy_grammar(const struct llama_vocab * vocab, const char * gbnf,
                                                const char ** patterns, int n_patterns, const int32_t * tokens, int n_tokens, char * err, int err_len) {
    return make_grammar(err, err_len, [&] {
        return llama_sampler_init_grammar_lazy_patterns(vocab, gbnf, "root", patterns, static_cast<size_t>(n_patterns), tokens, static_cast<size_t>(n_tokens));
    });
}

struct lsm_sampler * lsm_sampler_new(struct llama_sampler * chain, struct llama_sampler * grammar) {
    auto * sampler = new (std::nothrow) lsm_sampler(chain, grammar);
    if (!sampler) {
        llama_sampler_free(grammar);
        llama_sampler_free(chain);
    }
    return sampler;
}

struct lsm_sampler * lsm_sampler_clone(const struct lsm_sampler * sampler) {
    auto * clone = lsm_sampler_new(llama_sampler_clone(sampler->chain), sampler->grammar ? llama_sampler_clone(sampler->grammar) : nullptr);
    if (clone) clone->deferred = sampler->deferred;
    return clone;
}

void lsm_sampler_free(struct lsm_sampler * sampler) { delete sampler; }

void lsm_sampler_reset(struct lsm_sampler * sampler) {
    if (sampler->grammar) llama_sampler_reset(sampler->grammar);
    llama_sampler_reset(sampler->chain);
}

uint32_t lsm_sampler_seed(const struct lsm_sampler * sampler) { return llama_sampler_get_seed(sampler->chain); }

void lsm_sampler_observe(struct lsm_sampler * sampler, struct lsm_probabilities * into) { sampler->observer = into; }

void lsm_sampler_defer(struct lsm_sampler * sampler, int deferred) { sampler->deferred = deferred != 0; }

int lsm_sampler_sample(struct lsm_sampler * sampler, struct llama_context * ctx, int row, int grammar_first, const int32_t * mask, int32_t * token,
                       char * err, int err_len) {
    return lsm::guarded(err, err_len, [&] { return sampler->sample(ctx, row, grammar_first != 0, mask, *token); });
}

int lsm_sampler_accept(struct lsm_sampler * sampler, int32_t token, int generated, char * err, int err_len) {
    return lsm::guarded(err, err_len, [&] {
        sampler->accept(token, generated != 0);
        return Status{};
    });
}

int lsm_sampler_offload(struct lsm_sampler * sampler, struct llama_context * ctx, int sequence) {
    return !sampler->grammar && llama_set_sampler(ctx, sequence, sampler->chain);
}

void lsm_sampler_end_offload(struct llama_context * ctx, int sequence) { llama_set_sampler(ctx, sequence, nullptr); }

}  // extern "C"
