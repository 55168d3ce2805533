"""Release and restore change nothing that a caller can see: tokens and logits are the same bits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lsm.native.model import Model
from lsm.tuning import Computing
from tests import tiny_architectures, tiny_models
from tests.native.runner import ALL, Runner, cycle, open_context, prompt_tokens, story
from tests.tiny_modes import write_bert

pytestmark = pytest.mark.usefixtures("addresses")

TINY: dict[str, Callable[[Path], Path]] = {
    "llama": tiny_models.write_llama,
    "gemma3": tiny_models.write_gemma3,
    "mamba": tiny_models.write_mamba,
    "moe": tiny_architectures.write_moe,
    "hybrid": tiny_architectures.write_hybrid,
}


@pytest.mark.parametrize("flash_attn", ["on", "off"])
@pytest.mark.parametrize("kv_unified", [False, True])
@pytest.mark.parametrize("architecture", sorted(TINY))
def test_all_memory_comes_back_bit_for_bit(tmp_path: Path, owner: int, architecture: str, kv_unified: bool, flash_attn: str) -> None:
    """S9, S10: weights, KV and compute together, several cycles, several sequences, copies between them, for each kind of memory."""
    with Model.load(TINY[architecture](tmp_path / "model.gguf"), owner) as model:
        context = open_context(model, kv_unified=kv_unified, flash_attn=flash_attn)
        undisturbed = story(model, context, lambda: None)
        assert story(model, context, cycle(model, context, *ALL)).same_as(undisturbed)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("architecture", sorted(TINY))
def test_each_class_comes_and_goes_alone(tmp_path: Path, owner: int, architecture: str, name: str) -> None:
    """S10: one class at a time; the others stay resident."""
    with Model.load(TINY[architecture](tmp_path / "model.gguf"), owner) as model:
        context = open_context(model)
        undisturbed = story(model, context, lambda: None)
        pause = cycle(model, context, name)

        def check_others() -> None:
            model.memory.release(name)
            assert all(model.memory.resident(other) for other in ALL if other != name)
            pause()

        assert story(model, context, check_others).same_as(undisturbed)


@pytest.mark.parametrize("architecture", sorted(TINY))
def test_the_contents_of_the_cache_stay_the_same(tmp_path: Path, owner: int, architecture: str) -> None:
    """S10: all that it holds of each sequence, over several cycles."""
    with Model.load(TINY[architecture](tmp_path / "model.gguf"), owner) as model:
        context = open_context(model)
        story(model, context, lambda: None)
        before = [context.sequence_state(sequence).tobytes() for sequence in range(3)]
        assert len(set(before)) == 3
        for _ in range(3):
            cycle(model, context, *ALL)()
            assert [context.sequence_state(sequence).tobytes() for sequence in range(3)] == before


@pytest.mark.parametrize("classes", [("weights",), ("compute",), ("weights", "compute")])
def test_an_encoder_comes_back_bit_for_bit(tmp_path: Path, owner: int, classes: tuple[str, ...]) -> None:
    """S10: a model without a cache; the embeddings of two texts, several cycles."""
    with Model.load(write_bert(tmp_path / "model.gguf"), owner) as model:
        context = open_context(model, computing=Computing(embeddings=True), n_seq_max=2)
        tokens = np.array(prompt_tokens(model, 48, salt=1), np.int32)
        sequences = np.repeat(np.arange(2, dtype=np.int32), 24)
        positions = np.tile(np.arange(24, dtype=np.int32), 2)

        def embeddings() -> bytes:
            assert context.encode(tokens, positions, sequences, np.ones(48, np.int8)) == 0
            return b"".join(context.sequence_embedding(sequence).tobytes() for sequence in range(2))

        undisturbed = embeddings()
        assert undisturbed[: len(undisturbed) // 2] != undisturbed[len(undisturbed) // 2 :]
        for _ in range(3):
            cycle(model, context, *classes)()
            assert embeddings() == undisturbed


@pytest.mark.parametrize("kind", [tiny_models.F16, tiny_models.F32, tiny_models.Q4_0])
def test_plain_and_repacked_weights_need_no_second_copy(tmp_path: Path, owner: int, kind: object) -> None:
    """S10: the file is the copy of every tensor, also where the device stores it in another layout."""
    path = tiny_models.write_llama(tmp_path / "model.gguf", kind=kind)  # type: ignore[arg-type]
    with Model.load(path, owner) as model:
        context = open_context(model)
        story(model, context, lambda: None)
        model.memory.release(*ALL)
        weights = model.memory.bytes("weights")
        assert (weights.device, weights.host) == (0, 0)
        assert weights.file == pytest.approx(weights.released, rel=0.02)  # the rest is padding


def test_a_split_model_is_restored_from_all_of_its_files(tiny_llama: Path, tmp_path: Path, owner: int) -> None:
    """S10: each tensor comes from the file that holds it."""
    parts = tiny_models.split(tiny_llama, tmp_path, n_files=3)
    with Model.load(parts[0], owner) as model:
        context = open_context(model)
        undisturbed = story(model, context, lambda: None)
        assert story(model, context, cycle(model, context, *ALL)).same_as(undisturbed)
        assert model.memory.bytes("weights").host == 0


def test_both_verbs_are_idempotent(tiny_llama: Path, owner: int) -> None:
    """S10: releasing what is away and restoring what is here does nothing."""
    with Model.load(tiny_llama, owner) as model:
        context = open_context(model)
        undisturbed = story(model, context, lambda: None)

        def twice() -> None:
            for verb in (model.memory.restore, model.memory.release, model.memory.release, model.memory.restore, model.memory.restore):
                verb(*ALL)

        assert story(model, context, twice).same_as(undisturbed)


def test_the_cost_of_kv_follows_its_use(tmp_path: Path, owner: int) -> None:
    """S9: of a cache of 4096 positions only the pages of the few used ones are copied."""
    with Model.load(tiny_models.write_llama(tmp_path / "model.gguf"), owner) as model:
        context = open_context(model, n_ctx=4096, n_seq_max=1, flash_attn="on")
        size = model.memory.bytes("kv").device
        Runner(model, context).prompt(0, prompt_tokens(model, 30, salt=1))
        model.memory.release("kv")
        kept = model.memory.bytes("kv")
        assert 0 < kept.file + kept.host <= size * 64 // 4096
        model.memory.restore("kv")
        assert model.memory.bytes("kv")[2:4] == (0, 0)


def test_a_cache_cleared_while_away_comes_back_empty(tiny_llama: Path, owner: int) -> None:
    """S6: clearing needs no memory, and nothing of the old contents returns."""
    with Model.load(tiny_llama, owner) as model:
        context = open_context(model)
        undisturbed = story(model, context, lambda: None)
        model.memory.release("kv")
        context.memory_clear()
        assert model.memory.bytes("kv").file == 0
        model.memory.restore("kv")
        assert context.seq_pos_max(0) == -1
        assert story(model, context, lambda: None).same_as(undisturbed)


def test_two_models_take_turns(tiny_llama: Path, tiny_mamba: Path, owner: int) -> None:
    """S10: only one is in memory at any time, and neither notices."""
    with Model.load(tiny_llama, owner) as first, Model.load(tiny_mamba, owner + 500_000) as second:
        contexts = {model: open_context(model) for model in (first, second)}
        undisturbed = {model: story(model, contexts[model], lambda: None) for model in (first, second)}
        second.memory.release(*ALL)

        def turn(mine: Model, other: Model) -> Callable[[], None]:
            def pause() -> None:
                mine.memory.release(*ALL)
                other.memory.restore(*ALL)
                assert not mine.memory.bytes("weights").device and other.memory.bytes("weights").device
                other.memory.release(*ALL)
                mine.memory.restore(*ALL)

            return pause

        assert story(first, contexts[first], turn(first, second)).same_as(undisturbed[first])
        first.memory.release(*ALL)
        second.memory.restore(*ALL)
        assert story(second, contexts[second], turn(second, first)).same_as(undisturbed[second])


def test_owners_do_not_disturb_each_other(tiny_llama: Path, tiny_gemma3: Path, owner: int) -> None:
    """S10: each on its own thread, one decoding while the other moves."""
    with Model.load(tiny_llama, owner) as first, Model.load(tiny_gemma3, owner + 500_000) as second:
        contexts = {model: open_context(model) for model in (first, second)}
        undisturbed = {model: story(model, contexts[model], lambda: None) for model in (first, second)}
        disturbed = []

        def live(model: Model) -> None:
            for _ in range(3):
                if not story(model, contexts[model], cycle(model, contexts[model], *ALL)).same_as(undisturbed[model]):
                    disturbed.append(model.architecture)

        threads = [threading.Thread(target=live, args=(model,)) for model in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert disturbed == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_real_models_come_back_bit_for_bit(real_model: Callable[[str], Path], owner: int, name: str) -> None:
    """S9, S10: SmolLM2 (Q4_1) and Gemma 3 (Q4_K repacked, tied embeddings, sliding windows), all memory, several cycles."""
    with Model.load(real_model(name), owner) as model:
        context = open_context(model, n_ctx=1536)
        undisturbed = story(model, context, lambda: None, n_steps=2)
        assert story(model, context, cycle(model, context, *ALL), n_steps=2).same_as(undisturbed)
        model.memory.release(*ALL)
        assert model.memory.bytes("weights").host == 0
