// One sampler of a slot: a llama.cpp chain and, where a grammar is set, the grammar beside it. The grammar is asked about the chosen
// token first and about the whole vocabulary only when it refuses that one: the common case costs one check instead of n_vocab.
#pragma once
#include "llama.h"
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

struct lsm_sampler;

// A sampler for a grammar in GBNF; `root` names its start symbol. NULL, with a message, when it cannot be parsed.
struct llama_sampler * lsm_sampler_grammar(const struct llama_vocab * vocab, const char * gbnf, const char * root, char * err, int err_len);

// Takes over both; `grammar` may be NULL. Returns NULL when the host has no memory (both are freed then).
struct lsm_sampler * lsm_sampler_new(struct llama_sampler * chain, struct llama_sampler * grammar);
struct lsm_sampler * lsm_sampler_clone(const struct lsm_sampler * sampler);
void lsm_sampler_free(struct lsm_sampler * sampler);
void lsm_sampler_reset(struct lsm_sampler * sampler);
uint32_t lsm_sampler_seed(const struct lsm_sampler * sampler);

// Chooses a token from the logits of batch row `row` of the last decode; does not accept it. Returns 0 or a negative LSM_E_ code.
int lsm_sampler_sample(struct lsm_sampler * sampler, struct llama_context * ctx, int row, int grammar_first, int32_t * token, char * err, int err_len);

// Tells the sampler that `token` is part of the text. Tokens of a prompt (generated = 0) count for penalties, not for the grammar.
int lsm_sampler_accept(struct lsm_sampler * sampler, int32_t token, int generated, char * err, int err_len);

// The candidates that were left when the last token was chosen, most probable first. Returns how many were written (at most `max`).
int lsm_sampler_candidates(struct lsm_sampler * sampler, int max, int32_t * tokens, float * probabilities);

#ifdef __cplusplus
}
#endif
