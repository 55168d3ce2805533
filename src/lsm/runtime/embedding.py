"""Several inputs of one request for embeddings: side by side in the engine, one after the other in the result."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from lsm.runtime.answer import Answer
from lsm.runtime.owner import Owner
from lsm.values import Embedding, Options

AHEAD = 2  # inputs under way for each slot: none stands idle, and a long list does not fill the queue of others

_OPTIONS = Options(max_tokens=0, cache_prompt=False)


async def embed_all(owner: Owner, prompts: Iterable[NDArray[np.int32]], normalize: int, n_slots: int) -> tuple[Embedding, ...]:
    """In the order of `prompts`, token ids.  The first error ends it, and so does the caller's cancel: what is under way is cancelled."""
    under_way: deque[Answer] = deque()
    done: list[Embedding] = []
    try:
        for prompt in prompts:
            if len(under_way) >= AHEAD * n_slots:
                done.append(await _result(under_way))
            under_way.append(owner.submit(uuid.uuid4().hex, prompt, _OPTIONS, normalize))
        while under_way:
            done.append(await _result(under_way))
    finally:
        for answer in under_way:
            owner.cancel(answer)
    return tuple(done)


async def _result(under_way: deque[Answer]) -> Embedding:
    """Of the oldest, which is under way no longer."""
    embedding = await under_way[0].embedding()
    under_way.popleft()
    return embedding
