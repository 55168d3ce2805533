#include "probabilities.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace {

// Indices of the `max` largest of n values, largest first; of equal ones the first.
template <typename Value> std::vector<int> largest(int n, int max, Value && value) {
    std::vector<int> indices(n);
    std::iota(indices.begin(), indices.end(), 0);
    const auto end = indices.begin() + std::clamp(max, 0, n);
    std::partial_sort(indices.begin(), end, indices.end(), [&](int a, int b) { return value(a) != value(b) ? value(a) > value(b) : a < b; });
    indices.erase(end, indices.end());
    return indices;
}

}  // namespace

namespace lsm {

void log_probabilities(const float * logits, int n_vocab, int32_t chosen, lsm_probabilities & into) {
    const float best = *std::max_element(logits, logits + n_vocab);
    double sum = 0.0;
    for (int i = 0; i < n_vocab; i++) sum += std::exp(logits[i] - best);
    const double log_sum = best + std::log(sum);
    into.n = 0;
    for (int id : largest(n_vocab, into.max, [&](int i) { return logits[i]; })) {
        into.tokens[into.n]   = id;
        into.values[into.n++] = static_cast<float>(logits[id] - log_sum);
    }
    into.chosen = static_cast<float>(logits[chosen] - log_sum);
}

void probabilities_left(const llama_token_data_array & left, int32_t chosen, lsm_probabilities & into) {
    into.n      = 0;
    into.chosen = 0.0f;
    for (int index : largest(static_cast<int>(left.size), into.max, [&](int i) { return left.data[i].p; })) {
        if (left.data[index].p == 0.0f) break;
        into.tokens[into.n]   = left.data[index].id;
        into.values[into.n++] = left.data[index].p;
    }
    for (size_t i = 0; i < left.size; i++) {
        if (left.data[i].id == chosen) into.chosen = left.data[i].p;
    }
}

}  // namespace lsm
