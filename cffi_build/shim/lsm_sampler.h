// One sampler of a slot: a llama.cpp chain and, where a grammar is set, the grammar beside it. The grammar is asked about the chosen
// token first and about the whole vocabulary only when it refuses that one: the common case costs one check instead of n_vocab.
#pragma once
#include "llama.h"
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

struct lsm_sampler;

// What a choice leaves for those who want to know how likely the tokens were. `tokens` and `values` have room for `max`, and belong to the caller.
struct lsm_probabilities {
    int32_t   max;
    int32_t   after_chain; // 0: natural logarithms of the model's own probabilities; 1: probabilities among what the chain left
    int32_t   n;           // written: the most probable tokens, best first
    float     chosen;      // the same of the chosen token
    int32_t * tokens;
    float   * values;
};

// A sampler for a grammar in GBNF with the start symbol `root`. NULL, with a message, when it cannot be parsed.
struct llama_sampler * lsm_sampler_grammar(const struct llama_vocab * vocab, const char * gbnf, char * err, int err_len);

// The same, but it rules only from the first of these on: a token, or a match of a regular expression (ECMAScript) in the text.
struct llama_sampler * lsm_sampler_lazy_grammar(const struct llama_vocab * vocab, const char * gbnf,
                                                const char ** patterns, int n_patterns, const int32_t * tokens, int n_tokens, char * err, int err_len);

// Takes over both; `grammar` may be NULL. Returns NULL when the host has no memory (both are freed then).
struct lsm_sampler * lsm_sampler_new(struct llama_sampler * chain, struct llama_sampler * grammar);
struct lsm_sampler * lsm_sampler_clone(const struct lsm_sampler * sampler); // observed by nobody
void lsm_sampler_free(struct lsm_sampler * sampler);
void lsm_sampler_reset(struct lsm_sampler * sampler);
uint32_t lsm_sampler_seed(const struct lsm_sampler * sampler);

// Each choice from now on is written down in `into`, which must outlive the sampler; NULL ends that.
void lsm_sampler_observe(struct lsm_sampler * sampler, struct lsm_probabilities * into);

// Not 0: a step does not accept what this sampler chose. Somebody else looks at it, may choose again, and accepts.
void lsm_sampler_defer(struct lsm_sampler * sampler, int deferred);

// Chooses a token from the logits of batch row `row` of the last decode; does not accept it. Returns 0 or a negative LSM_E_ code.
//   mask [(n_vocab + 31) / 32], or NULL: bit t % 32 of word t / 32 is 1 where token t may be chosen
int lsm_sampler_sample(struct lsm_sampler * sampler, struct llama_context * ctx, int row, int grammar_first, const int32_t * mask, int32_t * token,
                       char * err, int err_len);

// Tells the sampler that `token` is part of the text. Tokens of a prompt (generated = 0) count for penalties, not for the grammar.
int lsm_sampler_accept(struct lsm_sampler * sampler, int32_t token, int generated, char * err, int err_len);

// Lets the chain run where the logits are, for this sequence, as far as the device can: once in a sampler's life, and only without a grammar.
// Returns 1, or 0 where the device cannot. It must be ended before the sampler is freed.
int lsm_sampler_offload(struct lsm_sampler * sampler, struct llama_context * ctx, int sequence);
void lsm_sampler_end_offload(struct llama_context * ctx, int sequence);

#ifdef __cplusplus
}
#endif
