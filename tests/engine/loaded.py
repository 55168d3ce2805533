"""Loaded engines for tests, and what their outputs mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from lsm.engine.config import EngineConfig
from lsm.engine.engine import Engine
from lsm.engine.outputs import Job, Output
from lsm.engine.prefix import Tokens
from lsm.runtime.executor import Executor
from lsm.values import Options, Sampling
from tests.engine.scripted import tokens

GREEDY = Sampling(temperature=0, ignore_eos=True)


# The CPU's flash attention takes other ways for other batches, and rounds differently on them (by 1e-3 of a logit).  Without it an answer
# does not depend, on these models, on what else is in the batch.
SAME_IN_ANY_BATCH = {"flash_attn": "off"}


@contextmanager
def loaded(path: Path, owner: int, draft_owner: int = 0, **config: Any) -> Iterator[Engine]:
    """One thread: tests run side by side, and threads that wait for each other on a busy machine are slow beyond measure."""
    defaults = {"n_ctx": 512, "n_batch": 64, "n_ubatch": 32, "threads": 1}
    engine = Engine(EngineConfig(path=path, **(defaults | config)), owner, Executor, draft_owner=draft_owner)
    engine.load(lambda fraction: True)
    try:
        yield engine
    finally:
        engine.close()


def submit(engine: Engine, id: str, prompt: str | Tokens, sampling: Sampling = GREEDY, **options: Any) -> None:
    ids = engine.vocab.tokenize(prompt, True, True) if isinstance(prompt, str) else np.asarray(prompt, np.int32)
    engine.submit(Job(id, ids, Options(sampling=sampling, **options)))


def run(engine: Engine) -> list[Output]:
    outputs = []
    while engine.has_work:
        engine.step()
        outputs += engine.outputs()
    return outputs + engine.outputs()


def step_through(engine: Engine, between: Callable[[], None]) -> list[Output]:
    """Like `run`, with `between` after each step."""
    outputs = []
    while engine.has_work:
        engine.step()
        outputs += engine.outputs()
        between()
    return outputs


def generate(engine: Engine, prompt: str | Tokens, sampling: Sampling = GREEDY, **options: Any) -> list[int]:
    """The tokens of the answer to one request, with nothing taken from the cache."""
    submit(engine, "one", prompt, sampling, **({"cache_prompt": False} | options))
    return tokens(run(engine), "one")
