"""Random models that are large in memory and small in work: most of the bytes are experts, of which a token uses one.

So a process that holds the weights is easy to tell by its memory, and a handoff does not drown in computing.  Each output token is a
word of its own: two answers have the same text only if they have the same tokens.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from tests.tiny_models import F16, Writer

N_WORDS = 256
FIRST_WORD = 3 + 256  # after <unk>, <s>, </s> and the bytes
N_VOCAB = FIRST_WORD + N_WORDS
N_EMBD, N_FF, N_HEADS, N_LAYERS, N_EXPERTS = 128, 256, 2, 2, 128
HEAD = N_EMBD // N_HEADS
WEIGHT_BYTES = N_LAYERS * N_EXPERTS * 3 * N_EMBD * N_FF * 2  # of the experts; the rest is small


def write_mixture(path: Path, seed: int) -> Path:
    """The same seed gives the same bytes."""
    w = Writer(path, "llama", seed)
    _vocabulary(w)
    w.gguf.add_context_length(2048)
    w.gguf.add_embedding_length(N_EMBD)
    w.gguf.add_block_count(N_LAYERS)
    w.gguf.add_feed_forward_length(N_FF)
    w.gguf.add_head_count(N_HEADS)
    w.gguf.add_head_count_kv(N_HEADS)
    w.gguf.add_layer_norm_rms_eps(1e-5)
    w.gguf.add_rope_dimension_count(HEAD)
    w.gguf.add_expert_count(N_EXPERTS)
    w.gguf.add_expert_used_count(1)
    w.matrix("token_embd.weight", N_VOCAB, N_EMBD, scale=1.0)
    w.norm("output_norm.weight", N_EMBD)
    _output(w)
    for layer in range(N_LAYERS):
        _layer(w, f"blk.{layer}.")
    w.close()
    return path


def _vocabulary(w: Writer) -> None:
    kinds = gguf.TokenType
    tokens = [("<unk>", kinds.UNKNOWN), ("<s>", kinds.CONTROL), ("</s>", kinds.CONTROL)]
    tokens += [(f"<0x{byte:02X}>", kinds.BYTE) for byte in range(256)]
    tokens += [(f"▁w{word}", kinds.NORMAL) for word in range(N_WORDS)]
    w.gguf.add_tokenizer_model("llama")
    w.gguf.add_token_list([text for text, _ in tokens])
    w.gguf.add_token_scores([-float(i) for i in range(N_VOCAB)])
    w.gguf.add_token_types([kind for _, kind in tokens])
    w.gguf.add_unk_token_id(0)
    w.gguf.add_bos_token_id(1)
    w.gguf.add_eos_token_id(2)


def _output(w: Writer) -> None:
    """Logits of 0 for everything but words, so that the likeliest token is a word."""
    values = w.random.standard_normal((N_VOCAB, N_EMBD)).astype(np.float32) * 0.1
    values[:FIRST_WORD] = 0
    w.tensor("output.weight", values, F16)


def _layer(w: Writer, prefix: str) -> None:
    w.norm(prefix + "attn_norm.weight", N_EMBD)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        w.matrix(f"{prefix}{name}.weight", N_EMBD, N_EMBD, scale=0.3)
    w.norm(prefix + "ffn_norm.weight", N_EMBD)
    w.matrix(prefix + "ffn_gate_inp.weight", N_EXPERTS, N_EMBD, scale=1.0)
    for name, rows, columns in (("gate", N_FF, N_EMBD), ("up", N_FF, N_EMBD), ("down", N_EMBD, N_FF)):
        values = w.random.standard_normal((N_EXPERTS, rows, columns), dtype=np.float32) * 0.1
        w.tensor(f"{prefix}ffn_{name}_exps.weight", values, F16)
