"""Layers over devices.  Pure: what a plan takes is asked of `measure`.

From the last device to the first each gets as many layers as it takes: the last has the output layer.  Of a mixture of experts these
are at first only the parts that every token needs; then, from the first device to the last, layers get their experts, and one more layer
for each device gets as many of its matrices as there is room for.  What finds no room stays in host memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lsm.engine.fit_plan import Bounds, Fitted, Measure, Measured, Plan, largest, targets
from lsm.tuning import CPU_BUFFER

MAX_LAYERS = 1000
ALL_EXPERTS = r"blk\.\d+\.ffn_(up|down|gate_up|gate)_(ch|)exps"
OVERFLOWS = {  # what of one layer is not on its device
    "experts": r"ffn_(up|down|gate_up|gate)_(ch|)exps",
    "all but attention": r"ffn_(gate|up|gate_up|down).*",
    "all but up": r"ffn_(gate|gate_up|down).*",
    "down": r"ffn_down.*",
}


@dataclass(frozen=True, slots=True)
class Layers:
    """Of one device: how many, the output layer counted, and how many are in part elsewhere: the first of these by `overflow` in `buffer`,
    the others' experts in host memory.  Whole ones come first."""

    n: int = 0
    n_part: int = 0
    overflow: str = "experts"
    buffer: str = CPU_BUFFER


Placed = tuple[Layers, ...]


def place_layers(plan: Plan, bounds: Bounds, measure: Measure, whole: Measured) -> Fitted:
    """As many layers on the devices as they take."""
    if whole.n_layer > MAX_LAYERS:
        return Fitted(plan=plan, missing=f"at most {MAX_LAYERS} layers can be placed, and it has {whole.n_layer}")
    placer = _Placer(plan, bounds, measure, whole)
    placed = placer.fill_back_to_front()
    if whole.n_expert and placer.has_room_for_experts():
        placed = placer.add_experts_front_to_back(placed)
    made = placer.plan_of(placed)
    if len(made.placements) > bounds.n_placements_max:
        return Fitted(plan=plan, missing=f"it takes {len(made.placements)} rules of placement, and llama.cpp {bounds.n_placements_max}")
    used = placer.used(placed)
    fits = all(use <= target for use, target in zip(used, placer.targets, strict=True))
    return Fitted(plan=made, missing="" if fits else "not even its smallest part leaves the devices their margins")


class _Placer:
    def __init__(self, plan: Plan, bounds: Bounds, measure: Measure, whole: Measured) -> None:
        self._plan = plan
        self._measure = measure
        self._n_layer = whole.n_layer
        self._is_mixture = whole.n_expert > 0
        self._buffers = tuple(device.buffer for device in whole.devices)
        self._known: dict[Placed, list[int]] = {}
        self.targets = targets(whole, bounds)

    @property
    def _last(self) -> int:
        return len(self._buffers) - 1

    def used(self, placed: Placed) -> list[int]:
        """Bytes on each device."""
        if placed not in self._known:
            self._known[placed] = [device.used for device in self._measure(self.plan_of(placed)).devices]
        return self._known[placed]

    def plan_of(self, placed: Placed) -> Plan:
        n_all = sum(layers.n for layers in placed)
        placements = []
        layer = self._n_layer + 1 - n_all
        for device, layers in enumerate(placed):
            end = layer + layers.n - (device == self._last)  # behind the last device's layers comes the output
            for i in range(layers.n_part):
                overflow, buffer = (layers.overflow, layers.buffer) if i == 0 else ("experts", CPU_BUFFER)
                placements.append((rf"blk\.{end - layers.n_part + i}\.{OVERFLOWS[overflow]}", buffer))
            layer += layers.n
        split = tuple(layers.n for layers in placed) if len(placed) > 1 else ()
        return replace(self._plan, gpu_layers=n_all, tensor_split=split, placements=tuple(placements))

    def has_room_for_experts(self) -> bool:
        measured = self._measure(replace(self._plan, placements=((ALL_EXPERTS, CPU_BUFFER),)))
        return sum(self.targets) > sum(device.used for device in measured.devices)

    def fill_back_to_front(self) -> Placed:
        placed: Placed = (Layers(),) * len(self._buffers)
        for device in reversed(range(len(placed))):
            n_left = self._n_layer + 1 - sum(layers.n for layers in placed)
            placed = self._most(device, [self._without_experts(device, placed, n) for n in range(n_left + 1)])
        return placed

    def add_experts_front_to_back(self, placed: Placed) -> Placed:
        for device in range(len(placed)):
            n_bare = sum(placed[source].n_part for source in _bare(device, placed))
            placed = self._most(device, [_with_experts(device, placed, n) for n in range(n_bare + 1)])
            placed = self._with_part_of_a_layer(device, placed)
        return placed

    def _most(self, device: int, choices: list[Placed]) -> Placed:
        """The last of the choices, each of which asks more of the device than the one before, that fits there."""

        def use(n: int) -> int:
            return self.used(choices[n])[device]

        top = len(choices) - 1
        if top == 0 or use(top) <= self.targets[device]:
            return choices[top]
        return choices[largest(0, top, use, self.targets[device], use(0), use(top))]

    def _without_experts(self, device: int, placed: Placed, n: int) -> Placed:
        n_part = max(n - (device == self._last), 0) if self._is_mixture else 0  # the output layer has none, and is never in part elsewhere
        return _replaced(placed, device, Layers(n, n_part))

    def _with_part_of_a_layer(self, device: int, placed: Placed) -> Placed:
        """One more layer in part, if there is one without its experts: as much of it as fits, the rest on the next device."""
        source = next(iter(_bare(device, placed)), None)
        if source is None:
            return placed
        buffer = CPU_BUFFER if device == self._last else self._buffers[device + 1]
        moved = _replaced(placed, source, replace(placed[source], n=placed[source].n - 1, n_part=placed[source].n_part - 1))

        def trial(overflow: str) -> Placed:
            here = moved[device]
            return _replaced(moved, device, replace(here, n=here.n + 1, n_part=here.n_part + 1, overflow=overflow, buffer=buffer))

        if self._leaves_room(device, trial("all but up")):
            return trial("down") if self._leaves_room(device, trial("down")) else trial("all but up")
        gains = source != device and self._leaves_room(device, trial("all but attention"))  # what is here already has its attention here
        return trial("all but attention") if gains else placed

    def _leaves_room(self, device: int, placed: Placed) -> bool:
        """On this device, and on the next, which takes what overflows."""
        used = self.used(placed)
        return all(used[i] < self.targets[i] for i in (device, device + 1) if i <= self._last)


def _bare(device: int, placed: Placed) -> list[int]:
    """This device and those behind it, as far as they have layers without experts; those before it are done."""
    return [i for i in range(device, len(placed)) if placed[i].n_part and placed[i].overflow == "experts"]


def _with_experts(device: int, placed: Placed, n: int) -> Placed:
    """`n` layers that had no experts, from the first on, become whole ones of this device."""
    for source in _bare(device, placed):
        layers = placed[source]
        moved = min(n, layers.n_part)
        n -= moved
        placed = _replaced(placed, source, replace(layers, n=layers.n - moved, n_part=layers.n_part - moved))
        placed = _replaced(placed, device, replace(placed[device], n=placed[device].n + moved))
    return placed


def _replaced(placed: Placed, device: int, layers: Layers) -> Placed:
    return (*placed[:device], layers, *placed[device + 1 :])
