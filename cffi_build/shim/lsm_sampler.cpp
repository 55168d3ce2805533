#include "lsm_sampler.h"
#include "sampler.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

using lsm::Status;

lsm_sampler::~lsm_sampler() {
    llama_sampler_free(grammar);
    llama_sampler_free(chain);
}

Status lsm_sampler::take_logits(llama_context * ctx, int row) {
    const float * logits = llama_get_logits_ith(ctx, row);
    if (!logits) return Status::error(LSM_E_ARGUMENT, "row " + std::to_string(row) + " of the last batch has no logits");
    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(ctx)));
    candidates.resize(n_vocab);
    for (int id = 0; id < n_vocab; id++) candidates[id] = { id, logits[id], 0.0f };
    left = { candidates.data(), candidates.size(), -1, false };
    return {};
}

Status lsm_sampler::choose(int32_t & token) {
    llama_sampler_apply(chain, &left);
    if (left.selected < 0 || static_cast<size_t>(left.selected) >= left.size) {
        return Status::error(LSM_E_FAILED, "the sampler chain chose no token: it must end with one that does (dist, greedy, mirostat)");
    }
    token = left.data[left.selected].id;
    return {};
}

bool lsm_sampler::grammar_permits(int32_t token) {
    llama_token_data       one   = { token, 1.0f, 0.0f };
    llama_token_data_array array = { &one, 1, -1, false };
    llama_sampler_apply(grammar, &array);
    return one.logit != -INFINITY;
}

Status lsm_sampler::sample(llama_context * ctx, int row, bool grammar_first, int32_t & token) {
    if (auto status = take_logits(ctx, row); !status.ok()) return status;
    if (grammar && grammar_first) llama_sampler_apply(grammar, &left);
    if (auto status = choose(token); !status.ok()) return status;
    if (!grammar || grammar_first || grammar_permits(token)) return {};
    if (auto status = take_logits(ctx, row); !status.ok()) return status;
    llama_sampler_apply(grammar, &left);
    return choose(token);
}

void lsm_sampler::accept(int32_t token, bool generated) {
    if (grammar && generated) llama_sampler_accept(grammar, token);
    llama_sampler_accept(chain, token);
}

extern "C" {

struct llama_sampler * lsm_sampler_grammar(const struct llama_vocab * vocab, const char * gbnf, const char * root, char * err, int err_len) {
    llama_sampler * grammar = nullptr;
    lsm::guarded(err, err_len, [&] {
        grammar = llama_sampler_init_grammar(vocab, gbnf, root);
        return grammar ? Status{} : Status::error(LSM_E_ARGUMENT, "it is not a valid GBNF grammar");
    });
    return grammar;
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
    return lsm_sampler_new(llama_sampler_clone(sampler->chain), sampler->grammar ? llama_sampler_clone(sampler->grammar) : nullptr);
}

void lsm_sampler_free(struct lsm_sampler * sampler) { delete sampler; }

void lsm_sampler_reset(struct lsm_sampler * sampler) {
    if (sampler->grammar) llama_sampler_reset(sampler->grammar);
    llama_sampler_reset(sampler->chain);
}

uint32_t lsm_sampler_seed(const struct lsm_sampler * sampler) { return llama_sampler_get_seed(sampler->chain); }

int lsm_sampler_sample(struct lsm_sampler * sampler, struct llama_context * ctx, int row, int grammar_first, int32_t * token, char * err, int err_len) {
    return lsm::guarded(err, err_len, [&] { return sampler->sample(ctx, row, grammar_first != 0, *token); });
}

int lsm_sampler_accept(struct lsm_sampler * sampler, int32_t token, int generated, char * err, int err_len) {
    return lsm::guarded(err, err_len, [&] {
        sampler->accept(token, generated != 0);
        return Status{};
    });
}

int lsm_sampler_candidates(struct lsm_sampler * sampler, int max, int32_t * tokens, float * probabilities) {
    std::vector<llama_token_data> sorted(sampler->left.data, sampler->left.data + sampler->left.size);
    const size_t n = std::min(sorted.size(), static_cast<size_t>(std::max(max, 0)));
    std::partial_sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(n), sorted.end(), [](const auto & a, const auto & b) { return a.p > b.p; });
    for (size_t i = 0; i < n; i++) {
        tokens[i]        = sorted[i].id;
        probabilities[i] = sorted[i].p;
    }
    return static_cast<int>(n);
}

}  // extern "C"
