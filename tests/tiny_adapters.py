"""What acts beside the weights of `tests.tiny_models.write_llama`: LoRA adapters and control vectors, random and small."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np

from tests.tiny_models import Writer

N_EMBD = 128
SHAPES = {"attn_q": (128, N_EMBD), "ffn_down": (N_EMBD, 256)}  # rows (outputs), columns (inputs) of the model's matrices


def write_lora(
    path: Path,
    *,
    seed: int = 11,
    rank: int = 4,
    alpha: float = 8.0,
    n_layer: int = 2,
    architecture: str = "llama",
    invocation_tokens: Sequence[int] = (),
) -> Path:
    """Strong enough to change every logit; two seeds give files whose tensors differ in nothing but their values."""
    w = Writer(path, architecture, seed)
    w.gguf.add_type(gguf.GGUFType.ADAPTER)
    w.gguf.add_string(gguf.Keys.Adapter.TYPE, "lora")
    w.gguf.add_float32(gguf.Keys.Adapter.LORA_ALPHA, alpha)
    w.gguf.add_string("adapter.lora.task_name", f"task {seed}")
    w.gguf.add_string("adapter.lora.prompt_prefix", f"prefix {seed}")
    if invocation_tokens:
        w.gguf.add_key_value(
            "adapter.alora.invocation_tokens", list(invocation_tokens), gguf.GGUFValueType.ARRAY, sub_type=gguf.GGUFValueType.UINT32
        )
    for layer in range(n_layer):
        for name, (rows, columns) in SHAPES.items():
            w.matrix(f"blk.{layer}.{name}.weight.lora_a", rank, columns, scale=0.3)
            w.matrix(f"blk.{layer}.{name}.weight.lora_b", rows, rank, scale=0.3)
    w.close()
    return path


def write_control_vector(path: Path, *, seed: int = 21, layers: Sequence[int] = (1,), n_embd: int = N_EMBD) -> Path:
    """One direction for each of these layers; layer 0 can have none."""
    w = Writer(path, "controlvector", seed)
    for layer in layers:
        w.tensor(f"direction.{layer}", w.random.standard_normal(n_embd).astype(np.float32))
    w.close()
    return path
