// One crossing per step of the engine: a batch in; sampled tokens and logits out.
#pragma once
#include "llama.h"
#include "lsm_sampler.h"
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define LSM_STEP_NOT_REACHED (-2)

// Decodes n_tokens tokens (one sequence each), then serves n_rows output rows.
//   tokens, positions, sequences, outputs [n_tokens]: outputs[i] != 0 asks for the logits of token i
//   rows [n_rows]: batch indices with outputs[i] != 0
//   samplers [n_rows], or NULL: where an entry is not NULL it chooses a token, accepts it unless it is deferred, and writes it to
//     sampled[i]; elsewhere, and where a sampler finds no token that it may choose, sampled[i] = -1
//   drafted [n_rows], or NULL: not -1 where the batch has this token in the next row because somebody guessed that it comes next. That row is
//     served only if the guess was right: else, and where the caller settles what a sampler chose (it is deferred, or observed), the
//     rest of the guesses, up to and with the next row that has -1, are left alone, and their sampled[i] = LSM_STEP_NOT_REACHED
//   forced [n_rows], or NULL: not 0 where the guess stands whatever the sampler chooses; it is accepted, but not by the grammar
//   logits [n_rows * n_vocab], or NULL: receives the rows
// Returns llama_decode()'s code (0; 1 no KV slot; 2 aborted; -1 invalid batch; -2, -3 failed; rows are served after 0 only) or a negative LSM_E_ code.
int lsm_step_decode(struct llama_context * ctx, int owner,
                    int n_tokens, const int32_t * tokens, const int32_t * positions, const int32_t * sequences, const int8_t * outputs,
                    int n_rows, const int32_t * rows, struct lsm_sampler ** samplers, const int32_t * drafted, const int8_t * forced,
                    int32_t * sampled, float * logits, char * err, int err_len);

// Decodes n_tokens embeddings (n_embd floats each, one after the other) of one sequence: what an encoder made of an image or a sound.
//   positions [n_pos * n_tokens]: n_pos is 1; or 4 with M-RoPE, all first sections before all second ones
//   causal: 0 lets each embedding see those behind it; then n_tokens is at most the context's n_ubatch
//   sampler: NULL, or the one that chooses a token from the last row's logits and writes it to *sampled; *sampled = -1 without
// Returns as lsm_step_decode() does.
int lsm_step_decode_embeddings(struct llama_context * ctx, int owner, int n_tokens, int n_embd, const float * embeddings,
                               int n_pos, const int32_t * positions, int sequence, int causal,
                               struct lsm_sampler * sampler, int32_t * sampled, char * err, int err_len);

// The same batch through the encoder of an encoder-decoder model, or an embedding model without KV cache.
int lsm_step_encode(struct llama_context * ctx, int owner,
                    int n_tokens, const int32_t * tokens, const int32_t * positions, const int32_t * sequences, const int8_t * outputs,
                    char * err, int err_len);

// Carries out what was only noted of copies and shifts of sequences, as the next decode would; needed before states are read or written.
int lsm_step_settle(struct llama_context * ctx, int owner, char * err, int err_len);

// While *flag is not 0, a decode of this context stops between two graph nodes and returns 2 (CPU only). The flag must outlive the context.
void lsm_step_abort_on(struct llama_context * ctx, const int32_t * flag);

#ifdef __cplusplus
}
#endif
