"""Large llama-architecture models with random weights, written quickly: `python -m tests.bench.random_model 4b f16 FILE`.

Random values are drawn once and tiled over the tensors, each from another offset: what is measured does not depend on what a model says.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

KINDS = {"f16": gguf.GGMLQuantizationType.F16, "q8_0": gguf.GGMLQuantizationType.Q8_0}
POOL_VALUES = 1 << 24


@dataclass(frozen=True)
class Shape:
    n_vocab: int
    n_embd: int
    n_layer: int
    n_head: int
    n_head_kv: int
    n_ff: int
    n_ctx: int = 32768


SHAPES = {
    "tiny": Shape(n_vocab=512, n_embd=128, n_layer=2, n_head=4, n_head_kv=2, n_ff=256),
    "1b": Shape(n_vocab=32000, n_embd=2048, n_layer=16, n_head=32, n_head_kv=8, n_ff=8192),
    "4b": Shape(n_vocab=32000, n_embd=3072, n_layer=32, n_head=24, n_head_kv=8, n_ff=10240),
}


def write(path: Path, shape: Shape, kind: str) -> None:
    """Write the model, tensor by tensor: it is never in memory as a whole."""
    writer = gguf.GGUFWriter(path, "llama")
    _metadata(writer, shape)
    pool = _pool(kind)
    tensors = list(_tensors(shape))
    for name, dimensions in tensors:
        _declare(writer, name, dimensions, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for i, (_, dimensions) in enumerate(tensors):
        writer.write_tensor_data(_values(pool, dimensions, kind, i))
    writer.close()


def _metadata(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_name("random")
    writer.add_context_length(shape.n_ctx)
    writer.add_embedding_length(shape.n_embd)
    writer.add_block_count(shape.n_layer)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.n_head)
    writer.add_head_count_kv(shape.n_head_kv)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.n_embd // shape.n_head)
    writer.add_vocab_size(shape.n_vocab)
    kinds = gguf.TokenType
    tokens = [("<unk>", kinds.UNKNOWN), ("<s>", kinds.CONTROL), ("</s>", kinds.CONTROL)]
    tokens += [(f"<0x{byte:02X}>", kinds.BYTE) for byte in range(256)]
    tokens += [(f"w{i}", kinds.NORMAL) for i in range(shape.n_vocab - len(tokens))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _ in tokens])
    writer.add_token_scores([-float(i) for i in range(shape.n_vocab)])
    writer.add_token_types([kind for _, kind in tokens])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(name, (rows, columns)) of a matrix, (name, (size,)) of a norm."""
    n_kv = shape.n_embd // shape.n_head * shape.n_head_kv
    yield "token_embd.weight", (shape.n_vocab, shape.n_embd)
    for i in range(shape.n_layer):
        yield f"blk.{i}.attn_norm.weight", (shape.n_embd,)
        yield f"blk.{i}.attn_q.weight", (shape.n_embd, shape.n_embd)
        yield f"blk.{i}.attn_k.weight", (n_kv, shape.n_embd)
        yield f"blk.{i}.attn_v.weight", (n_kv, shape.n_embd)
        yield f"blk.{i}.attn_output.weight", (shape.n_embd, shape.n_embd)
        yield f"blk.{i}.ffn_norm.weight", (shape.n_embd,)
        yield f"blk.{i}.ffn_gate.weight", (shape.n_ff, shape.n_embd)
        yield f"blk.{i}.ffn_up.weight", (shape.n_ff, shape.n_embd)
        yield f"blk.{i}.ffn_down.weight", (shape.n_embd, shape.n_ff)
    yield "output_norm.weight", (shape.n_embd,)
    yield "output.weight", (shape.n_vocab, shape.n_embd)


def _pool(kind: str) -> NDArray[np.uint8]:
    """POOL_VALUES random weights as the file holds them, and once more behind themselves."""
    values = (np.random.default_rng(1).standard_normal(POOL_VALUES, np.float32) * 0.02).reshape(-1, 4096)
    once = gguf.quants.quantize(values, KINDS[kind]).view(np.uint8).reshape(-1)
    return np.concatenate([once, once])


def _declare(writer: gguf.GGUFWriter, name: str, dimensions: tuple[int, ...], kind: str) -> None:
    if len(dimensions) == 1:
        writer.add_tensor_info(name, dimensions, np.dtype(np.float32), 4 * dimensions[0])
        return
    in_bytes = gguf.quant_shape_to_byte_shape(dimensions, KINDS[kind])
    writer.add_tensor_info(name, in_bytes, np.dtype(np.uint8), int(np.prod(in_bytes)), KINDS[kind])


def _values(pool: NDArray[np.uint8], dimensions: tuple[int, ...], kind: str, seed: int) -> NDArray[np.uint8] | NDArray[np.float32]:
    if len(dimensions) == 1:
        return np.ones(dimensions, np.float32)
    _, block_bytes = gguf.GGML_QUANT_SIZES[KINDS[kind]]
    n_bytes = int(np.prod(gguf.quant_shape_to_byte_shape(dimensions, KINDS[kind])))
    half = len(pool) // 2
    start = seed * 7919 * block_bytes % half
    return np.resize(pool[start : start + half], n_bytes)


if __name__ == "__main__":
    write(Path(sys.argv[3]), SHAPES[sys.argv[1]], sys.argv[2])
