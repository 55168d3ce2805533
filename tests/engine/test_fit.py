"""S21, S23: what fits into memory, over a model that is nothing but sizes."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.engine.fit import fit
from lsm.engine.fit_plan import Bounds, Fitted, Plan, Use, largest
from lsm.errors import ServerError
from tests.engine.fake_memory import MIB, FakeModel

DENSE_LAYER = 110 * MIB
WEIGHTS = 8 * DENSE_LAYER + 50 * MIB
FULL_KV = 8 * 32768 * 1024


def bounds(**changes: Any) -> Bounds:
    return Bounds(**({"margins": (100 * MIB,), "n_ctx_min": 4096} | changes))


def leaves_margins(model: FakeModel, limits: Bounds, plan: Plan) -> bool:
    measured = model.measure(plan)
    return all(device.used <= device.free - limits.margin(i) for i, device in enumerate(measured.devices))


def test_what_fits_is_left_alone() -> None:
    """S21 step 1: one look, and the trained context."""
    model = FakeModel([4000 * MIB])
    assert fit(bounds(), model.measure) == Fitted(plan=Plan(n_ctx=32768))


def test_each_stream_has_a_whole_context() -> None:
    """S21: with a KV cache in parts, n_ctx 0 means the trained context for each of them."""
    model = FakeModel([40_000 * MIB])
    assert fit(bounds(n_streams=4), model.measure).plan.n_ctx == 4 * 32768


@pytest.mark.parametrize("n_streams", [1, 4])
def test_the_context_shrinks_to_what_there_is(n_streams: int) -> None:
    """S21 step 2: n_ctx is a multiple of 256 for each stream, leaves the margin, and one step more would not."""
    model = FakeModel([WEIGHTS + 64 * MIB + 100 * MIB + 200 * MIB])
    limits = bounds(n_streams=n_streams)
    fitted = fit(limits, model.measure)
    assert not fitted.missing and fitted.plan.gpu_layers is None
    assert fitted.plan.n_ctx % (256 * n_streams) == 0 and fitted.plan.n_ctx >= 4096 * n_streams
    assert leaves_margins(model, limits, fitted.plan)
    assert not leaves_margins(model, limits, Plan(n_ctx=fitted.plan.n_ctx + 256 * n_streams))


def test_a_straight_line_is_found_in_a_few_looks() -> None:
    """S21: each look is a load without memory, which takes a second."""
    model = FakeModel([WEIGHTS + 64 * MIB + 100 * MIB + 150 * MIB])
    fit(bounds(), model.measure)
    assert len(model.asked) <= 7


def test_a_context_that_was_chosen_stays() -> None:
    """S21: layers go first; n_ctx set by the user is never changed."""
    model = FakeModel([WEIGHTS])
    fitted = fit(bounds(n_ctx=8192), model.measure)
    assert fitted.plan.n_ctx == 8192 and fitted.plan.gpu_layers is not None and not fitted.missing


def test_a_full_context_that_was_asked_for_stays() -> None:
    """S21: an explicit `-c 0` is a smallest context beyond all."""
    model = FakeModel([WEIGHTS])
    assert fit(bounds(n_ctx_min=2**32 - 1), model.measure).plan.n_ctx == 32768


def test_without_devices_the_hosts_memory_counts() -> None:
    """S21: its total, since what others hold can be paged out."""
    model = FakeModel([], host_total=WEIGHTS + 64 * MIB + 100 * MIB + FULL_KV // 2)
    fitted = fit(bounds(), model.measure)
    assert not fitted.missing and fitted.plan.n_ctx == 16384
    model.host_total = WEIGHTS
    assert fit(bounds(), model.measure) == Fitted(plan=Plan(n_ctx=4096), missing="it needs more memory than this machine has")


def test_layers_that_must_stay_are_named() -> None:
    """S21 step 3: where the user placed them, the context is all that can give."""
    model = FakeModel([WEIGHTS // 2])
    fitted = fit(bounds(fixed="--gpu-layers is given"), model.measure)
    assert fitted.plan == Plan(n_ctx=4096) and "--gpu-layers is given" in fitted.missing


def test_dense_layers_fill_a_small_device() -> None:
    """S21 step 3: as many as it takes, and not one more."""
    model, limits = FakeModel([600 * MIB]), bounds()
    plan = fit(limits, model.measure).plan
    assert plan.gpu_layers is not None and 0 < plan.gpu_layers < 9 and not plan.placements
    assert leaves_margins(model, limits, plan)
    assert not leaves_margins(model, limits, Plan(n_ctx=4096, gpu_layers=plan.gpu_layers + 1))


def test_layers_are_shared_among_devices_by_what_each_takes() -> None:
    """S21 step 3: the last device, which has the output layer, is filled first."""
    model, limits = FakeModel([400 * MIB, 500 * MIB]), bounds()
    fitted = fit(limits, model.measure)
    plan = fitted.plan
    assert not fitted.missing and leaves_margins(model, limits, plan)
    assert plan.gpu_layers == sum(plan.tensor_split) < 9 and all(plan.tensor_split)
    more_on_the_last = Plan(n_ctx=4096, gpu_layers=plan.tensor_split[1] + 1, tensor_split=(0, plan.tensor_split[1] + 1))
    assert not leaves_margins(model, limits, more_on_the_last)


def test_experts_stay_in_host_memory_first() -> None:
    """S21 step 3: attention of all layers is on the device before any expert is."""
    model, limits = FakeModel([480 * MIB], is_mixture=True, matrix=200 * MIB), bounds()
    plan = fit(limits, model.measure).plan
    assert plan.gpu_layers == 9
    assert plan.placements == tuple((rf"blk\.{i}\.ffn_(up|down|gate_up|gate)_(ch|)exps", "CPU") for i in range(8))


def test_experts_come_to_the_device_front_to_back_and_one_layer_in_part() -> None:
    """S21 step 4: whole layers first, then as many matrices of one more as fit."""
    model, limits = FakeModel([480 * MIB + 2 * 600 * MIB + 450 * MIB], is_mixture=True, matrix=200 * MIB), bounds()
    plan = fit(limits, model.measure).plan
    assert leaves_margins(model, limits, plan)
    assert plan.gpu_layers == 9 and len(plan.placements) == 6
    assert plan.placements[0] == (r"blk\.2\.ffn_down.*", "CPU")


def test_what_overflows_goes_to_the_next_device() -> None:
    """S21 step 4: and to host memory from the last one only."""
    model = FakeModel([1000 * MIB, 1000 * MIB], is_mixture=True, matrix=150 * MIB)
    limits = bounds()
    plan = fit(limits, model.measure).plan
    assert leaves_margins(model, limits, plan)
    buffers = {buffer for pattern, buffer in plan.placements if "exps" not in pattern}
    assert "GPU1" in buffers


def test_a_device_that_takes_nothing_says_so() -> None:
    """S21: the best that was found, and that it is not enough."""
    fitted = fit(bounds(), FakeModel([50 * MIB]).measure)
    assert fitted.plan.gpu_layers == 0 and "not even its smallest part" in fitted.missing


def test_more_rules_than_llama_cpp_takes() -> None:
    """S21: limited by llama.cpp's table."""
    fitted = fit(bounds(n_placements_max=3), FakeModel([480 * MIB], is_mixture=True, matrix=200 * MIB).measure)
    assert "8 rules of placement" in fitted.missing and not fitted.plan.placements


