"""The same requests to both servers give the same answers, where LSM_PEER_LLAMA_SERVER names a llama-server of the pinned source.

    make peer
    LSM_PEER_LLAMA_SERVER=PATH pytest tests/differential
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import tiny_models
from tests.differential.cases import CASES, Case
from tests.differential.compare import assert_same, seen
from tests.differential.differences import DIFFERENCES
from tests.differential.peers import PEER, Peer, both
from tests.differential.settings import SETTINGS, Setting
from tests.e2e.servers import Server
from tests.tiny_adapters import write_lora

ALL = (Setting("real", "smollm2", (), CASES), *SETTINGS)
WRITE: Mapping[str, Callable[[Path], Path]] = {
    "llama": tiny_models.write_llama,
    "gemma3": tiny_models.write_gemma3,
    "mamba": tiny_models.write_mamba,
    "jamba": tiny_models.write_jamba,
}

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("differential")]


Pair = tuple[Server, Peer]


@pytest.fixture(scope="module")
def pair_of(real_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Setting], Pair]]:
    """Both servers, with the model and the flags of a setting.  Those of one setting run until another one is asked for."""
    if PEER not in os.environ:
        pytest.skip(f"{PEER} names no llama-server to compare with")
    with ExitStack() as stack:
        running: dict[str, Pair] = {}

        def find(setting: Setting) -> Pair:
            if setting.name not in running:
                stack.close()
                running.clear()
                folder = tmp_path_factory.mktemp("same")
                model = WRITE[setting.model](folder / "model.gguf") if setting.model in WRITE else real_model(setting.model)
                running[setting.name] = stack.enter_context(_start(setting, model, folder))
            return running[setting.name]

        yield find


def _start(setting: Setting, model: Path, folder: Path) -> AbstractContextManager[Pair]:
    adapters = {f"lora{seed}": write_lora(folder / f"{seed}.gguf", seed=seed) for seed in (11, 12)}
    flags = []
    for side in ("ours", "theirs"):
        (folder / side).mkdir()
        flags.append([flag.format(save=folder / side, **adapters) for flag in setting.flags])
    return both(model, folder / "arena", *flags[0], their_flags=flags[1])


@pytest.mark.parametrize(
    ("setting", "case"), [pytest.param(setting, case, id=f"{setting.name}: {case}") for setting in ALL for case in setting.cases]
)
def test_the_answers_are_the_same(setting: Setting, case: Case, pair_of: Callable[[Setting], Pair]) -> None:
    """B.2, C.4: tokens, ends, probabilities and what came from the cache; what differs stands in `differences`."""
    ours, theirs = (_answer(server.post(case.path, case.body)) for server in pair_of(setting))
    if case.name in DIFFERENCES:
        assert seen(case, ours) != seen(case, theirs), f"the difference is gone, take it from the table: {DIFFERENCES[case.name]}"
    else:
        assert_same(case, ours, theirs)


def test_every_difference_belongs_to_a_case() -> None:
    """The table of differences names nothing that is not compared."""
    assert set(DIFFERENCES) <= {case.name for setting in ALL for case in setting.cases}


def _answer(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()
