"""Whatever fails, and wherever: what was there before is there afterwards, whole, and a second try works."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lsm.errors import DeviceMemoryError, LoadCancelled, LsmError, ModelFileError, ServerError
from lsm.native.library import ffi, lib
from lsm.native.memory import Bytes, DeviceMemory
from lsm.native.model import Model
from tests.native.runner import ALL, ON_THE_CPU, open_context, story

pytestmark = pytest.mark.usefixtures("addresses")


@pytest.fixture(autouse=True)
def disarm() -> Iterator[None]:
    yield
    for point in (lib.LSM_FAULT_MAP, lib.LSM_FAULT_FILL, lib.LSM_FAULT_SAVE):
        lib.lsm_device_fail_at(point, -1)


def fail_at_each(point: int, attempt: Callable[[], None], check: Callable[[], None], error: type[LsmError]) -> int:
    """Let the first passage of the point fail, then the second, ... until the attempt gets through; returns how many failed."""
    for n in itertools.count():
        lib.lsm_device_fail_at(point, n)
        try:
            attempt()
        except error:
            check()
        else:
            return n
    raise AssertionError("unreachable")


@pytest.mark.parametrize(("point", "error"), [("LSM_FAULT_MAP", DeviceMemoryError), ("LSM_FAULT_FILL", ModelFileError)])
@pytest.mark.parametrize("model_file", ["tiny_llama", "tiny_gemma3", "tiny_mamba"])
def test_a_restore_that_fails_half_way_changes_nothing(
    request: pytest.FixtureRequest, owner: int, model_file: str, point: str, error: type[LsmError]
) -> None:
    """S10: memory refused, or a file unreadable, at each buffer in turn; then a restore that works gives the same bits as ever."""
    with Model.load(request.getfixturevalue(model_file), owner) as model:
        context = open_context(model)
        undisturbed = story(model, context, lambda: None)
        failures = 0

        def pause() -> None:
            nonlocal failures
            model.memory.release(*ALL)
            away = [model.memory.bytes(name) for name in ALL]

            def nothing_changed() -> None:
                assert [model.memory.bytes(name) for name in ALL] == away
                assert not any(model.memory.resident(name) for name in ALL)

            failures += fail_at_each(getattr(lib, point), lambda: model.memory.restore(*ALL), nothing_changed, error)

        assert story(model, context, pause).same_as(undisturbed)
        assert failures >= 3 * 3  # at least one buffer of each class, in each pause


def writable_bytes() -> int:
    """Of this process's address space; reserved addresses without memory under them are not writable."""
    total = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, permissions = line.split()[:2]
        if permissions.startswith("rw"):
            first, last = (int(address, 16) for address in addresses.split("-"))
            total += last - first
    return total


@pytest.mark.parametrize(("point", "error"), [("LSM_FAULT_MAP", DeviceMemoryError), ("LSM_FAULT_FILL", ModelFileError)])
def test_a_restore_that_fails_half_way_gives_back_what_it_took(tiny_llama: Path, owner: int, point: str, error: type[LsmError]) -> None:
    """S10: whichever buffer it fails at, none of the memory taken before stays taken."""
    with Model.load(tiny_llama, owner, placing=ON_THE_CPU) as model:
        open_context(model, n_ctx=4096, n_seq_max=1, n_batch=512, n_ubatch=512, type_k="f32", type_v="f32")
        sizes = [model.memory.bytes(name).device for name in ("kv", "compute")]
        model.memory.release(*ALL)
        away = writable_bytes()

        def nothing_taken() -> None:
            assert writable_bytes() - away < min(sizes) // 2

        assert min(sizes) > 4 << 20  # far above what Python itself may map meanwhile
        assert fail_at_each(getattr(lib, point), lambda: model.memory.restore(*ALL), nothing_taken, error) >= 3
        assert writable_bytes() - away > sum(sizes)


def test_a_release_without_room_for_copies_releases_nothing(tiny_gemma3: Path, owner: int) -> None:
    """S9: the host has no room: everything stays resident, no copies are left behind, and a later release works."""
    with Model.load(tiny_gemma3, owner) as model:
        context = open_context(model)
        undisturbed = story(model, context, lambda: None)

        def pause() -> None:
            here = [model.memory.bytes(name) for name in ALL]

            def nothing_changed() -> None:
                assert [model.memory.bytes(name) for name in ALL] == here

            n_parts = fail_at_each(lib.LSM_FAULT_SAVE, lambda: model.memory.release(*ALL), nothing_changed, DeviceMemoryError)
            assert n_parts >= 2  # the window's and the rest
            model.memory.restore(*ALL)

        assert story(model, context, pause).same_as(undisturbed)


def test_a_load_without_room_leaves_nothing_behind(tiny_llama: Path, owner: int) -> None:
    """S10: each allocation of the weights is refused in turn."""

    def nothing_left() -> None:
        assert DeviceMemory(owner).bytes("weights") == Bytes()

    def load() -> None:
        Model.load(tiny_llama, owner, placing=ON_THE_CPU).close()

    assert fail_at_each(lib.LSM_FAULT_MAP, load, nothing_left, DeviceMemoryError) >= 2


def test_a_context_without_room_leaves_nothing_behind(tiny_gemma3: Path, owner: int) -> None:
    """S10: each allocation of caches, output and compute buffers is refused in turn; the model stays usable."""
    with Model.load(tiny_gemma3, owner) as model:

        def nothing_left() -> None:
            assert all(model.memory.bytes(name) == Bytes() for name in ("kv", "compute"))

        assert fail_at_each(lib.LSM_FAULT_MAP, lambda: open_context(model).close(), nothing_left, DeviceMemoryError) >= 3


