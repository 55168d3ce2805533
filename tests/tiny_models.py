"""Random models of a few hundred kilobytes, one for each kind of memory: attention, sliding windows, recurrent state.

Real architectures with a real (byte-fallback) vocabulary, so that everything but the sense of their answers can be tested.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

N_VOCAB = 320
WORDS = ("▁", "▁the", "▁a", "▁and", "▁of", "▁to", "▁in", "▁is", "▁it", "▁you", "▁that", "hello", "world", "ing", "er", "on", "at")

Q4_0, F16, F32 = gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.F32


class Writer:
    """One GGUF file with random weights; the same seed gives the same bytes."""

    def __init__(self, path: Path, architecture: str, seed: int) -> None:
        self.gguf = gguf.GGUFWriter(path, architecture)
        self.random = np.random.default_rng(seed)
        self.gguf.add_name(f"random {architecture}")

    def matrix(self, name: str, rows: int, columns: int, kind: gguf.GGMLQuantizationType = F16, scale: float = 0.1) -> None:
        values = (self.random.standard_normal((rows, columns)) * scale).astype(np.float32)
        self.tensor(name, values, kind)

    def tensor(self, name: str, values: NDArray[np.float32], kind: gguf.GGMLQuantizationType = F32) -> None:
        if kind is F32:
            self.gguf.add_tensor(name, values)
        else:
            self.gguf.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    def norm(self, name: str, size: int) -> None:
        self.tensor(name, (1.0 + 0.1 * self.random.standard_normal(size)).astype(np.float32))

    def vocabulary(self) -> None:
        """<unk>, <s>, </s>, every byte, some words; the rest is filled with unused tokens."""
        kinds = gguf.TokenType
        tokens = [("<unk>", kinds.UNKNOWN), ("<s>", kinds.CONTROL), ("</s>", kinds.CONTROL)]
        tokens += [(f"<0x{byte:02X}>", kinds.BYTE) for byte in range(256)]
        tokens += [(word, kinds.NORMAL) for word in WORDS]
        tokens += [(f"<unused{i}>", kinds.UNUSED) for i in range(N_VOCAB - len(tokens))]
        self.gguf.add_tokenizer_model("llama")
        self.gguf.add_token_list([text for text, _ in tokens])
        self.gguf.add_token_scores([-float(i) for i in range(N_VOCAB)])
        self.gguf.add_token_types([kind for _, kind in tokens])
        self.gguf.add_unk_token_id(0)
        self.gguf.add_bos_token_id(1)
        self.gguf.add_eos_token_id(2)
        self.gguf.add_add_bos_token(True)
        self.gguf.add_add_space_prefix(False)

    def close(self) -> None:
        self.gguf.write_header_to_file()
        self.gguf.write_kv_data_to_file()
        self.gguf.write_tensors_to_file()
        self.gguf.close()


def write_llama(path: Path, *, seed: int = 1, kind: gguf.GGMLQuantizationType = Q4_0, n_layer: int = 2, n_kv_heads: int = 2) -> Path:
    """Plain attention. Q4_0 matrices are repacked by the CPU backend (rows are multiples of 8); others stay as they are in the file."""
    n_embd, n_ff, head = 128, 256, 64
    n_heads = n_embd // head
    w = Writer(path, "llama", seed)
    w.vocabulary()
    w.gguf.add_context_length(4096)
    w.gguf.add_embedding_length(n_embd)
    w.gguf.add_block_count(n_layer)
    w.gguf.add_feed_forward_length(n_ff)
    w.gguf.add_head_count(n_heads)
    w.gguf.add_head_count_kv(n_kv_heads)
    w.gguf.add_layer_norm_rms_eps(1e-5)
    w.gguf.add_rope_dimension_count(head)
    w.gguf.add_chat_template("{% for message in messages %}{{ message.content }}{% endfor %}")
    w.matrix("token_embd.weight", N_VOCAB, n_embd, scale=1.0)
    w.norm("output_norm.weight", n_embd)
    w.matrix("output.weight", N_VOCAB, n_embd, kind)
    for i in range(n_layer):
        _attention(w, f"blk.{i}.", n_embd, head * n_heads, head * n_kv_heads, kind)
        _feed_forward(w, f"blk.{i}.", n_embd, n_ff, kind)
    w.close()
    return path


def write_small_beside(model: Path, path: Path, *, seed: int = 8) -> Path:
    """A random model with the vocabulary of a real one."""
    reader = gguf.GGUFReader(model)
    n_embd, n_ff, n_vocab = 64, 128, len(reader.fields["tokenizer.ggml.tokens"].data)
    w = Writer(path, "llama", seed)
    _copy_fields(reader, w.gguf, "tokenizer.")
    w.gguf.add_context_length(4096)
    w.gguf.add_embedding_length(n_embd)
    w.gguf.add_block_count(1)
    w.gguf.add_feed_forward_length(n_ff)
    w.gguf.add_head_count(1)
    w.gguf.add_layer_norm_rms_eps(1e-5)
    w.gguf.add_rope_dimension_count(n_embd)
    w.matrix("token_embd.weight", n_vocab, n_embd, scale=1.0)
    w.norm("output_norm.weight", n_embd)
    w.matrix("output.weight", n_vocab, n_embd)
    _attention(w, "blk.0.", n_embd, n_embd, n_embd, F16)
    _feed_forward(w, "blk.0.", n_embd, n_ff, F16)
    w.close()
    return path


def write_gemma3(path: Path, *, seed: int = 2, window: int = 16) -> Path:
    """Sliding windows in five layers of six, and a token embedding that is also the output matrix."""
    n_embd, n_ff, head, n_heads, n_kv_heads, n_layer = 128, 256, 64, 2, 1, 6
    w = Writer(path, "gemma3", seed)
    w.vocabulary()
    w.gguf.add_context_length(2048)
    w.gguf.add_embedding_length(n_embd)
    w.gguf.add_block_count(n_layer)
    w.gguf.add_feed_forward_length(n_ff)
    w.gguf.add_head_count(n_heads)
    w.gguf.add_head_count_kv(n_kv_heads)
    w.gguf.add_key_length(head)
    w.gguf.add_value_length(head)
    w.gguf.add_layer_norm_rms_eps(1e-6)
    w.gguf.add_sliding_window(window)
    w.matrix("token_embd.weight", N_VOCAB, n_embd, Q4_0, scale=1.0)
    w.norm("output_norm.weight", n_embd)
    for i in range(n_layer):
        prefix = f"blk.{i}."
        _attention(w, prefix, n_embd, head * n_heads, head * n_kv_heads, Q4_0)
        _feed_forward(w, prefix, n_embd, n_ff, Q4_0)
        w.norm(prefix + "attn_q_norm.weight", head)
        w.norm(prefix + "attn_k_norm.weight", head)
        w.norm(prefix + "post_attention_norm.weight", n_embd)
        w.norm(prefix + "post_ffw_norm.weight", n_embd)
    w.close()
    return path


def write_mamba(path: Path, *, seed: int = 3) -> Path:
    """A recurrent state instead of a KV cache."""
    n_embd, n_layer = 128, 2
    w = Writer(path, "mamba", seed)
    w.vocabulary()
    w.gguf.add_context_length(2048)
    w.gguf.add_embedding_length(n_embd)
    w.gguf.add_block_count(n_layer)
    w.gguf.add_feed_forward_length(0)
    w.gguf.add_head_count(0)
    w.gguf.add_layer_norm_rms_eps(1e-5)
    _state_sizes(w, n_embd)
    w.matrix("token_embd.weight", N_VOCAB, n_embd, scale=1.0)
    w.norm("output_norm.weight", n_embd)
    w.matrix("output.weight", N_VOCAB, n_embd)
    for i in range(n_layer):
        _state_space(w, f"blk.{i}.", n_embd)
    w.close()
    return path


def write_jamba(path: Path, *, seed: int = 4) -> Path:
    """A hybrid: layers with a recurrent state and layers with a KV cache, in turn."""
    n_embd, n_ff, n_heads, n_layer = 128, 256, 2, 4
    n_kv_heads = [0 if i % 2 == 0 else n_heads for i in range(n_layer)]
    w = Writer(path, "jamba", seed)
    w.vocabulary()
    w.gguf.add_context_length(2048)
    w.gguf.add_embedding_length(n_embd)
    w.gguf.add_block_count(n_layer)
    w.gguf.add_feed_forward_length(n_ff)
    w.gguf.add_head_count(n_heads)
    w.gguf.add_head_count_kv(n_kv_heads)
    w.gguf.add_layer_norm_rms_eps(1e-5)
    _state_sizes(w, n_embd)
    w.matrix("token_embd.weight", N_VOCAB, n_embd, scale=1.0)
    w.norm("output_norm.weight", n_embd)
    w.matrix("output.weight", N_VOCAB, n_embd)
    for i, n_kv in enumerate(n_kv_heads):
        prefix = f"blk.{i}."
        if n_kv:
            _attention(w, prefix, n_embd, n_embd, n_embd, F16)
        else:
            _state_space(w, prefix, n_embd)
            for name, size in (("dt", N_RANK), ("b", N_STATE), ("c", N_STATE)):
                w.norm(f"{prefix}ssm_{name}_norm.weight", size)
        _feed_forward(w, prefix, n_embd, n_ff, F16)
    w.close()
    return path


N_STATE, N_CONV, N_RANK = 16, 4, 8  # of the recurrent layers


def _state_sizes(w: Writer, n_embd: int) -> None:
    w.gguf.add_ssm_conv_kernel(N_CONV)
    w.gguf.add_ssm_inner_size(2 * n_embd)
    w.gguf.add_ssm_state_size(N_STATE)
    w.gguf.add_ssm_time_step_rank(N_RANK)


def _state_space(w: Writer, prefix: str, n_embd: int) -> None:
    n_inner = 2 * n_embd
    w.norm(prefix + "attn_norm.weight", n_embd)
    w.matrix(prefix + "ssm_in.weight", 2 * n_inner, n_embd)
    w.matrix(prefix + "ssm_conv1d.weight", n_inner, N_CONV, F32, scale=0.3)
    w.matrix(prefix + "ssm_x.weight", N_RANK + 2 * N_STATE, n_inner)
    w.matrix(prefix + "ssm_dt.weight", n_inner, N_RANK, F32)
    w.matrix(prefix + "ssm_out.weight", n_embd, n_inner)
    w.norm(prefix + "ssm_conv1d.bias", n_inner)
    w.norm(prefix + "ssm_dt.bias", n_inner)
    w.norm(prefix + "ssm_d", n_inner)
    w.tensor(prefix + "ssm_a", (-0.5 - np.abs(w.random.standard_normal((n_inner, N_STATE)))).astype(np.float32))


def _attention(w: Writer, prefix: str, n_embd: int, n_q: int, n_kv: int, kind: gguf.GGMLQuantizationType) -> None:
    w.norm(prefix + "attn_norm.weight", n_embd)
    w.matrix(prefix + "attn_q.weight", n_q, n_embd, kind)
    w.matrix(prefix + "attn_k.weight", n_kv, n_embd, kind)
    w.matrix(prefix + "attn_v.weight", n_kv, n_embd, kind)
    w.matrix(prefix + "attn_output.weight", n_embd, n_q, kind)


def _feed_forward(w: Writer, prefix: str, n_embd: int, n_ff: int, kind: gguf.GGMLQuantizationType) -> None:
    w.norm(prefix + "ffn_norm.weight", n_embd)
    w.matrix(prefix + "ffn_gate.weight", n_ff, n_embd, kind)
    w.matrix(prefix + "ffn_up.weight", n_ff, n_embd, kind)
    w.matrix(prefix + "ffn_down.weight", n_embd, n_ff, kind)


def split(path: Path, directory: Path, *, n_files: int) -> list[Path]:
    """The same model in several files, tensors dealt out in turn, named as llama.cpp expects."""
    reader = gguf.GGUFReader(path)
    paths = [directory / f"model-{i + 1:05d}-of-{n_files:05d}.gguf" for i in range(n_files)]
    for i, part in enumerate(paths):
        writer = gguf.GGUFWriter(part, str(reader.fields["general.architecture"].contents()))
        if i == 0:
            _copy_fields(reader, writer)
        writer.add_uint16(gguf.Keys.Split.LLM_KV_SPLIT_NO, i)
        writer.add_uint16(gguf.Keys.Split.LLM_KV_SPLIT_COUNT, n_files)
        writer.add_int32(gguf.Keys.Split.LLM_KV_SPLIT_TENSORS_COUNT, len(reader.tensors))
        for tensor in reader.tensors[i::n_files]:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return paths


def _copy_fields(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, prefix: str = "") -> None:
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture" or not field.name.startswith(prefix):
            continue
        element = field.types[-1] if field.types[0] is gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=element)
