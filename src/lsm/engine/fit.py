"""How much of a model fits: its context, its layers on each device, its experts.  Pure: what a plan takes is asked of `measure`.

In this order, and no further than needed: the context shrinks, where nobody chose it; then layers stay in host memory, experts first
(`lsm.engine.fit_layers`).  What the user set stays as it is.  The rules are llama-server's (requirements S21, S23).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from lsm.engine.fit_layers import place_layers
from lsm.engine.fit_plan import Bounds, Fitted, Measure, Measured, Plan, Use, largest, targets
from lsm.errors import LsmError

CONTEXT_STEP = 256  # cells for each stream
UINT32_MAX = 2**32 - 1

log = logging.getLogger("lsm.engine")

Extra = Callable[[int], Sequence[Use]]  # n_ctx -> what a second model takes on each device of the main one, then of the host


def fit(bounds: Bounds, measure: Measure, extra: Extra | None = None) -> Fitted:
    """A plan that leaves each device its margin.

    What `measure` raises is raised.  A second model that cannot be measured (`extra` raises `LsmError`) is left out, with a warning.
    """
    ask = _together(measure, extra)
    n_ctx_max = bounds.n_ctx
    if not n_ctx_max:
        n_ctx_max = min(measure(Plan(n_ctx=0)).n_ctx_train * bounds.n_streams, UINT32_MAX)
    plan = Plan(n_ctx=n_ctx_max)
    whole = ask(plan)
    if _fits(whole, bounds):
        return Fitted(plan=plan)
    if not bounds.n_ctx and _surplus(whole, bounds) < 0:
        plan = _with_smaller_context(plan, whole, bounds, ask)
        if plan.n_ctx < n_ctx_max and len(whole.devices) <= 1 and _fits(ask(plan), bounds):
            return Fitted(plan=plan)
    if not whole.devices:
        return Fitted(plan=plan, missing="it needs more memory than this machine has")
    if bounds.fixed:
        return Fitted(plan=plan, missing=f"layers stay where they are: {bounds.fixed}")
    return place_layers(plan, bounds, ask, ask(plan))


def _together(measure: Measure, extra: Extra | None) -> Measure:
    """Both models on the devices of the main one; the second is asked again when the context it follows has changed."""
    if extra is None:
        return measure
    known: dict[int, Sequence[Use]] = {}

    def ask(plan: Plan) -> Measured:
        main = measure(plan)
        if plan.n_ctx not in known:
            known[plan.n_ctx] = _measured_extra(extra, plan.n_ctx, main)
        *devices, host = known[plan.n_ctx]
        both = tuple(one.plus(other) for one, other in zip(main.devices, devices, strict=True))
        return replace(main, devices=both, host=main.host.plus(host))

    return ask


def _measured_extra(extra: Extra, n_ctx: int, main: Measured) -> Sequence[Use]:
    try:
        return extra(n_ctx)
    except LsmError as error:
        log.warning("the second model cannot be measured, so memory is fitted without it: %s", error.message)
        return [Use(total=0, free=0)] * (len(main.devices) + 1)


def _fits(measured: Measured, bounds: Bounds) -> bool:
    if not measured.devices:
        return _surplus(measured, bounds) >= 0
    return all(device.used <= target for device, target in zip(measured.devices, targets(measured, bounds), strict=True))


def _surplus(measured: Measured, bounds: Bounds) -> int:
    """Over all devices together.  Without any, all of the host's memory counts, since what others hold there can be paged out."""
    if not measured.devices:
        return measured.host.total - bounds.margin(0) - measured.host.used
    return sum(targets(measured, bounds)) - sum(device.used for device in measured.devices)


def _with_smaller_context(plan: Plan, whole: Measured, bounds: Bounds, ask: Measure) -> Plan:
    """The largest context with which the whole model fits; the smallest allowed one if none does."""
    smallest = replace(plan, n_ctx=min(bounds.n_ctx_min * bounds.n_streams, UINT32_MAX))
    if smallest.n_ctx >= plan.n_ctx:
        return plan
    target = _surplus(whole, bounds) + _used(whole) - _waste(whole)
    used_least = _used(ask(smallest))
    if used_least > target:
        return smallest
    step = CONTEXT_STEP * bounds.n_streams
    first = -(-smallest.n_ctx // step)  # in steps; the smallest itself need not be a multiple

    def use(n_steps: int) -> int:
        return _used(ask(replace(plan, n_ctx=n_steps * step)))

    if first * step >= plan.n_ctx or (first * step > smallest.n_ctx and use(first) > target):
        return smallest
    low = used_least if first * step == smallest.n_ctx else use(first)
    n_steps = largest(first, -(-plan.n_ctx // step), use, target, low, _used(whole))
    return replace(plan, n_ctx=n_steps * step)


def _used(measured: Measured) -> int:
    return sum(device.used for device in measured.devices) if measured.devices else measured.host.used


def _waste(measured: Measured) -> int:
    """Several devices cannot all be filled: layers are whole, of a mixture its matrices, each about a third of a layer."""
    n = len(measured.devices)
    if n <= 1:
        return 0
    per_layer = sum(device.model for device in measured.devices) // max(measured.n_layer, 1)
    return (n + 1) * per_layer // (6 if measured.n_expert else 2)
