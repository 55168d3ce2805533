"""A Host without a model: an echo whose tokens are bytes, for the tests of the doors.

It follows `lsm.api.Host` to the letter: same errors, same events, same order.  Its answers are a function of the prompt:

    "abc"            echoes "abc", one token per byte, one Text per character, then ends with `eos`
    "... [stall]"    one Text, then nothing until the request is cancelled
    "... [refuse]"   DecodeFailed before the first event
    "... [break]"    one Text, then DecodeFailed
    "... [no room]"  WakeFailed before the first event

A chat echoes the content of its last message.  Each model has one slot, so a request that was not really cancelled keeps the next
one out.  `open_scripted_host(settings)` stands in for `lsm.api.open_host`; a model whose file name starts with `loading` or `broken`
stays in that state.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import trio

from lsm.errors import ContextExceeded, DecodeFailed, InvalidRequest, ModelFailed, ModelLoading, NotFound, WakeFailed
from lsm.runtime.adapters import with_scales
from lsm.values import (
    AdapterInfo,
    ChatRequest,
    Counters,
    Embedding,
    Finish,
    Infill,
    ModelFacts,
    ModelInfo,
    Options,
    SlotInfo,
    StopType,
    Text,
    Timings,
)
from tests.transports.scripted_slots import ScriptedSlotFiles

BOS, EOS = 256, 257  # after the 256 bytes
N_CTX = 512
SIZE_BYTES = 1000
USER_MARK, ANSWER_MARK = "<|user|>", "<|assistant|>"


@dataclass
class ScriptedModel:
    """One model and all that moves in it.  Tests may set `load_state` and call `ScriptedHost.changed()`."""

    alias: str
    path: str = "echo.gguf"
    load_state: str = "ready"
    sleep_state: str = "awake"
    why: str = ""
    pooling: str = "mean"
    generates: bool = True
    cached: tuple[int, ...] = ()
    slot_state: str = "idle"
    request_id: str = ""
    options: Options | None = None  # of the last request
    adapters: tuple[AdapterInfo, ...] = ()
    counters: Counters = field(default_factory=Counters)
    slot: trio.Lock = field(default_factory=trio.Lock)

    def info(self) -> ModelInfo:
        facts = ModelFacts(
            architecture="echo", description="echo of bytes", vocab_type=2, n_vocab=258, n_ctx=N_CTX, n_ctx_slot=N_CTX, n_ctx_train=N_CTX,
            n_embd=1, n_params=SIZE_BYTES, size_bytes=SIZE_BYTES, n_slots=1, bos_token="<bos>", eos_token="<eos>",
            chat_template="{{ messages }}", load_ms=1.0,
            pooling=self.pooling, n_embd_out=3, generates=self.generates, adapters=self.adapters,
        )  # fmt: skip
        return ModelInfo(
            alias=self.alias, path=self.path, load_state=self.load_state, sleep_state=self.sleep_state,
            facts=facts if self.load_state == "ready" else None, created_s=1_700_000_000, why=self.why,
        )  # fmt: skip

    def state(self) -> dict[str, Any]:
        on_device = SIZE_BYTES if self.sleep_state == "awake" and self.load_state == "ready" else 0
        nothing = dict.fromkeys(("device", "host", "file", "pinned", "registered"), 0)
        weights = nothing | {"device": on_device, "file": SIZE_BYTES}
        kv = nothing | {"device": SIZE_BYTES if self.load_state == "ready" else 0}  # stays where it is, as by default
        device = "awake" if on_device else "asleep"
        residency = "resident" if on_device else "away" if self.load_state == "ready" else "absent"
        names = {"load": self.load_state, "sleep": self.sleep_state, "token": device, "residency": residency}
        running = self.counters.requests_processing
        return {
            "alias": self.alias,
            "path": self.path,
            "machines": {name: {"state": state, "since_s": 0.0} for name, state in names.items()},
            "bytes": {"weights": weights, "kv": kv, **dict.fromkeys(("compute", "encoder", "adapters"), nothing)},
            "why": self.why or ("serves" if running else "nobody needs it"),
            "requests": {"running": running, "waiting": self.counters.requests_waiting},
        }


class ScriptedHost(ScriptedSlotFiles):
    """Follows `lsm.api.Host`."""

    def __init__(self, models: Sequence[ScriptedModel]) -> None:
        self._models = {model.alias: model for model in models}
        self._change = trio.Event()
        self._requests = 0
        self.slot_files = {}
        self._wakes = 0

    def changed(self) -> None:
        """Tell everybody who watches `changes()`."""
        self._change.set()
        self._change = trio.Event()

    def scripted(self, model: str) -> ScriptedModel:
        alias = model or next(iter(self._models))
        if alias not in self._models:
            raise NotFound(f"model '{alias}' not found; there are: {', '.join(self._models)}")
        return self._models[alias]

    # What answers in every state.

    def models(self) -> tuple[ModelInfo, ...]:
        return tuple(model.info() for model in self._models.values())

    def model(self, model: str) -> ModelInfo:
        return self.scripted(model).info()

    def counters(self, model: str) -> Counters:
        return self.scripted(model).counters

    def set_adapters(self, model: str, scales: Mapping[int, float]) -> None:
        it = self.scripted(model)
        it.adapters = with_scales(it.adapters, scales)

    def slots(self, model: str) -> tuple[SlotInfo, ...]:
        it = self.scripted(model)
        if it.load_state != "ready":
            return ()
        n_cached = len(it.cached)
        return (
            SlotInfo(id=0, n_ctx=N_CTX, state=it.slot_state, request_id=it.request_id, n_prompt_tokens=n_cached,
                     n_prompt_tokens_processed=n_cached, n_prompt_tokens_cache=0, n_decoded=0, options=it.options,
                     prompt=it.cached, written=("so ", "be it")),
        )  # fmt: skip

    def state(self) -> dict[str, Any]:
        awake = [model.alias for model in self._models.values() if model.sleep_state == "awake"]
        return {
            "models": [model.state() for model in self._models.values()],
            "token": {"holder": {"pid": os.getpid(), "alias": awake[0]} if awake else None, "held_s": 0.0 if awake else None, "queue": []},
            "budget_bytes": None,
            "counters": {"handoffs": 0, "wakes": self._wakes, "refusals": 0},
        }

    @asynccontextmanager
    async def changes(self) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        async def states() -> AsyncGenerator[dict[str, Any], None]:
            while True:
                change = self._change
                yield self.state()
                await change.wait()

        async with aclosing(states()) as watched:
            yield watched

    # The vocabulary.

    def tokenize(self, model: str, text: str, *, add_special: bool = False, parse_special: bool = True) -> tuple[int, ...]:
        self._loaded(self.scripted(model))
        return ((BOS,) if add_special else ()) + tuple(text.encode())

    def pieces(self, model: str, tokens: Sequence[int]) -> tuple[bytes, ...]:
        self._loaded(self.scripted(model))
        if any(not 0 <= token <= EOS for token in tokens):
            raise InvalidRequest("there is no such token", "tokens")
        return tuple({BOS: b"<bos>", EOS: b"<eos>"}.get(token) or bytes([token]) for token in tokens)

    def detokenize(self, model: str, tokens: Sequence[int]) -> str:
        return b"".join(self.pieces(model, tokens)).decode(errors="replace")

    def render(self, model: str, chat: ChatRequest) -> str:
        self._loaded(self.scripted(model))
        if not chat.messages:
            raise InvalidRequest("is empty", "messages")
        turns = [f"<|{message['role']}|>{_content(message['content'])}" for message in chat.messages]
        return "".join(turns) + (ANSWER_MARK if chat.add_generation_prompt else "")

    # What waits.

    @asynccontextmanager
    async def generate(self, model: str, prompt: str | Sequence[int], options: Options) -> AsyncIterator[AsyncIterator[Text | Finish]]:
        it = self.scripted(model)
        self._loaded(it)
        tokens = self.tokenize(model, prompt) if isinstance(prompt, str) else tuple(prompt)
        if not tokens:
            raise InvalidRequest("the prompt is empty", "prompt")
        if len(tokens) >= N_CTX:
            raise ContextExceeded(len(tokens), N_CTX)
        text = self.detokenize(model, tokens)
        if "[refuse]" in text:
            raise DecodeFailed("the batch was refused, as scripted")
        if "[no room]" in text:
            raise WakeFailed("no room on the device, as scripted")
        with self._waiting(it):
            await it.slot.acquire()
        try:
            await self.wake(model)
            async with aclosing(self._answer(it, tokens, _echo_of(text), options)) as events:
                with self._processing(it, options):
                    yield events
        finally:
            it.slot.release()

    @asynccontextmanager
    async def chat(self, model: str, chat: ChatRequest, options: Options) -> AsyncIterator[AsyncIterator[Text | Finish]]:
        async with self.generate(model, self.render(model, chat), options) as events:
            yield events

    @asynccontextmanager
    async def infill(self, model: str, infill: Infill, options: Options) -> AsyncIterator[AsyncIterator[Text | Finish]]:
        """Writes the names and texts of the other files, and what stands around the gap."""
        files = "".join(f"{name}={text};" for name, text in infill.extra)
        async with self.generate(model, f"{files}{infill.prefix}|{infill.prompt}|{infill.suffix}", options) as events:
            yield events

    async def embed(self, model: str, inputs: Sequence[str | Sequence[int]], normalize: int | None = None) -> tuple[Embedding, ...]:
        """Of each input: how many tokens it has, the first of them, and how it was to be normalized (99: not said)."""
        self._loaded(self.scripted(model))
        made = [self.tokenize(model, text) if isinstance(text, str) else tuple(text) for text in inputs]
        await self.wake(model)
        norm = 99 if normalize is None else normalize
        return tuple(
            Embedding(vectors=np.array([[len(tokens), tokens[0], norm]], np.float32), n_tokens=len(tokens)) for tokens in made
        )

    async def rank(self, model: str, query: str, documents: Sequence[str]) -> tuple[Embedding, ...]:
        """How often the query stands in each document."""
        self._loaded(self.scripted(model))
        return tuple(Embedding(vectors=np.array([[text.count(query)]], np.float32), n_tokens=len(text)) for text in documents)

    async def wake(self, model: str) -> None:
        it = self.scripted(model)
        self._loaded(it)
        await trio.lowlevel.checkpoint()
        if it.sleep_state != "awake":
            it.sleep_state = "awake"
            self._wakes += 1
            self.changed()

    async def sleep(self, model: str) -> None:
        it = self.scripted(model)
        await trio.lowlevel.checkpoint()
        it.sleep_state = "asleep"
        self.changed()

    # Inside.

    def _loaded(self, it: ScriptedModel) -> None:
        if it.load_state == "failed":
            raise ModelFailed(f"{it.path}: {it.why}")
        if it.load_state != "ready":
            raise ModelLoading()

    @contextmanager
    def _waiting(self, it: ScriptedModel) -> Iterator[None]:
        it.counters = replace(it.counters, requests_waiting=it.counters.requests_waiting + 1)
        try:
            yield
        finally:
            it.counters = replace(it.counters, requests_waiting=it.counters.requests_waiting - 1)

    @contextmanager
    def _processing(self, it: ScriptedModel, options: Options) -> Iterator[None]:
        self._requests += 1
        it.slot_state, it.request_id, it.options = "generating", str(self._requests), options
        it.counters = replace(it.counters, requests_processing=1)
        self.changed()
        try:
            yield
        finally:
            it.slot_state, it.request_id = "idle", ""
            it.counters = replace(it.counters, requests_processing=0)
            self.changed()

    async def _answer(self, it: ScriptedModel, prompt: tuple[int, ...], echo: str, options: Options) -> AsyncGenerator[Text | Finish, None]:
        n_cached = _common_prefix(it.cached, prompt[:-1]) if options.cache_prompt else 0
        it.cached = prompt
        n_predicted, stopping_word = 0, ""
        stop_type: StopType = "eos"
        for text in _until_stop(echo, options.stop):
            tokens = tuple(text.encode())
            if 0 <= options.max_tokens < n_predicted + len(tokens):
                stop_type = "limit"
                break
            await trio.lowlevel.checkpoint()
            yield Text(text, tokens)
            n_predicted += len(tokens)
            if "[stall]" in echo:
                await trio.sleep_forever()
            if "[break]" in echo:
                raise DecodeFailed("the batch was refused in the middle, as scripted")
        else:
            stopping_word = _stop_in(echo, options.stop)
            stop_type = "word" if stopping_word else "eos"
        n_prompt = len(prompt) - n_cached
        self._count(it, n_cached, n_prompt, n_predicted)
        yield _finish(stop_type, stopping_word, n_cached, n_prompt, n_predicted)

    def _count(self, it: ScriptedModel, n_cached: int, n_prompt: int, n_predicted: int) -> None:
        old = it.counters
        it.counters = replace(
            old,
            prompt_tokens=old.prompt_tokens + n_prompt,
            prompt_tokens_cached=old.prompt_tokens_cached + n_cached,
            prompt_seconds=old.prompt_seconds + n_prompt / 1000,
            predicted_tokens=old.predicted_tokens + n_predicted,
            predicted_seconds=old.predicted_seconds + n_predicted / 1000,
            decode_calls=old.decode_calls + 1 + n_predicted,
            busy_slots=old.busy_slots + 1 + n_predicted,
            tokens_max=max(old.tokens_max, n_cached + n_prompt + n_predicted),
        )


def _finish(stop_type: StopType, stopping_word: str, n_cached: int, n_prompt: int, n_predicted: int) -> Finish:
    """Every token takes one millisecond."""
    timings = Timings(
        cache_n=n_cached, prompt_n=n_prompt, prompt_ms=float(n_prompt), predicted_n=n_predicted, predicted_ms=float(n_predicted)
    )
    return Finish(
        stop_type=stop_type,
        stopping_word=stopping_word,
        truncated=False,
        id_slot=0,
        timings=timings,
        prompt_tokens=n_cached + n_prompt,
        completion_tokens=n_predicted,
    )


def _content(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _echo_of(text: str) -> str:
    """What comes after the last role mark, so that a chat echoes its last message."""
    turn = text.removesuffix(ANSWER_MARK)
    return turn.rpartition("|>")[2]


def _stop_in(echo: str, stops: Sequence[str]) -> str:
    """The stop string that comes first, or nothing."""
    found = [(echo.index(stop), stop) for stop in stops if stop in echo]
    return min(found)[1] if found else ""


def _until_stop(echo: str, stops: Sequence[str]) -> str:
    stop = _stop_in(echo, stops)
    return echo[: echo.index(stop)] if stop else echo


def _common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    length = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        length += 1
    return length


def scripted_model(alias: str, path: str) -> ScriptedModel:
    name = Path(path).name
    if name.startswith("loading"):
        return ScriptedModel(alias, path, load_state="loading", sleep_state="asleep")
    if name.startswith("broken"):
        return ScriptedModel(alias, path, load_state="failed", sleep_state="asleep", why="not a GGUF file, as scripted")
    return ScriptedModel(alias, path)


@asynccontextmanager
async def open_scripted_host(settings: Any) -> AsyncIterator[ScriptedHost]:
    """Stands in for `lsm.api.open_host`: one echo per model of the settings."""
    host = ScriptedHost([scripted_model(source.alias, str(source.path)) for source in settings.models])
    json.dumps(host.state())  # the document must stay plain JSON
    yield host
