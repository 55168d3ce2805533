"""S21: the settings of a real file against memory: what is measured, and what comes of it."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lsm.engine import fitting
from lsm.engine.config import EngineConfig
from lsm.engine.fit_plan import Measured, Plan
from lsm.engine.fitting import context_settings, fit_config, measure_file
from lsm.engine.gguf_header import read_header
from lsm.errors import ModelFileError, ServerError
from lsm.native.context import Context
from lsm.native.model import Model
from lsm.tuning import Loading, Placing
from tests.engine.fake_memory import MIB, FakeModel
from tests.engine.loaded import loaded


def config(path: Path, **changes: Any) -> EngineConfig:
    return EngineConfig(path=path, **({"threads": 1} | changes))


@pytest.mark.parametrize("kind", ["tiny_llama", "tiny_gemma3", "tiny_mamba"])
def test_what_is_measured_is_what_is_taken(kind: str, owner: int, request: pytest.FixtureRequest) -> None:
    """D.5 (2): a load without memory tells the bytes of one with it."""
    wanted = config(request.getfixturevalue(kind), n_ctx=1024, n_parallel=2)
    measured = measure_file(wanted, Plan(n_ctx=1024)).host
    with Model.load(wanted.path, owner) as model, Context(model, owner, **context_settings(wanted, 2)):
        taken = {name: model.memory.bytes(name).device for name in ("weights", "kv", "compute")}
    assert (measured.model, measured.context) == pytest.approx((taken["weights"], taken["kv"]), rel=0.02)
    assert measured.compute == pytest.approx(taken["compute"], rel=0.1)


def test_a_measure_leaves_nothing_behind(tiny_llama: Path, owner: int) -> None:
    """D.5 (2): no owner has a byte of it."""
    measure_file(config(tiny_llama), Plan(n_ctx=0))
    with Model.load(tiny_llama, owner) as model:
        assert not model.memory.bytes("kv").device


def test_a_file_that_cannot_be_measured_is_an_error(tmp_path: Path) -> None:
    """S21: status 2; the load that follows says why."""
    with pytest.raises(ModelFileError):
        measure_file(config(tmp_path / "missing.gguf"), Plan(n_ctx=0))


def on_a_small_machine(total_bytes: int) -> Any:
    def measure(wanted: EngineConfig, plan: Plan) -> Measured:
        real = measure_file(wanted, plan)
        return replace(real, host=replace(real.host, total=total_bytes))

    return measure


def test_the_context_shrinks_to_the_machine(tiny_llama: Path, caplog: pytest.LogCaptureFixture) -> None:
    """S21: n_ctx 0 on a host that has not room for all of it: a multiple of 256, with the margin free; the log says so."""
    wanted = config(tiny_llama, loading=Loading(fit_target_mib=(1,), fit_ctx=512))
    full = measure_file(wanted, Plan(n_ctx=4096)).host.used
    with caplog.at_level(logging.INFO, "lsm.engine"):
        fitted = fit_config(wanted, read_header(tiny_llama), on_a_small_machine(full))
    assert 512 <= fitted.n_ctx < 4096 and fitted.n_ctx % 256 == 0
    assert measure_file(fitted, Plan(n_ctx=fitted.n_ctx)).host.used <= full - MIB
    assert measure_file(fitted, Plan(n_ctx=fitted.n_ctx + 256)).host.used > full - MIB
    assert f"a context of {fitted.n_ctx} tokens instead of 4096" in caplog.text


def test_what_does_not_fit_is_tried_all_the_same(tiny_llama: Path, caplog: pytest.LogCaptureFixture) -> None:
    """S21: status 1: with the smallest context, and a warning."""
    wanted = config(tiny_llama, loading=Loading(fit_ctx=512))
    fitted = fit_config(wanted, read_header(tiny_llama), on_a_small_machine(1000))
    assert fitted.n_ctx == 512 and "does not fit into memory" in caplog.text


def test_a_choice_of_the_user_is_never_changed(tiny_llama: Path) -> None:
    """S21: neither a context nor --fit off."""

    def never(wanted: EngineConfig, plan: Plan) -> Measured:
        raise AssertionError("measured")

    for wanted in (config(tiny_llama, n_ctx=777), config(tiny_llama, loading=Loading(fit=False))):
        assert fit_config(wanted, read_header(tiny_llama), never) == wanted


def test_a_failing_measure_changes_nothing(tiny_llama: Path) -> None:
    """S21: status 2."""

    def fail(wanted: EngineConfig, plan: Plan) -> Measured:
        raise ServerError("refused")

    assert fit_config(config(tiny_llama), read_header(tiny_llama), fail) == config(tiny_llama)


def test_a_small_model_is_not_measured(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S21: where there is room beyond doubt, the start is not slowed down by a look."""

    def never(*arguments: Any, **settings: Any) -> None:
        raise AssertionError("measured")

    monkeypatch.setattr(fitting.native, "measure", never)
    assert fit_config(config(tiny_llama), read_header(tiny_llama)) == config(tiny_llama)


