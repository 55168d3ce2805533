#include "lsm_vocab.h"
#include "status.hpp"

#include <climits>

using lsm::Status;

namespace {

// llama.cpp answers with the count, or with minus the count that would have been needed.
Status counted(int answer, int & n) {
    if (answer == INT_MIN) return Status::error(LSM_E_ARGUMENT, "the text is too long");
    n = answer < 0 ? -answer : answer;
    return {};
}

Status require_vocab(const llama_vocab * vocab) {
    if (llama_vocab_type(vocab) != LLAMA_VOCAB_TYPE_NONE) return {};
    return Status::error(LSM_E_ARGUMENT, "this model has no vocabulary");
}

}  // namespace

extern "C" {

int lsm_vocab_tokenize(const struct llama_vocab * vocab, const char * text, int text_len, int add_special, int parse_special,
                       int32_t * tokens, int max, int * n, char * err, int err_len) {
    return lsm::guarded(err, err_len, [&] {
        if (auto status = require_vocab(vocab); !status.ok()) return status;
        return counted(llama_tokenize(vocab, text, text_len, tokens, max, add_special != 0, parse_special != 0), *n);
    });
}

int lsm_vocab_detokenize(const struct llama_vocab * vocab, const int32_t * tokens, int n_tokens, int remove_special, int unparse_special,
                         char * text, int max, int * n, char * err, int err_len) {
    return lsm::guarded(err, err_len, [&] {
        if (auto status = require_vocab(vocab); !status.ok()) return status;
        for (int i = 0; i < n_tokens; i++) {
            if (tokens[i] < 0 || tokens[i] >= llama_vocab_n_tokens(vocab)) {
                return Status::error(LSM_E_ARGUMENT, "token " + std::to_string(tokens[i]) + " is not in the vocabulary");
            }
        }
        return counted(llama_detokenize(vocab, tokens, n_tokens, text, max, remove_special != 0, unparse_special != 0), *n);
    });
}

}  // extern "C"
