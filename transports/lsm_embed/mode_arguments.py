"""What embeddings, ranking and infill may be given.  Everything else is refused by the name of the argument, before it travels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lsm.api import Infill
from lsm.errors import InvalidRequest
from lsm_embed.arguments import ids_of, text_of

INPUTS = "must be a text, a flat list of token ids, or a list of these that is not empty"
NORM_MAX = 1000  # of --embd-normalize, too


def inputs_of(inputs: Any) -> list[str | tuple[int, ...]]:
    """Raises `InvalidRequest`: neither one input nor several."""
    if isinstance(inputs, str) or (isinstance(inputs, np.ndarray) and inputs.ndim == 1):
        return [_input(inputs)]
    if not isinstance(inputs, Sequence | np.ndarray) or isinstance(inputs, bytes | bytearray | memoryview) or not len(inputs):
        raise InvalidRequest(INPUTS, "inputs")
    if isinstance(inputs[0], int | np.integer):
        return [_input(inputs)]
    return [_input(one) for one in inputs]


def _input(one: Any) -> str | tuple[int, ...]:
    checked = text_of(one, "inputs") if isinstance(one, str) else ids_of(one, "inputs", INPUTS)
    if not checked:
        raise InvalidRequest("must not be empty", "inputs")
    return checked


def norm_of(normalize: Any) -> int | None:
    if normalize is None:
        return None
    if type(normalize) is not int or not -1 <= normalize <= NORM_MAX:
        raise InvalidRequest(f"must be a whole number from -1 to {NORM_MAX}", "normalize")
    return normalize


def texts_of(texts: Any, name: str) -> list[str]:
    if isinstance(texts, str) or not isinstance(texts, Sequence) or not texts:
        raise InvalidRequest("must be a list of texts that is not empty", name)
    return [text_of(text, name) for text in texts]


def infill_of(prefix: Any, suffix: Any, prompt: Any, extra: Any) -> Infill:
    if extra is not None and not isinstance(extra, Mapping):
        raise InvalidRequest('must map names of files to their texts, such as {"a.py": "..."}', "extra")
    files = tuple((text_of(name, "extra"), text_of(text, "extra")) for name, text in (extra or {}).items())
    return Infill(prefix=text_of(prefix, "prefix"), suffix=text_of(suffix, "suffix"), prompt=text_of(prompt, "prompt"), extra=files)
