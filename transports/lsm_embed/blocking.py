"""The in-process door for programs without an event loop: `with open({"smollm2": path}) as models`.  Any thread may call anything."""

from __future__ import annotations

import queue
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self, Unpack, cast

from lsm.api import ModelInfo, SlotFile
from lsm_embed.answer import Answer, Tokens, Vectors
from lsm_embed.arguments import Messages, Prompt
from lsm_embed.async_models import AsyncModel, AsyncModels, AsyncStream, OpenHost, serve
from lsm_embed.options import Wishes
from lsm_embed.portal import Portal, Task
from lsm_embed.settings import Models as ModelFiles
from lsm_embed.settings import settings_for

OpenStream = Callable[[], AbstractAsyncContextManager[AsyncStream]]


def open(models: ModelFiles, *, open_host: OpenHost | None = None, **settings: Any) -> Models:
    """Serve GGUF files in this process, under the names that `models` gives them; `settings` are fields of `lsm.Settings`.

    Returns at once; the models are loaded one after the other, and a request waits for its own.
    Raises `ConfigError`, `ArenaError`, `ModelFileError`.
    """
    chosen = settings_for(models, settings)
    return Models(Portal(lambda: serve(chosen, open_host)))


class Models:
    """The models by name.  Closed by `close()`, by leaving `with`, when forgotten, and at the end of the program."""

    def __init__(self, portal: Portal[AsyncModels]) -> None:
        self._portal = portal
        self._models = portal.context
        self.close: Callable[[], None] = weakref.finalize(self, portal.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __getitem__(self, alias: str) -> Model:
        """Raises `NotFound` naming the models that there are."""
        return Model(self._portal.call_now(self._models.__getitem__, alias), self)

    def __iter__(self) -> Iterator[str]:
        return iter(self._portal.call_now(tuple, self._models))

    def __contains__(self, alias: object) -> bool:
        return alias in tuple(self)

    def __len__(self) -> int:
        return self._portal.call_now(len, self._models)

    @property
    def state(self) -> dict[str, Any]:
        """The document of `GET /lsm/state`: every model, its memory, the token and who waits for it."""
        return self._portal.call_now(lambda: self._models.state)


class Model:
    """One model.  Methods that need it loaded wait until it is; those that need it awake wake it."""

    def __init__(self, model: AsyncModel, models: Models) -> None:
        self.alias = model.alias
        self._model = model
        self._models = models  # a model in use keeps all of them open
        self._portal = models._portal

    @property
    def info(self) -> ModelInfo:
        return self._portal.call_now(lambda: self._model.info)

    @property
    def state(self) -> dict[str, Any]:
        """This model's part of `Models.state`."""
        return self._portal.call_now(lambda: self._model.state)

    def chat(self, messages: Messages, *, template_kwargs: Mapping[str, Any] | None = None, **wishes: Unpack[Wishes]) -> Answer:
        """The model's answer to a conversation (or to one text), rendered by its chat template."""
        return self._portal.call(lambda: self._model.chat(messages, template_kwargs=template_kwargs, **wishes))

    def complete(self, prompt: Prompt, **wishes: Unpack[Wishes]) -> Answer:
        """What the model writes after `prompt`, a text or token ids."""
        return self._portal.call(lambda: self._model.complete(prompt, **wishes))

    def stream_chat(
        self, messages: Messages, *, template_kwargs: Mapping[str, Any] | None = None, **wishes: Unpack[Wishes]
    ) -> Stream:
        """`chat` piece by piece."""
        return Stream(self._portal, lambda: self._model.stream_chat(messages, template_kwargs=template_kwargs, **wishes))

    def stream_complete(self, prompt: Prompt, **wishes: Unpack[Wishes]) -> Stream:
        """`complete` piece by piece."""
        return Stream(self._portal, lambda: self._model.stream_complete(prompt, **wishes))

    def infill(
        self, prefix: str, suffix: str, *, prompt: str = "", extra: Mapping[str, str] | None = None, **wishes: Unpack[Wishes]
    ) -> Answer:
        """What goes between `prefix` and `suffix`, after `prompt`.  `extra`: other files by name, the most telling one last."""
        return self._portal.call(lambda: self._model.infill(prefix, suffix, prompt=prompt, extra=extra, **wishes))

    def stream_infill(
        self, prefix: str, suffix: str, *, prompt: str = "", extra: Mapping[str, str] | None = None, **wishes: Unpack[Wishes]
    ) -> Stream:
        """`infill` piece by piece."""
        return Stream(self._portal, lambda: self._model.stream_infill(prefix, suffix, prompt=prompt, extra=extra, **wishes))

    def embed(self, inputs: Prompt | Sequence[Prompt], *, normalize: int | None = None) -> Vectors | list[Vectors]:
        """Embeddings, float32 of shape [n, n_embd]: a row for each input, a text or token ids.  One text is a list of one.

        With the pooling `none` an input has a row for each token: then a list of arrays of shape [n_tokens, n_embd].
        normalize: -1 none, 0 the largest magnitude to 32760, p the p-norm to 1; left out: as `embd_normalize` says.  Needs `embeddings`.
        """
        return self._portal.call(lambda: self._model.embed(inputs, normalize=normalize))

    def rank(self, query: str, documents: Sequence[str]) -> Vectors:
        """How well each document answers the query: scores, float32 of shape [n], larger is better.  Needs `rerank`."""
        return self._portal.call(lambda: self._model.rank(query, documents))

    def save_slot(self, slot: int, filename: str) -> SlotFile:
        """Write what a slot holds to a file in `slot_save_path`, as llama-server does; a busy slot is waited for.

        Raises `InvalidRequest`: no such slot, or no plain name; `NotSupported`: there is no such folder; `ServerError`: the disk is full.
        """
        return self._portal.call(lambda: self._model.save_slot(slot, filename))

    def restore_slot(self, slot: int, filename: str) -> SlotFile:
        """Let a slot hold what is in the file; a prompt that begins with it goes on from there (`id_slot`).

        Raises `InvalidRequest`: it cannot, and holds what it held; `NotSupported`.
        """
        return self._portal.call(lambda: self._model.restore_slot(slot, filename))

    def erase_slot(self, slot: int) -> int:
        """Forget what a slot holds; how many tokens that were.  Raises `InvalidRequest`, `NotSupported`."""
        return self._portal.call(lambda: self._model.erase_slot(slot))

    def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool = True) -> Tokens:
        """Token ids, int32 of shape [n].  `add_special` puts the model's BOS in front if it wants one."""
        return self._portal.call(lambda: self._model.tokenize(text, add_special=add_special, parse_special=parse_special))

    def detokenize(self, tokens: Sequence[int] | Tokens) -> str:
        return self._portal.call(lambda: self._model.detokenize(tokens))

    def render(self, messages: Messages, *, template_kwargs: Mapping[str, Any] | None = None) -> str:
        """The prompt that the model's chat template makes of a conversation."""
        return self._portal.call(lambda: self._model.render(messages, template_kwargs=template_kwargs))

    def wake(self) -> None:
        """Load the model if it is not, bring it into device memory, and wait until it is there."""
        self._portal.call(self._model.wake)

    def sleep(self) -> None:
        """Leave device memory at the next batch boundary, and wait until that is done.  The next request wakes the model."""
        self._portal.call(self._model.sleep)


