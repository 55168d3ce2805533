"""What llama.cpp asserts of a model's metadata, checked before: there a value out of its range ends the process.

Only what ends it stands here.  What llama.cpp itself refuses (a missing key, a shape that does not fit) becomes an error without us.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lsm.engine.gguf_reader import Damaged
from lsm.engine.gguf_types import TOKEN_TYPES, TOKENS, ArraySummary, Value
from lsm.tuning import POOLINGS

MAX_LAYERS = 512  # LLAMA_MAX_LAYERS
MAX_EXPERTS = 1024  # LLAMA_MAX_EXPERTS
ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")
WITHOUT_ROPE = frozenset(
    "arwkv7 bloom clip glm5-next gpt2 gptj jais jamba jina-bert-v2 kimi-k3 kimi-linear mamba mamba2 mpt nemotron_h nemotron_h_moe refact"
    " rwkv6 rwkv6qwen2 rwkv7 t5 t5encoder wavtokenizer-dec".split()
)
EPSILONS = ("attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon", "attention.group_norm_epsilon")
BYTE_TOKEN = 6
REMEDY = "llama.cpp cannot load such a file: download it again, or convert it again"


def check_limits(architecture: str, metadata: Mapping[str, Value]) -> None:
    """Raise Damaged with the key that is out of its range."""
    keys = _Keys(architecture, metadata)
    _check_layers(keys)
    _check_experts(keys)
    _check_numbers(keys)
    _check_positions(keys)
    _check_window(keys)
    _check_vocabulary(metadata)


class _Keys:
    """The keys of the model's own architecture, which begin with its name."""

    def __init__(self, architecture: str, metadata: Mapping[str, Value]) -> None:
        self.architecture = architecture
        self._metadata = metadata

    def get(self, key: str) -> Value | None:
        return self._metadata.get(f"{self.architecture}.{key}")

    def integer(self, key: str, default: int = 0) -> int:
        value = self.get(key)
        return value if type(value) is int else default  # llama.cpp refuses another type by itself

    def first(self, key: str) -> int:
        """Of one value for all layers, or of one for each."""
        value = self.get(key)
        first = value[0] if isinstance(value, tuple) and value else value
        return first if type(first) is int else 0

    def largest(self, key: str, n: int) -> int:
        """Of one value for all layers, or of one for each of `n`."""
        value = self.get(key)
        return max((one for one in value[:n] if type(one) is int), default=0) if isinstance(value, tuple) else self.integer(key)

    def refuse(self, key: str, fault: str) -> Damaged:
        return Damaged(f"has {self.architecture}.{key} = {self.get(key)!r}, {fault}; {REMEDY}")


def _check_layers(keys: _Keys) -> None:
    n_layers = keys.integer("block_count", 1)
    if not 1 <= n_layers <= MAX_LAYERS:
        raise keys.refuse("block_count", f"possible are 1 to {MAX_LAYERS} layers")
    for key in ("nextn_predict_layers", "posnet.block_count", "convnext.block_count"):
        if not 0 <= keys.integer(key) <= n_layers:
            raise keys.refuse(key, f"more than the {n_layers} layers of the model")


def _check_experts(keys: _Keys) -> None:
    n_experts, n_groups = keys.integer("expert_count"), keys.integer("expert_group_count")
    n_used = keys.largest("expert_used_count", keys.integer("block_count", 1))
    if keys.architecture in ("hunyuan-dense", "hunyuan_vl") and n_experts <= 1:
        n_experts = n_used = 0
    if not 0 <= n_experts <= MAX_EXPERTS:
        raise keys.refuse("expert_count", f"possible are up to {MAX_EXPERTS} experts")
    if not min(n_experts, 1) <= n_used <= n_experts:
        raise keys.refuse("expert_used_count", f"which does not fit its {n_experts} experts")
    if not 0 <= n_groups < max(n_experts, 1) or (n_groups > 1 and n_experts % n_groups):
        raise keys.refuse("expert_group_count", f"which does not divide its {n_experts} experts")
    if n_groups > 1 and not 0 < keys.integer("expert_group_used_count") < n_groups:
        raise keys.refuse("expert_group_used_count", f"which does not fit its {n_groups} groups of experts")


def _check_numbers(keys: _Keys) -> None:
    scaling = keys.get("rope.scaling.type")
    if isinstance(scaling, str) and scaling not in ROPE_SCALINGS:
        raise keys.refuse("rope.scaling.type", f"known are {', '.join(ROPE_SCALINGS)}")
    if not -1 <= keys.integer("pooling_type", -1) < len(POOLINGS):
        raise keys.refuse("pooling_type", f"known are 0 to {len(POOLINGS) - 1}: {', '.join(POOLINGS)}")
    for key in EPSILONS:
        epsilon = keys.get(key)
        if isinstance(epsilon, float) and not epsilon >= 0:  # so that NaN is refused too
            raise keys.refuse(key, "which is not 0 or more")


def _check_positions(keys: _Keys) -> None:
    """RoPE turns pairs of a head's elements; without one pair it never ends."""
    n_heads = keys.first("attention.head_count")
    if n_heads <= 0 or keys.architecture in WITHOUT_ROPE:
        return
    size = keys.integer("attention.key_length", keys.integer("embedding_length") // n_heads)
    _check_pairs(keys, "rope.dimension_count", size)
    _check_pairs(keys, "rope.dimension_count_swa", keys.integer("attention.key_length_swa", size))


def _check_pairs(keys: _Keys, key: str, head_size: int) -> None:
    n_turned = keys.integer(key, 2)
    if n_turned <= 0 or n_turned % 2 or (keys.get(key) is not None and n_turned > head_size):
        raise keys.refuse(key, f"which is not an even part of a head of {head_size} elements")


def _check_window(keys: _Keys) -> None:
    """A model with a sliding window has a layer that slides."""
    pattern = keys.get("attention.sliding_window_pattern")
    none_slides = pattern == 1 if type(pattern) is int else isinstance(pattern, tuple) and not any(pattern)
    if none_slides and keys.integer("attention.sliding_window") > 0:
        raise keys.refuse("attention.sliding_window_pattern", "with which no layer uses its sliding window")


def _check_vocabulary(metadata: Mapping[str, Value]) -> None:
    tokens, model = metadata.get(TOKENS), metadata.get("tokenizer.ggml.model")
    if isinstance(tokens, ArraySummary) and 0 <= tokens.n_distinct < tokens.length and model != "hybriddna":
        raise Damaged(f"has {tokens.length} tokens of which {tokens.length - tokens.n_distinct} stand twice ({TOKENS}); {REMEDY}")
    if model == "bert" and BYTE_TOKEN in _kinds(metadata.get(TOKEN_TYPES)):
        raise Damaged(f"has tokens of bytes ({TOKEN_TYPES}) in a vocabulary of words ('bert'); {REMEDY}")


def _kinds(types: Value | None) -> Iterator[int]:
    values = types.kinds if isinstance(types, ArraySummary) else types if isinstance(types, tuple) else ()
    return (kind for kind in values if type(kind) is int)
