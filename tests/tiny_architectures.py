"""More random models in the manner of `tests.tiny_models`: experts, and a hybrid of two kinds of memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.tiny_models import F32, N_VOCAB, Q4_0, Writer

N_EMBD, N_FF, HEAD = 128, 256, 64
N_HEADS = N_EMBD // HEAD


def write_moe(path: Path, *, seed: int = 31, n_layer: int = 2, n_experts: int = 4) -> Path:
    """Plain attention; two of the experts of each layer answer for a token."""
    w = Writer(path, "llama", seed)
    _header(w, n_layer, 4096)
    w.gguf.add_head_count_kv(1)
    w.gguf.add_layer_norm_rms_eps(1e-5)
    w.gguf.add_expert_count(n_experts)
    w.gguf.add_expert_used_count(2)
    w.matrix("token_embd.weight", N_VOCAB, N_EMBD, scale=1.0)
    w.norm("output_norm.weight", N_EMBD)
    w.matrix("output.weight", N_VOCAB, N_EMBD, Q4_0)
    for i in range(n_layer):
        prefix = f"blk.{i}."
        w.norm(prefix + "attn_norm.weight", N_EMBD)
        _attention(w, prefix, HEAD)
        w.norm(prefix + "ffn_norm.weight", N_EMBD)
        w.matrix(prefix + "ffn_gate_inp.weight", n_experts, N_EMBD, F32)
        for name, rows, columns in (("gate", N_FF, N_EMBD), ("up", N_FF, N_EMBD), ("down", N_EMBD, N_FF)):
            experts = (w.random.standard_normal((n_experts, rows, columns)) * 0.1).astype(np.float32)
            w.tensor(f"{prefix}ffn_{name}_exps.weight", experts, Q4_0)
    w.close()
    return path


def write_hybrid(path: Path, *, seed: int = 32, n_layer: int = 4, n_conv: int = 3) -> Path:
    """A short convolution with a recurrent state in every other layer (LFM2), attention with a KV cache in the rest."""
    w = Writer(path, "lfm2", seed)
    _header(w, n_layer, 2048)
    w.gguf.add_head_count_kv([layer % 2 for layer in range(n_layer)])
    w.gguf.add_layer_norm_rms_eps(1e-5)
    w.gguf.add_shortconv_l_cache(n_conv)
    w.matrix("token_embd.weight", N_VOCAB, N_EMBD, scale=1.0)
    w.norm("token_embd_norm.weight", N_EMBD)
    for i in range(n_layer):
        prefix = f"blk.{i}."
        w.norm(prefix + "attn_norm.weight", N_EMBD)
        if i % 2:
            _attention(w, prefix, HEAD)
            w.norm(prefix + "attn_q_norm.weight", HEAD)
            w.norm(prefix + "attn_k_norm.weight", HEAD)
        else:
            w.matrix(prefix + "shortconv.conv.weight", N_EMBD, n_conv, F32, scale=0.5)
            w.matrix(prefix + "shortconv.in_proj.weight", 3 * N_EMBD, N_EMBD)
            w.matrix(prefix + "shortconv.out_proj.weight", N_EMBD, N_EMBD)
        w.norm(prefix + "ffn_norm.weight", N_EMBD)
        w.matrix(prefix + "ffn_gate.weight", N_FF, N_EMBD, Q4_0)
        w.matrix(prefix + "ffn_up.weight", N_FF, N_EMBD, Q4_0)
        w.matrix(prefix + "ffn_down.weight", N_EMBD, N_FF, Q4_0)
    w.close()
    return path


def _header(w: Writer, n_layer: int, n_ctx: int) -> None:
    w.vocabulary()
    w.gguf.add_context_length(n_ctx)
    w.gguf.add_embedding_length(N_EMBD)
    w.gguf.add_block_count(n_layer)
    w.gguf.add_feed_forward_length(N_FF)
    w.gguf.add_head_count(N_HEADS)


def _attention(w: Writer, prefix: str, n_kv: int) -> None:
    w.matrix(prefix + "attn_q.weight", N_EMBD, N_EMBD, Q4_0)
    w.matrix(prefix + "attn_k.weight", n_kv, N_EMBD, Q4_0)
    w.matrix(prefix + "attn_v.weight", n_kv, N_EMBD, Q4_0)
    w.matrix(prefix + "attn_output.weight", N_EMBD, N_EMBD, Q4_0)