def test_the_bound_of_a_control_group_counts(tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S21: a container has what it was given, not what the machine has."""
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(fitting, "CGROUP_LIMITS", (str(limit),))
    wanted = config(tiny_llama, loading=Loading(fit_target_mib=(1,), fit_ctx=512))
    for text, expected in (("max\n", 0), ("1048576\n", 1048576)):
        limit.write_text(text)
        assert fitting.memory_limit_bytes() == expected
    assert fit_config(wanted, read_header(tiny_llama)).n_ctx == 512
    limit.unlink()
    assert fitting.memory_limit_bytes() == 0


def test_each_slot_gets_a_whole_context_of_a_divided_cache(tiny_llama: Path, owner: int) -> None:
    """S21: n_ctx 0 is the trained context for each stream."""
    with loaded(tiny_llama, owner, n_ctx=0, n_parallel=2, kv_unified=False) as engine:
        assert [slot.n_ctx for slot in engine.slots()] == [4096, 4096]


def test_placements_end_up_behind_those_of_the_user() -> None:
    """S21: as overrides of tensors; layers and shares as --gpu-layers and --tensor-split would."""
    plan = Plan(n_ctx=1, gpu_layers=5, tensor_split=(2, 3), placements=(("b", "CPU"),))
    made = fitting.planned(config(Path("m.gguf"), loading=Loading(override_tensor=(("a", "CPU"),))), plan)
    assert made.loading.override_tensor == (("a", "CPU"), ("b", "CPU"))
    assert (made.n_ctx, made.placing.gpu_layers, made.placing.tensor_split) == (1, 5, (2.0, 3.0))


@pytest.fixture
def with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "chosen_devices", lambda placing: ("GPU0",))


@pytest.mark.usefixtures("with_a_gpu")
def test_a_small_gpu_gets_fewer_layers_rather_than_a_failed_load(tiny_llama: Path, caplog: pytest.LogCaptureFixture) -> None:
    """S21: also where the context was chosen."""
    model = FakeModel([600 * MIB])
    with caplog.at_level(logging.INFO, "lsm.engine"):
        fitted = fit_config(
            config(tiny_llama, n_ctx=2048, loading=Loading(fit_target_mib=(100,))),
            read_header(tiny_llama),
            lambda wanted, plan: model.measure(plan),
        )
    assert fitted.n_ctx == 2048 and 0 < fitted.placing.gpu_layers < 9
    assert f"{fitted.placing.gpu_layers} layers on devices" in caplog.text


@pytest.mark.usefixtures("with_a_gpu")
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"placing": Placing(gpu_layers=3)}, "--gpu-layers"),
        ({"placing": Placing(tensor_split=(1.0,))}, "--tensor-split"),
        ({"placing": Placing(split_mode="row")}, "--split-mode row"),
        ({"loading": Loading(cpu_moe=True)}, "--cpu-moe"),
    ],
)
def test_layers_that_the_user_placed_stay(changes: dict[str, Any], named: str, tiny_llama: Path, caplog: pytest.LogCaptureFixture) -> None:
    """S21 step 3: and the log says which flag holds them."""
    wanted = config(tiny_llama, **changes)
    model = FakeModel([300 * MIB])
    fitted = fit_config(wanted, read_header(tiny_llama), lambda wanted, plan: model.measure(plan))
    assert (fitted.placing, fitted.loading) == (wanted.placing, wanted.loading)
    assert named in caplog.text


def test_free_memory_of_a_device_by_name() -> None:
    """S21: what a model may take without a look."""
    assert 0 < fitting.native.free_memory_bytes("CPU") <= fitting.native.host_memory_bytes()


def test_a_loaded_engine_keeps_to_what_was_fitted(tiny_llama: Path, owner: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """S21: and is fitted anew with the next load."""
    model = FakeModel([], n_layer=2, host_total=2000 * MIB, n_ctx_train=4096, cell=128 * 1024)
    monkeypatch.setattr(fitting, "measure_file", lambda config, plan: model.measure(plan))
    monkeypatch.setattr(fitting, "_room_bytes", lambda devices: 0)
    with loaded(tiny_llama, owner, n_ctx=0, loading=Loading(fit_ctx=256)) as engine:
        assert 256 <= engine.slots()[0].n_ctx < 4096
        engine.close()
        model.host_total = 1 << 40
        engine.load(lambda fraction: True)
        assert engine.slots()[0].n_ctx == 4096
