"""LoRA adapters and control vectors: they act, they stop acting, and their memory comes and goes like the weights'."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from lsm.errors import DeviceMemoryError, InvalidRequest, ModelFileError, ServerError, SourceChanged
from lsm.native.adapter import Adapter
from lsm.native.context import Context
from lsm.native.library import lib
from lsm.native.memory import Bytes, DeviceMemory
from lsm.native.model import Model
from tests import tiny_models
from tests.native.runner import ALL, Trace, cycle, open_context, story
from tests.tiny_adapters import N_EMBD, write_lora

pytestmark = pytest.mark.usefixtures("addresses")

WITH_ADAPTERS = (*ALL, "adapters")


@pytest.fixture
def model(tiny_llama: Path, owner: int) -> Iterator[Model]:
    with Model.load(tiny_llama, owner) as model:
        yield model


def undisturbed(model: Model, context: Context) -> Trace:
    return story(model, context, lambda: None)


def direction(n_layers: int = 1) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(5).standard_normal((n_layers, N_EMBD)).astype(np.float32)


def test_an_adapter_tells_what_its_file_says(model: Model, tmp_path: Path) -> None:
    """B.1 GET /lora-adapters: task, prefix and invocation tokens."""
    adapter = Adapter.load(model, write_lora(tmp_path / "a.gguf", seed=7, invocation_tokens=(270, 271)))
    assert (adapter.task_name, adapter.prompt_prefix, adapter.invocation_tokens) == ("task 7", "prefix 7", (270, 271))
    assert adapter.meta("adapter.type") == "lora" and adapter.meta("no.such.key") is None


def test_adapters_act_by_their_scales_and_no_longer_when_taken_away(model: Model, tmp_path: Path) -> None:
    """B.1 POST /lora-adapters: each scale gives its own logits; without any they are the model's own again."""
    first, second = (Adapter.load(model, write_lora(tmp_path / f"{seed}.gguf", seed=seed)) for seed in (1, 2))
    context = open_context(model)
    plain = undisturbed(model, context)
    seen = [plain]
    for chosen in ([(first, 1.0)], [(first, 0.5)], [(second, 1.0)], [(first, 1.0), (second, 1.0)]):
        context.set_adapters(chosen)
        trace = undisturbed(model, context)
        assert not any(trace.same_as(other) for other in seen)
        seen.append(trace)
    context.set_adapters([(first, 0.0)])
    assert undisturbed(model, context).same_as(plain)
    context.set_adapters([])
    assert undisturbed(model, context).same_as(plain)


def test_a_control_vector_acts_on_its_layers_only(model: Model) -> None:
    """C.1 --control-vector-layer-range: outside of the range nothing is added."""
    context = open_context(model)
    plain = undisturbed(model, context)
    context.set_control_vector(direction(), 1, 1)
    assert not undisturbed(model, context).same_as(plain)
    context.set_control_vector(direction(), 2, 2)
    assert undisturbed(model, context).same_as(plain)
    context.set_control_vector(direction(), 1, 1)
    context.clear_control_vector()
    assert undisturbed(model, context).same_as(plain)


@pytest.mark.parametrize("classes", [WITH_ADAPTERS, ("adapters",), ("weights", "adapters")])
def test_adapters_come_back_bit_for_bit(model: Model, tmp_path: Path, classes: tuple[str, ...]) -> None:
    """S10: two adapters with tensors of equal names, a control vector that is changed between the cycles."""
    adapters = [Adapter.load(model, write_lora(tmp_path / f"{seed}.gguf", seed=seed)) for seed in (1, 2)]
    context = open_context(model)
    context.set_adapters([(adapters[0], 1.0), (adapters[1], 0.5)])
    for strength in (1.0, -2.0):
        context.set_control_vector(strength * direction(), 1, 1)
        expected = undisturbed(model, context)
        assert story(model, context, cycle(model, context, *classes)).same_as(expected)


def test_the_file_is_the_copy_of_an_adapter(model: Model, tmp_path: Path) -> None:
    """S10: no second copy of an adapter is kept; of a control vector, which has no file, one is."""
    for seed in (1, 2):
        Adapter.load(model, write_lora(tmp_path / f"{seed}.gguf", seed=seed))
    loaded = model.memory.bytes("adapters").device
    model.memory.release("adapters")
    away = model.memory.bytes("adapters")
    assert (away.device, away.released, away.host, away.file) == (0, loaded, 0, pytest.approx(loaded, rel=0.01))
    model.memory.restore("adapters")
    with_files = _copies(model)
    open_context(model).set_control_vector(direction(), 1, 1)
    model.memory.release("adapters")
    assert _copies(model) >= with_files + 4 * N_EMBD


