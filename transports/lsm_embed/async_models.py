"""The in-process door on trio: `async with open_async({"smollm2": path}) as models`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Unpack, cast

import numpy as np
import trio

from lsm import api
from lsm.api import Finish, Host, ModelInfo, Options, Settings, SlotFile, Text, TokenProbs
from lsm.errors import ConfigError, NotFound, ServerError
from lsm_embed.answer import Answer, Tokens, Vectors, answer_of
from lsm_embed.arguments import Messages, Prompt, chat_of, ids_of, prompt_of, slot_of, text_of
from lsm_embed.errors import single_errors
from lsm_embed.mode_arguments import infill_of, inputs_of, norm_of, texts_of
from lsm_embed.options import Wishes, options_for
from lsm_embed.settings import Models, settings_for

OpenHost = Callable[[Settings], AbstractAsyncContextManager[Host]]
Events = AbstractAsyncContextManager[AsyncIterator[Text | Finish]]


@asynccontextmanager
async def open_async(models: Models, *, open_host: OpenHost | None = None, **settings: Any) -> AsyncIterator[AsyncModels]:
    """Serve GGUF files in this process, under the names that `models` gives them; `settings` are fields of `lsm.Settings`.

    Returns at once; the models are loaded one after the other, and a request waits for its own.
    Raises `ConfigError` (also on an event loop other than trio's), `ArenaError`, `ModelFileError`.
    """
    if not trio.lowlevel.in_trio_run():
        raise ConfigError("lsm.open_async needs trio; on asyncio use lsm.open in a thread: await asyncio.to_thread(lsm.open, models)")
    with single_errors():
        async with serve(settings_for(models, settings), open_host) as served:
            yield served


@asynccontextmanager
async def serve(settings: Settings, open_host: OpenHost | None = None) -> AsyncIterator[AsyncModels]:
    """The same from `Settings`, for programs with a command line."""
    async with (open_host or api.open_host)(settings) as host:
        yield AsyncModels(host, settings)


class AsyncModels:
    """The models by name, in the order in which they were given."""

    def __init__(self, host: Host, settings: Settings) -> None:
        self._host = host
        self._settings = settings

    def __getitem__(self, alias: str) -> AsyncModel:
        """Raises `NotFound` naming the models that there are."""
        if alias not in self:
            raise NotFound(f"there is no model {alias!r}; there are: {', '.join(self)}")
        return AsyncModel(alias, self._host, self._settings)

    def __iter__(self) -> Iterator[str]:
        return (info.alias for info in self._host.models())

    def __contains__(self, alias: object) -> bool:
        return alias in tuple(self)

    def __len__(self) -> int:
        return len(self._host.models())

    @property
    def state(self) -> dict[str, Any]:
        """The document of `GET /lsm/state`: every model, its memory, the token and who waits for it."""
        return self._host.state()


class AsyncModel:
    """One model.  Methods that need it loaded wait until it is; those that need it awake wake it."""

    def __init__(self, alias: str, host: Host, settings: Settings) -> None:
        self.alias = alias
        self._host = host
        self._settings = settings

    @property
    def info(self) -> ModelInfo:
        return self._host.model(self.alias)

    @property
    def state(self) -> dict[str, Any]:
        """This model's part of `AsyncModels.state`."""
        return next(model for model in self._host.state()["models"] if model["alias"] == self.alias)

    async def chat(self, messages: Messages, *, template_kwargs: Mapping[str, Any] | None = None, **wishes: Unpack[Wishes]) -> Answer:
        """The model's answer to a conversation (or to one text), rendered by its chat template."""
        async with self.stream_chat(messages, template_kwargs=template_kwargs, **wishes) as stream:
            return await stream.rest()

    async def complete(self, prompt: Prompt, **wishes: Unpack[Wishes]) -> Answer:
        """What the model writes after `prompt`, a text or token ids."""
        async with self.stream_complete(prompt, **wishes) as stream:
            return await stream.rest()

    @asynccontextmanager
    async def stream_chat(
        self, messages: Messages, *, template_kwargs: Mapping[str, Any] | None = None, **wishes: Unpack[Wishes]
    ) -> AsyncIterator[AsyncStream]:
        """`chat` piece by piece; leaving the `async with` early cancels the generation."""
        self._options(wishes)
        chat = chat_of(messages, template_kwargs)
        await self._loaded()
        async with self._stream(self._host.chat(self.alias, chat, self._options(wishes))) as stream:
            yield stream

    @asynccontextmanager
    async def stream_complete(self, prompt: Prompt, **wishes: Unpack[Wishes]) -> AsyncIterator[AsyncStream]:
        """`complete` piece by piece; leaving the `async with` early cancels the generation."""
        self._options(wishes)
        start = prompt_of(prompt)
        await self._loaded()
        async with self._stream(self._host.generate(self.alias, start, self._options(wishes))) as stream:
            yield stream

    async def infill(
        self, prefix: str, suffix: str, *, prompt: str = "", extra: Mapping[str, str] | None = None, **wishes: Unpack[Wishes]
    ) -> Answer:
        """What goes between `prefix` and `suffix`, after `prompt`.  `extra`: other files by name, the most telling one last."""
        async with self.stream_infill(prefix, suffix, prompt=prompt, extra=extra, **wishes) as stream:
            return await stream.rest()

    @asynccontextmanager
    async def stream_infill(
        self, prefix: str, suffix: str, *, prompt: str = "", extra: Mapping[str, str] | None = None, **wishes: Unpack[Wishes]
    ) -> AsyncIterator[AsyncStream]:
        """`infill` piece by piece; leaving the `async with` early cancels the generation."""
        self._options(wishes)
        gap = infill_of(prefix, suffix, prompt, extra)
        await self._loaded()
        async with self._stream(self._host.infill(self.alias, gap, self._options(wishes))) as stream:
            yield stream

    async def embed(self, inputs: Prompt | Sequence[Prompt], *, normalize: int | None = None) -> Vectors | list[Vectors]:
        """Embeddings, float32 of shape [n, n_embd]: a row for each input, a text or token ids.  One text is a list of one.

        With the pooling `none` an input has a row for each token: then a list of arrays of shape [n_tokens, n_embd].
        normalize: -1 none, 0 the largest magnitude to 32760, p the p-norm to 1; left out: as `embd_normalize` says.  Needs `embeddings`.
        """
        wanted, norm = inputs_of(inputs), norm_of(normalize)
        await self._loaded()
        with single_errors():
            made = await self._host.embed(self.alias, wanted, norm)
        vectors = [one.vectors for one in made]
        facts = self.info.facts
        return vectors if facts is not None and facts.pooling == "none" else np.concatenate(vectors)

    async def rank(self, query: str, documents: Sequence[str]) -> Vectors:
        """How well each document answers the query: scores, float32 of shape [n], larger is better.  Needs `rerank`."""
        text, texts = text_of(query, "query"), texts_of(documents, "documents")
        await self._loaded()
        with single_errors():
            made = await self._host.rank(self.alias, text, texts)
        return np.array([one.vectors[0, 0] for one in made], dtype=np.float32)

    async def save_slot(self, slot: int, filename: str) -> SlotFile:
        """Write what a slot holds to a file in `slot_save_path`, as llama-server does; a busy slot is waited for.

        Raises `InvalidRequest`: no such slot, or no plain name; `NotSupported`: there is no such folder; `ServerError`: the disk is full.
        """
        number, name = slot_of(slot), text_of(filename, "filename")
        await self._loaded()
        with single_errors():
            return await self._host.save_slot(self.alias, number, name)

    async def restore_slot(self, slot: int, filename: str) -> SlotFile:
        """Let a slot hold what is in the file; a prompt that begins with it goes on from there (`id_slot`).

        Raises `InvalidRequest`: it cannot, and holds what it held; `NotSupported`.
        """
        number, name = slot_of(slot), text_of(filename, "filename")
        await self._loaded()
        with single_errors():
            return await self._host.restore_slot(self.alias, number, name)

    async def erase_slot(self, slot: int) -> int:
        """Forget what a slot holds; how many tokens that were.  Raises `InvalidRequest`, `NotSupported`."""
        number = slot_of(slot)
        await self._loaded()
        with single_errors():
            return await self._host.erase_slot(self.alias, number)

    def _options(self, wishes: Wishes) -> Options:
        """Asked before the wait for the model, for what is wrong, and again after it, when the file's own defaults are known."""
        facts = self.info.facts
        return options_for(self._settings.options_for(facts.sampling if facts else ()), wishes)

    async def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool = True) -> Tokens:
        """Token ids, int32 of shape [n].  `add_special` puts the model's BOS in front if it wants one."""
        text = text_of(text, "text")
        await self._loaded()
        return np.asarray(self._host.tokenize(self.alias, text, add_special=add_special, parse_special=parse_special), dtype=np.int32)

    async def detokenize(self, tokens: Sequence[int] | Tokens) -> str:
        ids = ids_of(tokens)
        await self._loaded()
        return self._host.detokenize(self.alias, ids)

    async def render(self, messages: Messages, *, template_kwargs: Mapping[str, Any] | None = None) -> str:
        """The prompt that the model's chat template makes of a conversation."""
        chat = chat_of(messages, template_kwargs)
        await self._loaded()
        return self._host.render(self.alias, chat)

    async def wake(self) -> None:
        """Load the model if it is not, bring it into device memory, and wait until it is there."""
        await self._host.wake(self.alias)

    async def sleep(self) -> None:
        """Leave device memory at the next batch boundary, and wait until that is done.  The next request wakes the model."""
        await self._host.sleep(self.alias)

    async def _loaded(self) -> None:
        if self.info.facts is None:
            await self._host.wake(self.alias)

    @asynccontextmanager
    async def _stream(self, events: Events) -> AsyncIterator[AsyncStream]:
        with single_errors():
            async with events as ready:
                yield AsyncStream(ready)


class AsyncStream:
    """Iterates over the pieces of an answer: all text that is ready comes as one piece.  `answer` is there when it has ended."""

    def __init__(self, events: AsyncIterator[Text | Finish]) -> None:
        self._events = events
        self._texts: list[str] = []
        self._tokens: list[int] = []
        self._probs: list[TokenProbs] = []
        self.answer: Answer | None = None

    @property
    def tokens(self) -> Tokens:
        """The tokens so far, int32 of shape [n]."""
        return np.asarray(self._tokens, dtype=np.int32)

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        if self.answer is not None:
            raise StopAsyncIteration
        event = await anext(self._events, None)
        if event is None:
            raise ServerError("the answer ended without saying how")
        if isinstance(event, Finish):
            self.answer = answer_of(self._texts, self._tokens, event, self._probs)
            raise StopAsyncIteration
        self._texts.append(event.text)
        self._tokens.extend(event.tokens)
        self._probs.extend(event.probs)
        return event.text

    async def rest(self) -> Answer:
        """Wait for the end.  The answer holds everything, also what has been iterated over."""
        async for _ in self:
            pass
        return cast(Answer, self.answer)