def second_model(n_ctx: int) -> list[Use]:
    """A draft: 30 MiB and 2 KiB for each position, on the device."""
    return [Use(total=0, free=0, model=30 * MIB, context=2048 * n_ctx), Use(total=0, free=0)]


def test_a_second_model_shares_the_device() -> None:
    """S23: its context follows; what both take leaves the margin, and one step more would not."""
    model = FakeModel([WEIGHTS + 64 * MIB + 100 * MIB + 200 * MIB])
    plan = fit(bounds(), model.measure, second_model).plan

    def room(n_ctx: int) -> int:
        both = model.measure(Plan(n_ctx=n_ctx)).devices[0].plus(second_model(n_ctx)[0])
        return both.free - 100 * MIB - both.used

    assert room(plan.n_ctx) >= 0 > room(plan.n_ctx + 256)


def test_a_second_model_is_asked_once_for_each_context() -> None:
    """S23: measured again whenever the main context has changed, and only then."""
    asked: list[int] = []

    def extra(n_ctx: int) -> list[Use]:
        asked.append(n_ctx)
        return second_model(n_ctx)

    fit(bounds(n_ctx=8192), FakeModel([600 * MIB]).measure, extra)
    assert asked == [8192]


def test_a_second_model_that_cannot_be_measured_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """S23: a warning, and the same result as without it."""

    def extra(n_ctx: int) -> list[Use]:
        raise ServerError("it shares cells")

    size = WEIGHTS + 64 * MIB + 100 * MIB + 200 * MIB
    with caplog.at_level(logging.WARNING):
        assert fit(bounds(), FakeModel([size]).measure, extra) == fit(bounds(), FakeModel([size]).measure)
    assert "it shares cells" in caplog.text


