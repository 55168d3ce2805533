"""What weights come back from: their file, pinned memory or ordinary memory; bounded, counted, given back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lsm.native.memory import Bytes, DeviceMemory, set_shadow
from lsm.native.model import Model
from lsm.tuning import Loading
from tests import tiny_models
from tests.native.runner import ALL, Runner, cycle, open_context, prompt_tokens, story

UNBOUNDED = 2**63
PLAIN = Loading(repack=False)  # no other device rearranges weights
KINDS = ("file", "pinned", "pageable")
by_engine = pytest.mark.parametrize("addresses", ["by_engine"], indirect=True)

pytestmark = pytest.mark.usefixtures("addresses")


@pytest.fixture(autouse=True)
def default_shadow() -> Iterator[None]:
    yield
    set_shadow("file", UNBOUNDED)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_come_back_bit_for_bit_from_each_kind(tiny_gemma3: Path, owner: int, kind: str) -> None:
    """S10: all memory, several cycles, whatever the copy of the weights is."""
    set_shadow(kind, UNBOUNDED)
    with Model.load(tiny_gemma3, owner) as model:
        context = open_context(model)
        undisturbed = story(model, context, lambda: None)
        assert story(model, context, cycle(model, context, *ALL)).same_as(undisturbed)


@pytest.mark.parametrize("kind", KINDS)
def test_without_host_memory_the_file_serves(tiny_llama: Path, owner: int, kind: str) -> None:
    """S10: the bound is kept, and what has no room within it comes from the file."""
    set_shadow(kind, 0)
    with Model.load(tiny_llama, owner, loading=PLAIN) as model:
        context = open_context(model)
        undisturbed = story(model, context, lambda: None)
        assert story(model, context, cycle(model, context, *ALL)).same_as(undisturbed)
        weights = model.memory.bytes("weights")
        assert (weights.host, weights.pinned, weights.registered) == (0, 0, 0)
        assert weights.file == pytest.approx(weights.device, rel=0.02)


def test_a_copy_needs_no_file(tiny_llama: Path, tmp_path: Path, owner: int) -> None:
    """S10: with a copy of its own a model comes back though its file is gone."""
    path = tmp_path / "mine.gguf"
    path.write_bytes(tiny_llama.read_bytes())
    set_shadow("pageable", UNBOUNDED)
    with Model.load(path, owner, loading=PLAIN) as model:
        path.unlink()
        context = open_context(model)
        undisturbed = story(model, context, lambda: None)
        assert story(model, context, cycle(model, context, *ALL)).same_as(undisturbed)
        weights = model.memory.bytes("weights")
        assert (weights.host, weights.file) == (weights.device, 0)


@by_engine
def test_the_file_is_pinned_as_far_as_the_bound_permits(tiny_llama: Path, owner: int) -> None:
    """S10: the pages of the file itself, once for all processes; counted, and given back when the model goes."""
    set_shadow("file", UNBOUNDED)
    for _ in range(2):  # were the first one's share not given back, the second had no room
        with Model.load(tiny_llama, owner, loading=PLAIN) as model:
            weights = model.memory.bytes("weights")
            assert weights.registered == tiny_llama.stat().st_size
            assert (weights.host, weights.pinned) == (0, 0)
        set_shadow("file", tiny_llama.stat().st_size + (64 << 20))
    assert DeviceMemory(owner).bytes("weights") == Bytes()


@by_engine
def test_a_pinned_copy_is_made_at_load_time(tiny_llama: Path, owner: int) -> None:
    """S10: pinning takes long, so the first release must find it done."""
    set_shadow("pinned", UNBOUNDED)
    with Model.load(tiny_llama, owner, loading=PLAIN) as model:
        weights = model.memory.bytes("weights")
        assert (weights.pinned, weights.host, weights.file) == (weights.device, 0, 0)


@by_engine
@pytest.mark.parametrize("prepared", [False, True])
def test_live_memory_goes_into_pinned_room_where_there_is_some(tiny_llama: Path, owner: int, prepared: bool) -> None:
    """S9: the same bits return from pinned room and from ordinary memory."""
    with Model.load(tiny_llama, owner, loading=PLAIN) as model:
        context = open_context(model)
        undisturbed = story(model, context, lambda: None)
        if prepared:
            model.memory.prepare("kv")
            model.memory.wait_for_room("kv")
            kv = model.memory.bytes("kv")
            assert kv.pinned == kv.device
        assert story(model, context, cycle(model, context, *ALL)).same_as(undisturbed)
        model.memory.release("kv")
        assert (model.memory.bytes("kv").host == 0) == prepared


@by_engine
def test_room_beyond_the_bound_is_not_pinned_and_still_serves(tiny_llama: Path, owner: int) -> None:
    """S9: a release copies what has no pinned room into ordinary memory."""
    with Model.load(tiny_llama, owner, loading=PLAIN) as model:
        set_shadow("file", 0)
        context = open_context(model)
        undisturbed = story(model, context, lambda: None)
        model.memory.prepare("kv", "weights", "compute")
        assert story(model, context, cycle(model, context, *ALL)).same_as(undisturbed)
        assert model.memory.bytes("kv").pinned == 0


@by_engine
def test_a_transposed_cache_costs_what_is_used_of_it(tmp_path: Path, owner: int) -> None:
    """S9: without flash attention the values of one position lie in many pages; those of unused positions are not copied."""
    with Model.load(tiny_models.write_llama(tmp_path / "model.gguf"), owner) as model:
        context = open_context(model, n_ctx=32768, n_seq_max=1, flash_attn="off")
        size = model.memory.bytes("kv").device
        Runner(model, context).prompt(0, prompt_tokens(model, 30, salt=1))
        model.memory.release("kv")
        assert 0 < model.memory.bytes("kv").host <= size // 8

