"""What only the blocking door has: threads, streams that are left, the end of the program."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
import trio

import lsm
from lsm.errors import ArenaError, DecodeFailed, InvalidRequest, ModelFailed, ModelLoading, NotFound, ServerError
from tests.transports.limits import LIMIT_S, within_limit
from tests.transports.scripted_host import open_scripted_host

STALL = "stop here [stall]"


@pytest.fixture
def models() -> Iterator[lsm.Models]:
    with lsm.open({"echo": "echo.gguf"}, open_host=open_scripted_host) as models:
        yield models


@pytest.fixture
def echo(models: lsm.Models) -> lsm.Model:
    return models["echo"]


def test_tokens_are_numpy_int32(echo: lsm.Model) -> None:
    """Design 7: numpy arrays out."""
    assert echo.tokenize("hé").dtype == np.int32
    np.testing.assert_array_equal(echo.tokenize("hé"), [104, 195, 169])
    np.testing.assert_array_equal(echo.complete("hé").tokens, [104, 195, 169])


def test_tokens_may_be_a_prompt(echo: lsm.Model) -> None:
    """B.2: token ids in, as they came out."""
    assert echo.complete(echo.tokenize("hello")).text == "hello"


def test_a_stream_gives_pieces_and_then_the_answer(echo: lsm.Model) -> None:
    """Design 7: the same answer, as it comes."""
    with echo.stream_complete("héllo") as stream:
        assert next(stream) == "h"
        assert "".join(stream) == "éllo"
    assert stream.answer is not None
    assert (stream.answer.text, stream.answer.stop_type) == ("héllo", "eos")


@pytest.mark.parametrize("leave", ["with", "close", "forget", "interrupt"])
def test_leaving_a_stream_early_frees_its_slot(echo: lsm.Model, leave: str) -> None:
    """Design 7: the only slot is free again after every way of leaving."""
    kept: list[lsm.Stream] = []  # a stream that is only closed is not forgotten

    def start_and_leave() -> None:
        stream = echo.stream_complete(STALL)
        if leave != "forget":
            kept.append(stream)
        assert next(stream) == "s"
        if leave == "with":
            with stream:
                pass
        elif leave == "close":
            stream.close()
        elif leave == "interrupt":
            with pytest.raises(KeyboardInterrupt), stream:
                raise KeyboardInterrupt

    within_limit(start_and_leave)
    gc.collect()
    assert within_limit(lambda: echo.complete("next").text) == "next"


def test_a_left_stream_ends(echo: lsm.Model) -> None:
    """Design 7: a closed stream gives no more pieces and no answer."""
    stream = echo.stream_complete(STALL)
    next(stream)
    stream.close()
    assert (list(stream), stream.answer) == ([], None)


def test_an_error_in_the_middle_comes_after_the_pieces(echo: lsm.Model) -> None:
    """Design 7: errors are those of lsm.errors, single and not in groups; the next request is served."""
    stream = echo.stream_complete("x [break]")
    assert next(stream) == "x"
    with pytest.raises(DecodeFailed, match="as scripted"):
        next(stream)
    assert echo.complete("next").text == "next"


def test_many_threads_share_the_models(models: lsm.Models) -> None:
    """Design 7: any thread may call anything."""
    texts = [f"text {number}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: models["echo"].complete(text).text, texts, timeout=LIMIT_S)) == texts


def test_closing_ends_calls_of_other_threads(models: lsm.Models) -> None:
    """Design 7: nobody waits for ever on models that are gone."""
    stream = models["echo"].stream_complete(STALL)
    next(stream)
    waiting = threading.Event()

    def wait_for_more() -> str:
        waiting.set()
        return next(stream)

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(wait_for_more)
        waiting.wait(LIMIT_S)
        within_limit(models.close)
        with pytest.raises(InvalidRequest, match="closed"):
            reader.result(LIMIT_S)


def test_closed_models_say_so(models: lsm.Models) -> None:
    """Design 7: closing twice is fine, using what is closed is an error with the remedy."""
    echo = models["echo"]
    models.close()
    models.close()
    for use in (lambda: echo.complete("x"), lambda: models["echo"], lambda: models.state, lambda: next(echo.stream_complete("x"))):
        with pytest.raises(InvalidRequest, match="open them again"):
            within_limit(use)


def test_forgotten_models_are_closed() -> None:
    """Design 7: the thread does not outlive its last user."""
    before = threading.active_count()
    models = lsm.open({"echo": "echo.gguf"}, open_host=open_scripted_host)
    model = models["echo"]
    del models
    gc.collect()
    assert model.complete("still open").text == "still open"
    del model
    gc.collect()
    assert threading.active_count() == before


def test_opening_fails_with_the_error_itself() -> None:
    """Design 7: what open_host raises is what open raises."""

    @asynccontextmanager
    async def refuse(settings: lsm.Settings) -> Any:
        raise ArenaError("the arena cannot be used, as scripted")
        yield

    with pytest.raises(ArenaError, match="as scripted"):
        lsm.open({"echo": "echo.gguf"}, open_host=refuse)


CRASHES: dict[str, BaseException] = {
    "gone, as scripted": DecodeFailed("gone, as scripted"),
    "TypeError: unsupported": TypeError("unsupported"),
    "SystemExit: 3": SystemExit(3),
    "KeyError: 'a'": KeyError("a"),
    "two": BaseExceptionGroup("two", [TypeError("one"), SystemExit(1)]),
    "left without being closed": trio.TooSlowError(),  # swallowed by the host itself
}


@pytest.mark.parametrize("why", CRASHES)
def test_a_host_that_dies_ends_every_call(why: str) -> None:
    """Design 7: nobody waits for ever on a thread that is gone; calls that run and later ones say what happened, and not "closed"."""
    die = threading.Event()

    @asynccontextmanager
    async def mortal(settings: lsm.Settings) -> Any:
        async def body() -> None:
            await trio.to_thread.run_sync(die.wait, LIMIT_S)
            if isinstance(CRASHES[why], trio.TooSlowError):
                nursery.cancel_scope.cancel()
            else:
                raise CRASHES[why]

        async with trio.open_nursery() as nursery, open_scripted_host(settings) as host:
            nursery.start_soon(body)
            yield host

    models = lsm.open({"echo": "echo.gguf"}, open_host=mortal)
    echo = models["echo"]
    stream = echo.stream_complete(STALL)
    next(stream)
    die.set()
    uses = (lambda: next(stream), lambda: models["echo"], lambda: echo.complete("x"), lambda: models.state, lambda: echo.tokenize("x"))
    for use in uses:
        with pytest.raises(ServerError, match=f"the thread of the models has ended: .*{re.escape(why)}"):
            within_limit(use)
    within_limit(models.close)
    with pytest.raises(ServerError, match="has ended"):
        within_limit(lambda: echo.complete("x"))


def test_a_call_while_the_host_is_dying_waits_for_the_reason() -> None:
    """Design 7: between the crash and the end of the thread nothing is said of "closed" either."""
    die, dying, release = threading.Event(), threading.Event(), threading.Event()

    @asynccontextmanager
    async def mortal(settings: lsm.Settings) -> Any:
        async def body() -> None:
            await trio.to_thread.run_sync(die.wait, LIMIT_S)
            raise DecodeFailed("gone, as scripted")

        try:
            async with trio.open_nursery() as nursery, open_scripted_host(settings) as host:
                nursery.start_soon(body)
                yield host
        finally:
            dying.set()
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(release.wait, LIMIT_S)

    models = lsm.open({"echo": "echo.gguf"}, open_host=mortal)
    echo = models["echo"]
    die.set()
    assert dying.wait(LIMIT_S)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(echo.complete, "x")
        release.set()
        with pytest.raises(ServerError, match="has ended: gone, as scripted"):
            call.result(LIMIT_S)


def test_no_thread_to_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Habit 6: the limits of a container end in a message, not in a hang."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(ServerError, match="can't start new thread"):
            lsm.open({"echo": "echo.gguf"}, open_host=open_scripted_host)


def test_a_host_is_left_in_peace() -> None:
    """Design 7: while it gives everything back, new calls are refused at once, and a second close does not cut it short."""
    leaving, release, left = threading.Event(), threading.Event(), threading.Event()

    @asynccontextmanager
    async def slow(settings: lsm.Settings) -> Any:
        async with open_scripted_host(settings) as host:
            yield host
        leaving.set()
        await trio.to_thread.run_sync(release.wait, LIMIT_S, abandon_on_cancel=True)
        left.set()

    models = lsm.open({"echo": "echo.gguf"}, open_host=slow)
    echo = models["echo"]
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(models.close)
        assert leaving.wait(LIMIT_S)
        with pytest.raises(InvalidRequest, match="closed"):
            within_limit(lambda: echo.complete("x"))
        second = pool.submit(models._portal.close)
        with pytest.raises(InvalidRequest, match="closed"):
            within_limit(lambda: echo.complete("x"))
        release.set()
        first.result(LIMIT_S)
        second.result(LIMIT_S)
    assert left.is_set()


@pytest.mark.parametrize(("path", "error"), [("loading.gguf", ModelLoading), ("broken.gguf", ModelFailed)])
def test_a_model_that_is_not_there_says_why(path: str, error: type[Exception]) -> None:
    """Part 8 of first light: a broken model is an error of the request, not of the program."""
    with lsm.open({"echo": "echo.gguf", "other": path}, open_host=open_scripted_host) as models:
        with pytest.raises(error):
            models["other"].complete("x")
        assert models["echo"].complete("x").text == "x"


def test_an_unknown_model_names_the_known_ones(models: lsm.Models) -> None:
    """B.0: the message helps."""
    with pytest.raises(NotFound, match="there are: echo"):
        models["smollm2"]
