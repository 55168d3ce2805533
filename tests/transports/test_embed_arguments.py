"""Whatever is handed to the methods of a model: an error of lsm's that names the argument."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import lsm
from lsm.errors import InvalidRequest
from tests.transports.limits import within_limit
from tests.transports.scripted_host import open_scripted_host


@pytest.fixture
def echo() -> Iterator[lsm.Model]:
    with lsm.open({"echo": "echo.gguf"}, open_host=open_scripted_host) as models:
        yield models["echo"]


ODD = [None, 3, 3.5, b"abc", {}, [None], ["a"], [[1], [2, 3]], [10**30], object(), "\ud800", "a\udfff"]


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("prompt", lambda model, odd: model.complete(odd)),
        ("prompt", lambda model, odd: model.stream_complete(odd).rest()),
        ("text", lambda model, odd: model.tokenize(odd)),
        ("tokens", lambda model, odd: model.detokenize(odd)),
        ("messages", lambda model, odd: model.chat(odd)),
        ("messages", lambda model, odd: model.stream_chat(odd).rest()),
        ("messages", lambda model, odd: model.render(odd)),
        ("stop", lambda model, odd: model.complete("x", stop=[odd])),
        ("grammar", lambda model, odd: model.complete("x", grammar=odd or 3)),
        ("seed", lambda model, odd: model.complete("x", seed=odd if odd not in (None, 3) else "x")),
        ("template_kwargs", lambda model, odd: model.render("x", template_kwargs={"a": odd} if isinstance(odd, str) else [odd])),
    ],
)
def test_what_is_no_argument_is_refused_by_name(echo: lsm.Model, argument: str, call: Callable[[lsm.Model, Any], Any]) -> None:
    """B.0: all errors are those of lsm.errors, and name the argument."""
    for odd in ODD:
        with pytest.raises(InvalidRequest) as refused:
            within_limit(partial(call, echo, odd))
        assert refused.value.field == argument
        assert refused.value.message.isprintable()
