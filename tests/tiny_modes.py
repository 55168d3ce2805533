"""Random models that do something else than go on with a text: embed, rank, translate."""

from __future__ import annotations

from pathlib import Path

import gguf

from tests.tiny_models import F16, F32, N_VOCAB, Writer

N_EMBD, N_FF, N_HEADS, N_CTX = 64, 128, 2, 256
FIM = {"pre": 277, "suf": 278, "mid": 279}  # unused tokens of the tiny vocabulary, which an override makes those of infill


def fim_overrides(**more: int) -> tuple[tuple[str, int], ...]:
    """Metadata by which any tiny model has tokens for infill."""
    return tuple((f"tokenizer.ggml.fim_{name}_token_id", token) for name, token in {**FIM, **more}.items())


def write_bert(path: Path, *, seed: int = 11, pooling: gguf.PoolingType = gguf.PoolingType.MEAN, n_layer: int = 2) -> Path:
    """An encoder without a KV cache: attention sees the whole text.  With RANK it has a head that gives one score."""
    w = Writer(path, "bert", seed)
    w.vocabulary()
    w.gguf.add_add_eos_token(True)
    w.gguf.add_token_type_count(2)
    w.gguf.add_context_length(N_CTX)
    w.gguf.add_embedding_length(N_EMBD)
    w.gguf.add_block_count(n_layer)
    w.gguf.add_feed_forward_length(N_FF)
    w.gguf.add_head_count(N_HEADS)
    w.gguf.add_layer_norm_eps(1e-12)
    w.gguf.add_causal_attention(False)
    w.gguf.add_pooling_type(pooling)
    w.matrix("token_embd.weight", N_VOCAB, N_EMBD, scale=1.0)
    w.matrix("token_types.weight", 2, N_EMBD, F32)
    w.matrix("position_embd.weight", N_CTX, N_EMBD, F32)
    _norm(w, "token_embd_norm", N_EMBD)
    for i in range(n_layer):
        prefix = f"blk.{i}."
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            _linear(w, prefix + name, N_EMBD, N_EMBD)
        _norm(w, prefix + "attn_output_norm", N_EMBD)
        _linear(w, prefix + "ffn_up", N_FF, N_EMBD)
        _linear(w, prefix + "ffn_down", N_EMBD, N_FF)
        _norm(w, prefix + "layer_output_norm", N_EMBD)
    if pooling is gguf.PoolingType.RANK:
        _linear(w, "cls", N_EMBD, N_EMBD, scale=0.5)
        _linear(w, "cls.output", 1, N_EMBD, scale=0.5)
    w.close()
    return path


def write_t5(path: Path, *, seed: int = 12, n_layer: int = 2) -> Path:
    """An encoder and a decoder: the answer is written with an eye on the encoded prompt."""
    n_buckets = 8
    w = Writer(path, "t5", seed)
    w.vocabulary()
    w.gguf.add_add_eos_token(True)
    w.gguf.add_context_length(N_CTX)
    w.gguf.add_embedding_length(N_EMBD)
    w.gguf.add_block_count(n_layer)
    w.gguf.add_feed_forward_length(N_FF)
    w.gguf.add_head_count(N_HEADS)
    w.gguf.add_key_length(N_EMBD // N_HEADS)
    w.gguf.add_value_length(N_EMBD // N_HEADS)
    w.gguf.add_layer_norm_eps(1e-6)
    w.gguf.add_layer_norm_rms_eps(1e-6)
    w.gguf.add_relative_attn_buckets_count(n_buckets)
    w.gguf.add_decoder_start_token_id(0)
    w.matrix("token_embd.weight", N_VOCAB, N_EMBD, scale=1.0)
    w.norm("enc.output_norm.weight", N_EMBD)
    w.norm("dec.output_norm.weight", N_EMBD)
    for part in ("enc", "dec"):
        for i in range(n_layer):
            prefix = f"{part}.blk.{i}."
            kinds = ("attn",) if part == "enc" else ("attn", "cross_attn")
            for kind in kinds:
                w.norm(f"{prefix}{kind}_norm.weight", N_EMBD)
                for name in ("q", "k", "v", "o"):
                    w.matrix(f"{prefix}{kind}_{name}.weight", N_EMBD, N_EMBD, F16, scale=0.2)
            w.norm(prefix + "ffn_norm.weight", N_EMBD)
            w.matrix(prefix + "ffn_gate.weight", N_FF, N_EMBD)
            w.matrix(prefix + "ffn_up.weight", N_FF, N_EMBD)
            w.matrix(prefix + "ffn_down.weight", N_EMBD, N_FF)
        w.matrix(f"{part}.blk.0.attn_rel_b.weight", n_buckets, N_HEADS, F32)
    w.close()
    return path


def _linear(w: Writer, name: str, rows: int, columns: int, scale: float = 0.2) -> None:
    w.matrix(name + ".weight", rows, columns, F16, scale)
    w.tensor(name + ".bias", (0.1 * w.random.standard_normal(rows)).astype("float32"))


def _norm(w: Writer, name: str, size: int) -> None:
    w.norm(name + ".weight", size)
    w.tensor(name + ".bias", (0.1 * w.random.standard_normal(size)).astype("float32"))