MODELS = st.builds(
    FakeModel,
    free=st.lists(st.integers(0, 3000).map(lambda mib: mib * MIB), min_size=1, max_size=3),
    n_layer=st.integers(1, 12),
    attention=st.integers(1, 60).map(lambda mib: mib * MIB),
    matrix=st.integers(1, 200).map(lambda mib: mib * MIB),
    output=st.integers(1, 100).map(lambda mib: mib * MIB),
    cell=st.integers(0, 8192),
    compute=st.integers(0, 100).map(lambda mib: mib * MIB),
    compute_cell=st.integers(0, 4096),
    is_mixture=st.booleans(),
)


@settings(max_examples=150)
@given(MODELS, st.integers(1, 4), st.integers(0, 1024), st.sampled_from([0, 0, 2048]))
def test_never_above_the_target_and_never_below_the_smallest_context(model: FakeModel, n_streams: int, margin: int, n_ctx: int) -> None:
    """S21: whatever the sizes are, a plan that is said to fit leaves every margin; no layer is on two devices, none is lost."""
    limits = bounds(n_streams=n_streams, margins=(margin * MIB,), n_ctx=n_ctx)
    fitted = fit(limits, model.measure)
    plan = fitted.plan
    assert plan.n_ctx == n_ctx or min(4096 * n_streams, 32768 * n_streams) <= plan.n_ctx <= 32768 * n_streams
    if not fitted.missing:
        assert leaves_margins(model, limits, plan)
    if plan.tensor_split:
        assert sum(plan.tensor_split) == plan.gpu_layers
    assert len(model.asked) < 200


@settings(max_examples=100)
@given(MODELS, st.integers(1, 1000))
def test_more_memory_never_gives_less(model: FakeModel, more: int) -> None:
    """S21: monotonic in what one device has: the context, and where that is the same the layers that are on it."""
    model.free, model.is_mixture = model.free[:1], False
    small = fit(bounds(), model.measure)
    model.free = [model.free[0] + more * MIB]
    large = fit(bounds(), model.measure)
    assert large.plan.n_ctx >= small.plan.n_ctx
    if large.plan.gpu_layers is not None:
        assert small.plan.gpu_layers is not None and large.plan.gpu_layers >= small.plan.gpu_layers
    assert not (large.missing and not small.missing)


@given(st.integers(1, 500), st.integers(0, 10**6), st.lists(st.integers(0, 1000), min_size=1, max_size=500))
def test_the_search_finds_the_last_that_fits(width: int, target: int, rises: list[int]) -> None:
    """S21: for any use that grows, in fewer looks than there are numbers."""
    use = [0]
    for i in range(width):
        use.append(use[-1] + rises[i % len(rises)])
    asked: list[int] = []

    def ask(n: int) -> int:
        asked.append(n)
        return use[n]

    if use[width] <= target:
        return
    found = largest(0, width, ask, target, use[0], use[width])
    assert found == max(n for n in range(width + 1) if use[n] <= target)
    assert len(asked) <= 4 + width.bit_length() + 1
