"""A model that is nothing but sizes: what a plan of it takes, by counting tensors one by one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from lsm.engine.fit_plan import Measured, Plan, Use

MIB = 1 << 20


@dataclass
class FakeModel:
    """Sizes in bytes.  Each layer has attention, three dense or expert matrices (gate, up, down) and cells of the KV cache."""

    free: Sequence[int]  # of each device
    n_layer: int = 8
    attention: int = 20 * MIB
    matrix: int = 30 * MIB
    output: int = 50 * MIB
    cell: int = 1024  # of one layer
    compute: int = 64 * MIB
    compute_cell: int = 0  # what the computation takes for each position
    n_ctx_train: int = 32768
    is_mixture: bool = False
    host_total: int = 1 << 40
    asked: list[Plan] = field(default_factory=list)

    def measure(self, plan: Plan) -> Measured:
        self.asked.append(plan)
        n_ctx = plan.n_ctx or self.n_ctx_train
        buffers = [f"GPU{i}" for i in range(len(self.free))]
        model = dict.fromkeys([*buffers, "CPU"], 0)
        context = dict.fromkeys(model, 0)
        for layer in range(self.n_layer + 1):
            home = self._home(layer, plan)
            if layer == self.n_layer:
                model[home] += self.output
                continue
            model[home] += self.attention
            context[home] += self.cell * n_ctx
            for name in ("gate", "up", "down"):
                tensor = f"blk.{layer}.ffn_{name}" + ("_exps.weight" if self.is_mixture else ".weight")
                model[self._place(tensor, plan) or home] += self.matrix
        compute = self.compute + self.compute_cell * n_ctx
        devices = tuple(
            Use(total=free * 2, free=free, model=model[name], context=context[name], compute=compute, buffer=name)
            for name, free in zip(buffers, self.free, strict=True)
        )
        host = Use(total=self.host_total, free=0, model=model["CPU"], context=context["CPU"], compute=compute)
        return Measured(
            devices=devices, host=host, n_layer=self.n_layer, n_ctx_train=self.n_ctx_train, n_expert=8 if self.is_mixture else 0
        )

    def _home(self, layer: int, plan: Plan) -> str:
        n_all = self.n_layer + 1
        n_on = n_all if plan.gpu_layers is None else plan.gpu_layers
        place = layer - (n_all - n_on)
        if place < 0 or not self.free:
            return "CPU"
        shares = plan.tensor_split or _even(n_on, len(self.free))
        for device, share in enumerate(shares):
            if place < share:
                return f"GPU{device}"
            place -= share
        raise AssertionError(f"layer {layer} is on no device of {plan}")

    def _place(self, tensor: str, plan: Plan) -> str | None:
        return next((buffer for pattern, buffer in plan.placements if re.search(pattern, tensor)), None)


def _even(n: int, parts: int) -> list[int]:
    return [n // parts + (i < n % parts) for i in range(parts)]
