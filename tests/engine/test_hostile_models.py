"""D.1: whatever a file's metadata says, it ends in a sentence; llama.cpp's assertions would end the process."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lsm.engine.gguf_header import read_header
from tests.engine.gguf_bytes import STRING, U32, text
from tests.engine.gguf_edit import GgufEdit

I32, F32 = 5, 6
LIMIT_S = 300
Change = Callable[[GgufEdit], object]
Variants = Callable[[Path, Sequence[Change]], list[str]]
HUGE = 2**32 - 1
N_VOCAB = 320


def number(key: str, value: float, type_id: int = U32) -> Change:
    return lambda edit: edit.set_number(f"llama.{key}", value, type_id)


def numbers(key: str, *values: float) -> Change:
    return lambda edit: edit.set_numbers(f"llama.{key}", U32, list(values))


def label(key: str, value: str) -> Change:
    return lambda edit: edit.set_text(key, value)


def tokens(*names: str | bytes) -> Change:
    return lambda edit: edit.set_array("tokenizer.ggml.tokens", STRING, [text(name) for name in names])


def experts(n: int, used: int, groups: int = 0, groups_used: int = 0) -> Change:
    values = {"expert_count": n, "expert_used_count": used, "expert_group_count": groups, "expert_group_used_count": groups_used}
    return lambda edit: [edit.set_number(f"llama.{key}", value, U32) for key, value in values.items()]


def window(n_tokens: int, pattern: int) -> Change:
    values = {"attention.sliding_window": n_tokens, "attention.sliding_window_pattern": pattern}
    return lambda edit: [edit.set_number(f"llama.{key}", value, U32) for key, value in values.items()]


# What is changed in a small llama of two layers, and the key that the refusal must name.
ENDED_THE_PROCESS: dict[str, tuple[Change, str]] = {
    "no layers": (number("block_count", 0), "llama.block_count = 0"),
    "513 layers": (number("block_count", 513), "llama.block_count = 513"),
    "4 billion layers": (number("block_count", HUGE), f"llama.block_count = {HUGE}"),
    "more layers ahead than layers": (number("nextn_predict_layers", 3), "llama.nextn_predict_layers"),
    "1025 experts": (experts(1025, 1), "llama.expert_count"),
    "experts of which none is used": (experts(8, 0), "llama.expert_used_count"),
    "experts in use of which there is none": (experts(0, 1), "llama.expert_used_count"),
    "more experts in use than there are": (experts(8, 9), "llama.expert_used_count"),
    "too many experts in one layer": (
        lambda edit: (experts(8, 2)(edit), numbers("expert_used_count", 2, 9)(edit)),
        "llama.expert_used_count = (2, 9)",
    ),
    "groups without experts": (experts(0, 0, 1), "llama.expert_group_count"),
    "as many groups as experts": (experts(8, 2, 8, 1), "llama.expert_group_count"),
    "groups of different size": (experts(8, 2, 3, 1), "llama.expert_group_count"),
    "no group in use": (experts(8, 2, 4, 0), "llama.expert_group_used_count"),
    "all groups in use": (experts(8, 2, 4, 4), "llama.expert_group_used_count"),
    "unknown scaling": (label("llama.rope.scaling.type", "twice"), "llama.rope.scaling.type = 'twice'"),
    "unknown pooling": (number("pooling_type", 5), "llama.pooling_type = 5"),
    "no pair for RoPE": (number("rope.dimension_count", 0), "llama.rope.dimension_count = 0"),
    "half a pair for RoPE": (number("rope.dimension_count", 63), "llama.rope.dimension_count = 63"),
    "more pairs than a head has": (number("rope.dimension_count", 66), "llama.rope.dimension_count = 66"),
    "more pairs in sliding layers": (number("rope.dimension_count_swa", 66), "llama.rope.dimension_count_swa = 66"),
    "window in no layer": (window(16, 1), "llama.attention.sliding_window_pattern"),
    "negative epsilon": (number("attention.layer_norm_rms_epsilon", -1.0, F32), "llama.attention.layer_norm_rms_epsilon"),
    "epsilon that is no number": (number("attention.layer_norm_rms_epsilon", math.nan, F32), "llama.attention.layer_norm_rms_epsilon"),
    "the same token twice": (tokens("a", "a", *map(str, range(N_VOCAB - 2))), "of which 1 stand twice"),
    "the same up to a zero byte": (tokens("a", "a\0b", *map(str, range(N_VOCAB - 2))), "of which 1 stand twice"),
    "words with tokens of bytes": (label("tokenizer.ggml.model", "bert"), "tokenizer.ggml.token_type"),
}
NOT_IN_EACH = (
    "attention.head_count_kv", "attention.key_length", "attention.value_length", "attention.sliding_window",
    "attention.sliding_window_pattern", "expert_count", "expert_used_count", "nextn_predict_layers",
    "pooling_type", "rope.dimension_count", "vocab_size",
)  # fmt: skip
BORDERS = (0, 1, 2, 3, 7, 64, 512, 513, 1025, 2**31 - 1, 2**31, HUGE)


@pytest.fixture
def variants(tmp_path: Path) -> Variants:
    """How the loading of each changed file ends, in one process for all: a signal is the end of the list."""

    def load(base: Path, changes: Sequence[Change]) -> list[str]:
        paths = []
        for i, change in enumerate(changes):
            edit = GgufEdit(base)
            change(edit)
            paths.append(edit.write(tmp_path / f"{i}.gguf"))
        command = [sys.executable, "-m", "tests.engine.load_each", *map(str, paths)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LIMIT_S, check=False)
        lines = done.stdout.splitlines()
        assert done.returncode == 0, f"file {len(lines)} ended the process ({done.returncode}): {done.stderr[-600:]}"
        return lines

    return load


def test_what_ended_the_process_is_refused_by_name(variants: Variants, tiny_llama: Path) -> None:
    """D.1: each of llama.cpp's assertions on metadata that a file can reach."""
    outcomes = variants(tiny_llama, [change for change, _ in ENDED_THE_PROCESS.values()])
    for case, outcome, (_, fault) in zip(ENDED_THE_PROCESS, outcomes, ENDED_THE_PROCESS.values(), strict=True):
        assert outcome.startswith("refused: ") and fault in outcome, case


