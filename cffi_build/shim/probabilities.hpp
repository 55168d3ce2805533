#pragma once
#include "lsm_sampler.h"

namespace lsm {

// Softmax over the model's own logits [n_vocab]; natural logarithms.
void log_probabilities(const float * logits, int n_vocab, int32_t chosen, lsm_probabilities & into);

// What the chain left, as it left it; tokens of probability 0 are not listed.
void probabilities_left(const llama_token_data_array & left, int32_t chosen, lsm_probabilities & into);

}  // namespace lsm
