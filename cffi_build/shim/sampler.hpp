#pragma once
#include "llama.h"
#include "status.hpp"
#include <vector>

struct lsm_sampler {
    llama_sampler * chain   = nullptr;
    llama_sampler * grammar = nullptr;
    std::vector<llama_token_data> candidates;
    llama_token_data_array        left = {};

    lsm_sampler(llama_sampler * chain, llama_sampler * grammar) : chain(chain), grammar(grammar) {}
    ~lsm_sampler();
    lsm_sampler(const lsm_sampler &) = delete;
    lsm_sampler & operator=(const lsm_sampler &) = delete;

    lsm::Status sample(llama_context * ctx, int row, bool grammar_first, int32_t & token);
    void accept(int32_t token, bool generated);

private:
    lsm::Status take_logits(llama_context * ctx, int row);
    lsm::Status choose(int32_t & token);
    bool grammar_permits(int32_t token);
};