def test_what_is_within_the_limits_is_left_to_llama_cpp(tiny_llama: Path, tmp_path: Path) -> None:
    """D.1: the checks refuse nothing that llama.cpp takes: experts in groups, one number for each layer, tokens without a name."""
    changes: list[Change] = [
        experts(8, 2, 4, 2),
        experts(8, 8),
        experts(8, 2, 1),
        lambda edit: (experts(8, 2)(edit), numbers("expert_used_count", 2, 4)(edit)),
        number("block_count", 512),
        number("rope.dimension_count", 32),
        window(16, 2),
        window(0, 1),
        number("attention.layer_norm_rms_epsilon", 0.0, F32),
        label("llama.rope.scaling.type", "yarn"),
        tokens("", "", b"\xff", b"\xfe", *map(str, range(N_VOCAB - 4))),
    ]
    for change in changes:
        edit = GgufEdit(tiny_llama)
        change(edit)
        read_header(edit.write(tmp_path / "m.gguf"))


def changes_of(base: Path) -> list[Change]:
    """Every key removed, at every border of its type, and of another type."""
    edit = GgufEdit(base)
    changes: list[Change] = []
    for key, pair in edit.pairs.items():
        changes.append(lambda edit, key=key: edit.pairs.pop(key))
        changes.append(lambda edit, key=key: edit.set_text(key, "x"))
        changes.append(lambda edit, key=key: edit.set_numbers(key, I32, [9] * 100))
        if pair.type_id == U32:
            changes += [lambda edit, key=key, value=value: edit.set_number(key, value) for value in BORDERS]
        if pair.type_id == F32:
            changes += [lambda edit, key=key, value=value: edit.set_number(key, value) for value in (0.0, -1.0, 1e30, math.nan, math.inf)]
    architecture = next(key for key in edit.pairs if key.endswith(".block_count")).partition(".")[0]
    for key in NOT_IN_EACH:
        changes += [lambda edit, key=key, value=value: edit.set_number(f"{architecture}.{key}", value, U32) for value in BORDERS]
    return changes


@pytest.mark.slow
@pytest.mark.parametrize("base", ["tiny_llama", "tiny_gemma3", "tiny_mamba"])
def test_no_key_at_no_border_ends_the_process(variants: Variants, base: str, request: pytest.FixtureRequest) -> None:
    """D.1: the file is loaded, refused or fails; it never takes the process with it."""
    path: Path = request.getfixturevalue(base)
    changes = changes_of(path)
    outcomes = variants(path, changes)
    assert len(outcomes) == len(changes)
    assert {outcome.partition(":")[0] for outcome in outcomes} >= {"loaded", "refused"}
