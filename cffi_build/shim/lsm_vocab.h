// Text to tokens and back, with the exceptions of llama.cpp's tokenizers caught.
#pragma once
#include "llama.h"
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

// Writes at most `max` tokens and sets *n to how many the text has (call again with a larger array when *n > max). 0 or an LSM_E_ code.
int lsm_vocab_tokenize(const struct llama_vocab * vocab, const char * text, int text_len, int add_special, int parse_special,
                       int32_t * tokens, int max, int * n, char * err, int err_len);

// Writes at most `max` bytes and sets *n to how many the text has. All tokens must be in the vocabulary.
int lsm_vocab_detokenize(const struct llama_vocab * vocab, const int32_t * tokens, int n_tokens, int remove_special, int unparse_special,
                         char * text, int max, int * n, char * err, int err_len);

#ifdef __cplusplus
}
#endif