def test_a_changed_adapter_file_is_noticed(model: Model, tmp_path: Path) -> None:
    """S10: before a byte of it is read."""
    path = write_lora(tmp_path / "a.gguf", seed=1)
    Adapter.load(model, path)
    model.memory.release("adapters")
    write_lora(path, seed=2)
    with pytest.raises(SourceChanged, match="a.gguf"):
        model.memory.restore("adapters")
    assert not model.memory.resident("adapters")


def test_nothing_decodes_while_adapters_are_away(model: Model, tmp_path: Path) -> None:
    """S10: and no control vector is written into memory that is not there."""
    adapter = Adapter.load(model, write_lora(tmp_path / "a.gguf"))
    context = open_context(model)
    model.memory.release("adapters")
    context.set_adapters([(adapter, 1.0)])
    with pytest.raises(ServerError, match="released"):
        undisturbed(model, context)
    with pytest.raises(ServerError, match="released"):
        context.set_control_vector(direction(), 1, 1)
    model.memory.restore("adapters")
    undisturbed(model, context)


def test_a_device_without_room_for_an_adapter_says_so(model: Model, tmp_path: Path) -> None:
    """S10: for an adapter and for a control vector; the model stays usable without them."""
    path = write_lora(tmp_path / "a.gguf")
    lib.lsm_device_fail_at(lib.LSM_FAULT_MAP, 0)
    with pytest.raises(DeviceMemoryError, match="a.gguf"):
        Adapter.load(model, path)
    context = open_context(model)
    plain = undisturbed(model, context)
    lib.lsm_device_fail_at(lib.LSM_FAULT_MAP, 0)
    with pytest.raises(DeviceMemoryError, match="control vector"):
        context.set_control_vector(direction(), 1, 1)
    assert DeviceMemory(model.owner).bytes("adapters") == Bytes()
    assert undisturbed(model, context).same_as(plain)


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(b"not an adapter"),
        lambda path: tiny_models.write_llama(path),
        lambda path: write_lora(path, architecture="gemma3"),
        lambda path: write_lora(path, n_layer=3),
    ],
    ids=["no GGUF", "a model", "of another architecture", "of a larger model"],
)
def test_a_file_that_is_no_adapter_of_this_model_is_refused(model: Model, tmp_path: Path, write: Callable[[Path], object]) -> None:
    """C.1 --lora: with the name of the file."""
    path = tmp_path / "odd.gguf"
    write(path)
    with pytest.raises(ModelFileError, match="odd.gguf"):
        Adapter.load(model, path)


def test_a_control_vector_of_another_size_is_refused(model: Model) -> None:
    """C.1 --control-vector: with the size that it should have."""
    with pytest.raises(InvalidRequest, match=str(N_EMBD)):
        open_context(model).set_control_vector(np.zeros((1, N_EMBD + 1), np.float32), 1, 1)


def test_adapters_are_loaded_before_contexts(model: Model, tmp_path: Path) -> None:
    """S10: a context reserves the graph of all adapters that there are."""
    open_context(model)
    with pytest.raises(ValueError, match="before the first context"):
        Adapter.load(model, write_lora(tmp_path / "a.gguf"))


def test_adapters_go_with_their_model(tiny_llama: Path, tmp_path: Path, owner: int) -> None:
    """S10: also while their memory is away; closing twice does nothing."""
    for away in ((), ("adapters",)):
        with Model.load(tiny_llama, owner) as model:
            adapter = Adapter.load(model, write_lora(tmp_path / "a.gguf"))
            closed = Adapter.load(model, write_lora(tmp_path / "b.gguf", seed=2))
            open_context(model)
            model.memory.release(*away)
            closed.close()
            closed.close()
        assert not adapter.handle
        assert DeviceMemory(owner).bytes("adapters") == Bytes()


def _copies(model: Model) -> int:
    """Bytes of which there is a copy, wherever."""
    size = model.memory.bytes("adapters")
    return size.file + size.host
