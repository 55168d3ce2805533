"""B.1 POST /lora-adapters: scales, as somebody asks for them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import trio

from lsm.errors import InvalidRequest
from lsm.runtime.adapters import with_scales
from lsm.values import AdapterInfo
from tests.runtime.test_host import LIMIT_S, host_of, tokens
from tests.tiny_adapters import write_lora

TWO = tuple(
    AdapterInfo(id=id, path=f"{id}.gguf", scale=1.0, task_name="", prompt_prefix="", invocation_tokens=(), invocation_text="")
    for id in range(2)
)


def test_those_that_are_not_named_act_no_longer() -> None:
    """B.1: other adapters go to 0."""
    assert [adapter.scale for adapter in with_scales(TWO, {1: 0.5})] == [0.0, 0.5]
    assert [adapter.scale for adapter in with_scales(TWO, {})] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("scales", "message"),
    [({2: 1.0}, "0 to 1"), ({-1: 1.0}, "0 to 1"), ({0: math.inf}, "finite"), ({0: math.nan}, "finite"), ({0: 1e39}, "single precision")],
)
def test_what_cannot_be_is_refused(scales: dict[int, float], message: str) -> None:
    """B.1: with the field and what there is."""
    with pytest.raises(InvalidRequest, match=message):
        with_scales(TWO, scales)
    with pytest.raises(InvalidRequest, match="--lora"):
        with_scales((), {0: 1.0})


async def test_scales_of_a_model_that_sleeps_and_wakes(tmp_path: Path, tiny_llama: Path) -> None:
    """B.1, S10: changed between two requests, also while the model is away; the facts tell the scale of now."""
    lora = write_lora(tmp_path / "lora.gguf")
    with trio.fail_after(LIMIT_S):
        async with host_of(tmp_path / "arena", {"a": tiny_llama}, "--lora", str(lora)) as host:
            applied = await tokens(host, "a")
            await host.sleep("a")
            assert host.state()["models"][0]["bytes"]["adapters"]["device"] == 0
            host.set_adapters("a", {})
            assert [adapter.scale for adapter in host.model("a").facts.adapters] == [0.0]
            plain = await tokens(host, "a")
            await host.sleep("a")
            host.set_adapters("a", {0: 1.0})
            assert await tokens(host, "a") == applied != plain
            assert host.state()["models"][0]["bytes"]["adapters"]["device"] > 0
