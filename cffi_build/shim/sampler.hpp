#pragma once
#include "llama.h"
#include "lsm_sampler.h"
#include "status.hpp"
#include <vector>

struct lsm_sampler {
    llama_sampler     * chain    = nullptr;
    llama_sampler     * grammar  = nullptr;
    lsm_probabilities * observer = nullptr;
    bool                deferred = false;

    lsm_sampler(llama_sampler * chain, llama_sampler * grammar) : chain(chain), grammar(grammar) {}
    ~lsm_sampler();
    lsm_sampler(const lsm_sampler &) = delete;
    lsm_sampler & operator=(const lsm_sampler &) = delete;

    lsm::Status sample(llama_context * ctx, int row, bool grammar_first, const int32_t * mask, int32_t & token);
    void accept(int32_t token, bool generated);

private:
    std::vector<llama_token_data> candidates_;
    llama_token_data_array        left_ = {};

    lsm::Status choose(llama_context * ctx, int row, bool with_grammar, const int32_t * mask, int32_t & token);
    lsm::Status take_logits(llama_context * ctx, int row);
    bool grammar_permits(int32_t token);
    void observe(llama_context * ctx, int row, int32_t token);
};
