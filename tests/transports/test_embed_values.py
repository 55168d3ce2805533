"""Keyword arguments of the in-process door become Settings and Options through the readers of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lsm_embed.arguments import chat_of, ids_of
from lsm_embed.options import ENTRIES, Wishes, options_for
from lsm_embed.settings import settings_for

from lsm.api import Options, Sampling
from lsm.errors import ConfigError, InvalidRequest


def test_wishes_and_entries_name_the_same_options() -> None:
    """C.4: every option that a request may set has a checked name, and none is only declared."""
    assert set(Wishes.__annotations__) == set(ENTRIES)
    assert set(ENTRIES) == (set(Options.__dataclass_fields__) | set(Sampling.__dataclass_fields__)) - {
        "sampling", "n", "lora", "return_progress", "timings_per_token",  # an answer here is one text
    }  # fmt: skip


def test_what_is_not_wished_stays_as_the_settings_say() -> None:
    """B.2: null is absent, defaults come from the settings."""
    defaults = settings_for({"a": "a.gguf"}, {"temperature": 0.25, "max_tokens": 7, "stop": ["END"]}).options
    options = options_for(defaults, {"temperature": None, "top_k": 3})
    assert (options.sampling.temperature, options.sampling.top_k, options.max_tokens, options.stop) == (0.25, 3, 7, ("END",))


@pytest.mark.parametrize(
    ("wishes", "held"),
    [
        ({"stop": "END"}, ("END",)),
        ({"stop": []}, ()),
        ({"samplers": ["top_k", "temperature"]}, ("top_k", "temperature")),
        ({"logit_bias": {2: float("-inf")}}, ((2, float("-inf")),)),
        ({"logit_bias": [(15043, 1.5)]}, ((15043, 1.5),)),
        ({"seed": np.int64(3)}, 3),
        ({"seed": -1}, -1),
        ({"temperature": np.float32(0.5)}, 0.5),
        ({"ignore_eos": True}, True),
        ({"grammar": 'root ::= "a"'}, 'root ::= "a"'),
    ],
)
def test_a_wish_is_held_as_the_engine_wants_it(wishes: dict[str, Any], held: Any) -> None:
    """B.2: the usual Python spellings of a value are taken."""
    options = options_for(Options(), wishes)
    name = next(iter(wishes))
    assert getattr(options if hasattr(options, name) else options.sampling, name) == held


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"temprature": 1}, "did you mean temperature?"),
        ({"top_p": 1.5}, "1.5 is not a number from 0.0 to 1.0"),
        ({"temperature": "hot"}, "'hot' is not a number"),
        ({"temperature": float("nan")}, "nan is not a number"),
        ({"top_k": True}, "True is not a number"),
        ({"top_k": 1.5}, "1.5 is not a whole number"),
        ({"max_tokens": -2}, "-2 is not a whole number of at least -1"),
        ({"ignore_eos": 1}, "1 is neither True nor False"),
        ({"stop": [""]}, "none of them empty"),
        ({"stop": 5}, "is neither a text nor a list of texts"),
        ({"samplers": ["dice"]}, "names a sampler that does not exist"),
        ({"logit_bias": {"x": 1}}, "does not map ids"),
        ({"logit_bias": {1: float("inf")}}, "finite nor -inf"),
        ({"logit_bias": {float("inf"): 1}}, "does not map ids"),
        ({"stop": ["a", "\ud800"]}, "half of a surrogate pair"),
        ({"grammar": "\ud800"}, "half of a surrogate pair"),
        ({"grammar": 3}, "is not a text"),
    ],
)
def test_a_wrong_wish_is_refused_by_name(wishes: dict[str, Any], message: str) -> None:
    """B.0: the error names the field and what it accepts."""
    with pytest.raises(InvalidRequest) as refused:
        options_for(Options(), wishes)
    assert refused.value.field in wishes
    assert message in refused.value.message


def test_models_become_paths_and_aliases() -> None:
    """C: the names and files of a mapping, in its order."""
    settings = settings_for({"b": Path("b.gguf"), "a": "~/a.gguf"}, {"n_parallel": 2, "arena": Path("x"), "sleep_idle_seconds": -1.0})
    assert [(model.alias, model.path) for model in settings.models] == [("b", Path("b.gguf")), ("a", Path("~/a.gguf").expanduser())]
    assert (settings.n_parallel, settings.arena, settings.sleep_idle_seconds) == (2, Path("x"), -1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_ctxx": 1}, "did you mean n_ctx?"),
        ({"port": 1}, "HTTP server"),
        ({"n_parallel": 0}, "0 is not a whole number from 1"),
        ({"sleep_evict_kv": "yes"}, "neither True nor False"),
        ({"vram_budget": "much"}, "such as 6GiB"),
        ({"chat_template_file": "no-such-file"}, "cannot read no-such-file"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    """C: nothing is swallowed; the message says what is accepted."""
    with pytest.raises(ConfigError, match=next(iter(changes)).replace("chat_template_file", "chat-template-file")) as refused:
        settings_for({"a": "a.gguf"}, changes)
    assert message in refused.value.message


@pytest.mark.parametrize("models", [{}, "a.gguf", None])
def test_no_model_is_refused(models: Any) -> None:
    """C: a door without a model says how to name one."""
    with pytest.raises(ConfigError, match="name at least one"):
        settings_for(models, {})


@pytest.mark.parametrize("alias", [1, None, b"x", "", " ", ("a",), "\ud800"], ids=ascii)
def test_a_name_that_is_none_is_refused_at_once(alias: Any) -> None:
    """C: the message shows the name, and what is wanted."""
    with pytest.raises(ConfigError, match="a text that is not empty is wanted") as refused:
        settings_for({"good": "a.gguf", alias: "b.gguf"}, {})
    assert repr(alias) in refused.value.message


@pytest.mark.parametrize("path", [1, None, b"x.gguf", "", "a\0b", ["a.gguf"], "~nobody-of-this-name/a.gguf"], ids=ascii)
def test_a_file_that_is_none_is_refused_at_once(path: Any) -> None:
    """C: the message names the model, and shows what was given for its file."""
    with pytest.raises(ConfigError, match="the file of model 'bad' is") as refused:
        settings_for({"good": "a.gguf", "bad": path}, {})
    assert repr(path) in refused.value.message


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no text for this")


@pytest.mark.parametrize("value", [Unprintable(), 10**5000, "x" * 10**6], ids=["unprintable", "huge", "long"])
def test_a_value_that_cannot_be_shown_is_still_refused_by_name(value: Any) -> None:
    """B.0: the message never fails, and stays short."""
    with pytest.raises(InvalidRequest, match="'seed'") as refused:
        options_for(Options(), {"seed": value})
    assert len(refused.value.message) < 400
    with pytest.raises(ConfigError, match="n_ctx"):
        settings_for({"a": "a.gguf"}, {"n_ctx": value})


def test_a_text_is_a_conversation_of_one_message() -> None:
    """B.4: the short form of a chat."""
    assert chat_of("Hello", None).messages == ({"role": "user", "content": "Hello"},)


@pytest.mark.parametrize("messages", [5, [5], {"role": "user"}, None])
def test_what_is_no_conversation_is_refused(messages: Any) -> None:
    """B.4: messages are a list of mappings."""
    with pytest.raises(InvalidRequest, match="messages"):
        chat_of(messages, None)


def test_token_ids_are_taken_from_arrays_and_lists() -> None:
    """B.2: a prompt may be token ids."""
    assert ids_of(np.array([1, 2], dtype=np.int32)) == ids_of([1, 2]) == (1, 2)


@pytest.mark.parametrize("tokens", [[1.5], [[1], [2]], np.zeros((2, 2), dtype=np.int32), ["a"], [True]])
def test_what_is_no_list_of_token_ids_is_refused(tokens: Any) -> None:
    """B.2: floats, booleans, texts and nested lists are no tokens."""
    with pytest.raises(InvalidRequest, match="token ids"):
        ids_of(tokens)
