"""What a model will take is known before it takes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm.native.context import Context
from lsm.native.footprint import footprint
from lsm.native.memory import DeviceMemory
from lsm.native.model import Model
from lsm.tuning import Loading, Placing

SETTINGS = {"n_ctx": 512, "n_seq_max": 2, "kv_unified": False, "threads": 1, "threads_batch": 1, "n_batch": 128, "n_ubatch": 128}


@pytest.mark.parametrize("kind", ["tiny_llama", "tiny_gemma3", "tiny_mamba"])
def test_an_outline_has_the_sizes_of_the_loaded_model_byte_for_byte(kind: str, owner: int, request: pytest.FixtureRequest) -> None:
    """Design 4: everything is charged, before the first byte is taken."""
    path: Path = request.getfixturevalue(kind)
    with Model.outline(path, loading=Loading(), placing=Placing()) as model, Context(model, model.owner, **SETTINGS) as context:
        foreseen = footprint(context)
        assert DeviceMemory(model.owner).bytes("weights").device == 0
    with Model.load(path, owner) as model, Context(model, owner, **SETTINGS):
        assert foreseen == {name: model.memory.bytes(name).device for name in ("weights", "kv", "compute")}