class Stream:
    """Iterates over the pieces of an answer; `answer` is there when it has ended.

    The generation begins at once and runs ahead of the reader: what it has written is kept, at most one context full.
    Leaving `with`, `close()`, and forgetting the stream in the middle cancel it.  One thread at a time may iterate.
    """

    def __init__(self, portal: Portal[AsyncModels], open_stream: OpenStream) -> None:
        pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._pieces = pieces
        self._task: Task[Answer] = portal.start(_pump, open_stream, pieces)
        self._task.future.add_done_callback(lambda _: pieces.put(None))
        self.answer: Answer | None = None
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self._task.check_process()
        if self._ended:
            raise StopIteration
        piece = self._pieces.get()
        if piece is not None:
            return piece
        self._ended = True
        self.answer = self._task.wait()
        raise StopIteration

    def rest(self) -> Answer:
        """Wait for the end.  The answer holds everything, also what has been iterated over."""
        for _ in self:
            pass
        return cast(Answer, self.answer)

    def close(self) -> None:
        """Cancel what still runs, and wait until its slot is free."""
        self._ended = True
        if not self._task.future.done():
            self._task.cancel()
            self._task.wait_for_end()

    def __del__(self) -> None:
        if hasattr(self, "_task") and not self._task.future.done():
            self._task.cancel()


async def _pump(open_stream: OpenStream, pieces: queue.SimpleQueue[str | None]) -> Answer:
    """Not a method, so that the task does not keep a forgotten stream alive."""
    async with open_stream() as stream:
        async for piece in cast(AsyncIterator[str], stream):
            pieces.put(piece)
        return await stream.rest()
