"""C.1, C.2, S17, S28, S33: settings that go to llama.cpp as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsm.errors import ConfigError
from lsm.native.context import Context
from lsm.native.library import ffi, lib
from lsm.native.model import Model
from lsm.native.params import LAZY_MODES, LOAD_MODES, set_computing, set_loading
from lsm.native.warmup import warm_up
from lsm.tuning import Computing, Loading
from tests.native.runner import ON_THE_CPU, cycle, open_context, prompt_tokens, story
from tests.tiny_modes import write_bert, write_t5


def row(model: Model, **settings: Any) -> np.ndarray:
    """The logits after a prompt of 24 tokens, in the context that the settings make."""
    tokens = np.array(prompt_tokens(model, 24, 1), np.int32)
    with open_context(model, **settings) as context:
        positions, zeros = np.arange(24, dtype=np.int32), np.zeros(24, np.int32)
        outputs = (positions == 23).astype(np.int8)
        step = context.step(tokens, positions, zeros, outputs, np.array([23], np.int32), logits=True)
    assert step.code == 0 and step.logits is not None
    return step.logits[0]


@pytest.mark.parametrize("mode", sorted(LOAD_MODES))
def test_every_load_mode_reads_the_same_weights(tiny_llama: Path, owner: int, mode: str) -> None:
    """S28, S33: a CPU load with each mode succeeds; the memory that it has can go and come back in the middle of an answer."""
    with Model.load(tiny_llama, owner) as model, open_context(model) as context:
        wanted = story(model, context, lambda: None)
    with Model.load(tiny_llama, owner, loading=Loading(load_mode=mode)) as model, open_context(model) as context:
        assert story(model, context, cycle(model, context, "weights", "kv", "compute")).same_as(wanted)


def test_a_mapped_file_is_no_device_memory(tiny_llama: Path, owner: int) -> None:
    """S33: mmap leaves to the page cache what needs no rearrangement."""
    with Model.load(tiny_llama, owner, loading=Loading(load_mode="none"), placing=ON_THE_CPU) as model:
        read = model.memory.bytes("weights").device
    with Model.load(tiny_llama, owner, loading=Loading(load_mode="mmap"), placing=ON_THE_CPU) as model:
        assert model.memory.bytes("weights").device < read


def test_modes_have_llama_cpps_numbers() -> None:
    """S17, S28: a direct mapping, by llama.cpp's own names."""
    assert [lib.llama_load_mode_from_str(name.encode()) for name in ("none", "mmap", "dio")] == [
        LOAD_MODES[name] for name in ("none", "mmap", "dio")
    ]
    assert (LAZY_MODES["off"], LAZY_MODES["auto"], LAZY_MODES["on"]) == (0, 1, 2)


def test_without_repacking_the_file_is_the_memory(tiny_llama: Path, owner: int) -> None:
    """C.1: --no-repack; the sums of the same numbers differ in their last bits only."""
    with Model.load(tiny_llama, owner) as model:
        repacked = row(model)
    with Model.load(tiny_llama, owner, loading=Loading(repack=False)) as model:
        np.testing.assert_allclose(row(model), repacked, atol=0.05)


def test_metadata_can_be_replaced(tiny_llama: Path, owner: int) -> None:
    """C.1: --override-kv, in each of its types."""
    given = (
        ("tokenizer.ggml.add_bos_token", False),
        ("llama.context_length", 128),
        ("llama.attention.layer_norm_rms_epsilon", 0.5),
        ("general.name", "other"),
    )
    with Model.load(tiny_llama, owner) as model:
        before = row(model)
    with Model.load(tiny_llama, owner, loading=Loading(override_kv=given)) as model:
        assert (model.vocab.add_bos, model.n_ctx_train) == (False, 128)
        assert not np.allclose(row(model), before)


def test_tensors_go_where_they_are_sent(tiny_llama: Path, owner: int) -> None:
    """C.1: --override-tensor and its shorthands; a placed tensor leaves the rearranged buffers, an unknown place is refused by name."""
    with Model.load(tiny_llama, owner, placing=ON_THE_CPU) as model:
        repacked = row(model)
    with Model.load(tiny_llama, owner, loading=Loading(override_tensor=(("attn_q", "CPU"),), n_cpu_ffn=2), placing=ON_THE_CPU) as model:
        np.testing.assert_allclose(row(model), repacked, atol=0.05)
    with pytest.raises(ConfigError, match="--override-tensor: 'CUDA9' is not one of"):
        Model.load(tiny_llama, owner, loading=Loading(override_tensor=(("attn_q", "CUDA9"),)))


def test_the_rules_of_placement_end_up_in_order() -> None:
    """C.1: own rules first, since the first that matches counts; --n-cpu-moe names the layers."""
    loading = Loading(override_tensor=(("output", "CPU"),), n_cpu_moe=2)
    params = lib.llama_model_default_params()
    kept = set_loading(params, loading)
    patterns = [ffi.string(params.tensor_buft_overrides[i].pattern).decode() for i in range(3)]
    assert patterns == ["output", r"blk\.0\.ffn_(up|down|gate|gate_up)_(ch|)exps", r"blk\.1\.ffn_(up|down|gate|gate_up)_(ch|)exps"]
    assert params.tensor_buft_overrides[3].pattern == ffi.NULL and kept


def test_too_many_rules_are_refused() -> None:
    """C.1: llama.cpp's table has an end."""
    with pytest.raises(ConfigError, match="5000 rules"):
        set_loading(lib.llama_model_default_params(), Loading(n_cpu_moe=5000))


def test_rope_can_be_stretched(tiny_llama: Path, owner: int) -> None:
    """C.2: each of the flags changes what comes out; --rope-scale 2 is --rope-freq-scale 0.5."""
    with Model.load(tiny_llama, owner) as model:
        plain, half = row(model), row(model, computing=Computing(rope_scale=2.0))
        assert np.array_equal(half, row(model, computing=Computing(rope_freq_scale=0.5)))
        yarn = {"rope_scaling": "yarn", "rope_scale": 2.0, "yarn_orig_ctx": 16}
        steps = {"yarn_beta_fast": 1.5}, {"yarn_beta_slow": 0.01}, {"yarn_ext_factor": 0.0, "yarn_attn_factor": 2.0}
        variants = [half, row(model, computing=Computing(rope_freq_base=500.0)), row(model, computing=Computing(**yarn))]
        variants += [row(model, computing=Computing(**(yarn | step))) for step in steps]
        rows = [plain, *variants]
        assert all(not np.array_equal(a, b) for i, a in enumerate(rows) for b in rows[:i])


def test_offloading_is_said_to_llama_cpp() -> None:
    """C.2: --no-kv-offload, --no-op-offload."""
    params = lib.llama_context_default_params()
    set_computing(params, Computing(kv_offload=False, op_offload=False))
    assert (params.offload_kqv, params.op_offload) == (False, False)


@pytest.mark.parametrize("write", [write_bert, write_t5])
def test_warm_up_leaves_nothing_behind(write: Any, tmp_path: Path, owner: int) -> None:
    """C.2: --warmup: also what has no KV cache, or an encoder, computes once; the cache is empty afterwards."""
    computing = Computing(embeddings=write is write_bert)
    with Model.load(write(tmp_path / "m.gguf"), owner) as model, _small(model, computing) as context:
        warm_up(model, context)
        assert not context.has_memory or context.seq_pos_max(0) == -1


def _small(model: Model, computing: Computing) -> Context:
    return open_context(model, n_ctx=128, n_batch=64, n_ubatch=64, n_seq_max=1, computing=computing)