def test_decoding_while_released_is_refused(tiny_llama: Path, owner: int) -> None:
    """S6: for each class; the process lives, and after a restore the answers are right."""
    with Model.load(tiny_llama, owner) as model:
        context = open_context(model)
        undisturbed = story(model, context, lambda: None)
        for name in ALL:
            model.memory.release(name)
            with pytest.raises(ServerError, match="released"):
                story(model, context, lambda: None)
            model.memory.restore(name)
        assert story(model, context, lambda: None).same_as(undisturbed)


def test_a_graph_over_released_weights_is_refused_before_it_runs(tiny_llama: Path, owner: int) -> None:
    """S10: also for callers that do not come through our step, such as llama.cpp's own helpers."""
    with Model.load(tiny_llama, owner) as model:
        context = open_context(model)
        undisturbed = story(model, context, lambda: None)
        context.memory_clear()
        model.memory.release("weights")
        tokens = model.vocab.tokenize("hello", True, False)
        batch = lib.llama_batch_get_one(ffi.from_buffer("int32_t[]", tokens), len(tokens))
        assert lib.llama_decode(context.handle, batch) < 0
        model.memory.restore("weights")
        assert story(model, context, lambda: None).same_as(undisturbed)


def test_state_of_a_sequence_is_refused_while_the_cache_is_away(tiny_llama: Path, owner: int) -> None:
    """S6: neither read nor written."""
    with Model.load(tiny_llama, owner) as model:
        context = open_context(model)
        story(model, context, lambda: None)
        state = context.sequence_state(0)
        model.memory.release("kv")
        with pytest.raises(ServerError, match="restore"):
            context.sequence_state(0)
        with pytest.raises(ServerError, match="restore"):
            context.set_sequence_state(0, state)
        model.memory.restore("kv")
        assert context.sequence_state(0).tobytes() == state.tobytes()


def test_a_model_is_freed_while_its_memory_is_away(tiny_llama: Path, owner: int) -> None:
    """S10: context and model, in this order, from every state of release; the owner's number is free again."""
    for away in ((), ("weights",), ("kv", "compute"), ALL):
        model = Model.load(tiny_llama, owner)
        open_context(model)
        model.memory.release(*away)
        assert model.vocab.tokenize("hello", True, False).tolist()[0] == model.vocab.bos
        model.close()
        model.close()
        assert all(DeviceMemory(owner).bytes(name) == Bytes() for name in ALL)


def test_a_load_stops_when_progress_says_so(tiny_llama: Path, owner: int) -> None:
    """S7: at the first call and at the last; an exception in the callback is the one that comes out."""
    seen: list[float] = []

    def stop_at_the_end(fraction: float) -> bool:
        seen.append(fraction)
        return fraction < 1.0

    with pytest.raises(LoadCancelled):
        Model.load(tiny_llama, owner, progress=lambda fraction: False)
    with pytest.raises(LoadCancelled):
        Model.load(tiny_llama, owner, progress=stop_at_the_end)
    assert seen[-1] == 1.0

    def broken(fraction: float) -> bool:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Model.load(tiny_llama, owner, progress=broken)
    assert DeviceMemory(owner).bytes("weights") == Bytes()


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model at all" * 100])
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, owner: int, content: bytes) -> None:
    """S10: with the name of the file."""
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="broken.gguf"):
        Model.load(path, owner)


def test_a_missing_file_is_refused(tmp_path: Path, owner: int) -> None:
    """S10: with the name of the file."""
    with pytest.raises(ModelFileError, match="nowhere.gguf.*No such file"):
        Model.load(tmp_path / "nowhere.gguf", owner)


def test_an_owner_is_a_small_positive_number(tiny_llama: Path) -> None:
    with pytest.raises(LsmError, match="owner 0"):
        Model.load(tiny_llama, 0)


def test_an_owner_has_one_model(tiny_llama: Path, tiny_mamba: Path, owner: int) -> None:
    """S10: a second one is refused before anything of the first is touched; after the first is closed the number is free."""
    with Model.load(tiny_llama, owner) as model:
        held = model.memory.bytes("weights")
        with pytest.raises(ValueError, match=str(owner)):
            Model.load(tiny_mamba, owner)
        assert model.memory.bytes("weights") == held
    Model.load(tiny_mamba, owner).close()


def test_sizes_can_be_read_from_other_threads(tiny_llama: Path, owner: int) -> None:
    """Design 3.6: status is answered in every state, also while another thread loads, moves and frees the model's memory."""
    looked = threading.Condition()
    state: tuple[int, bool] | None = None
    done = False

    def watch() -> None:
        nonlocal state
        memory = DeviceMemory(owner)
        while not done:
            seen = memory.bytes("weights").device, memory.resident("weights")
            with looked:
                state = seen
                looked.notify()

    def sees(*expected: int | bool) -> bool:
        with looked:
            return looked.wait_for(lambda: state == expected, timeout=10)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for _ in range(5):
            assert sees(0, True)
            with Model.load(tiny_llama, owner) as model:
                size = model.memory.bytes("weights").device
                for _ in range(5):
                    assert sees(size, True)
                    model.memory.release(*ALL)
                    assert sees(0, False)
                    model.memory.restore(*ALL)
    finally:
        done = True
        watcher.join()
