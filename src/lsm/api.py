"""What every door calls: frozen values in, frozen values out.

    async with open_host(settings) as host:
        async with host.generate("smollm2", "Once upon a time", Options(max_tokens=16)) as answer:
            async for event in answer:          # Text, Text, ..., Finish
                ...

Everything that does not wait is a plain method and answers in every state, changing nothing.  Errors are `lsm.errors`; those of a request
carry the HTTP status.  Cancelling is leaving the `async with`: the slot is free again after the batch that runs.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol

from lsm.config import Settings
from lsm.values import (
    AdapterInfo,
    ChatRequest,
    Counters,
    Embedding,
    Finish,
    Infill,
    MediaPrompt,
    ModelFacts,
    ModelInfo,
    Options,
    Progress,
    Sampling,
    SlotFile,
    SlotInfo,
    Text,
    Timings,
    TokenProb,
    TokenProbs,
)

__all__ = [
    "AdapterInfo", "ChatRequest", "Counters", "Embedding", "Finish", "Host", "Infill", "MediaPrompt", "ModelFacts", "ModelInfo",
    "Options", "Progress", "Sampling", "Settings", "SlotFile", "SlotInfo", "Text", "Timings", "TokenProb",
    "TokenProbs", "build_info", "open_host",
]  # fmt: skip

TextPrompt = str | Sequence[int]  # text, or token ids
Event = Text | Progress | Finish  # with several choices (`Options.n`) their texts are mixed, and each has its `Finish`
Events = AbstractAsyncContextManager[AsyncIterator[Event]]
Prompt = TextPrompt | MediaPrompt  # or text with images and sound


class Host(Protocol):
    """All models of this process.  `model` arguments are aliases; an empty one means the first.  `NotFound`: there is no such model."""

    def models(self) -> tuple[ModelInfo, ...]:
        """Every model, loaded or not, in the order of the command line."""
        ...

    def model(self, model: str) -> ModelInfo: ...

    def counters(self, model: str) -> Counters: ...

    def slots(self, model: str) -> tuple[SlotInfo, ...]: ...

    def set_adapters(self, model: str, scales: Mapping[int, float]) -> None:
        """From the next request on each LoRA adapter of the model (`ModelFacts.adapters`) acts by its scale here; others act no longer.

        What the slots keep of earlier prompts is not used again.  Raises `InvalidRequest`: there is no such adapter, or an infinite scale;
        `ModelLoading` or `ModelFailed` before the model has been loaded.
        """
        ...

    async def save_slot(self, model: str, slot: int, filename: str) -> SlotFile:
        """Write what an idle slot holds to a file in `--slot-save-path`, in llama-server's format; a busy one is waited for.

        `InvalidRequest`: no such slot, no plain name.  `NotSupported`: there is no such folder.  `ServerError`: the disk
        is full.  These and `restore_slot` and `erase_slot` wake the model.
        """
        ...

    async def restore_slot(self, model: str, slot: int, filename: str) -> SlotFile:
        """Let an idle slot hold what is in the file.  `InvalidRequest`: it cannot; then the slot is as it was."""
        ...

    async def erase_slot(self, model: str, slot: int) -> int:
        """Forget what an idle slot holds; how many tokens that were."""
        ...

    def state(self) -> dict[str, Any]:
        """The document of `GET /lsm/state`; plain JSON values."""
        ...

    def changes(self) -> AbstractAsyncContextManager[AsyncIterator[dict[str, Any]]]:
        """`state()` now, and again after each change; changes in quick succession come as one."""
        ...

    def tokenize(self, model: str, text: str, *, add_special: bool = False, parse_special: bool = True) -> tuple[int, ...]:
        """Needs the vocabulary, so raises `ModelLoading` or `ModelFailed` before the model has been loaded; works while it sleeps."""
        ...

    def pieces(self, model: str, tokens: Sequence[int]) -> tuple[bytes, ...]:
        """The bytes of each token, special ones included; a character may be split between tokens."""
        ...

    def detokenize(self, model: str, tokens: Sequence[int]) -> str: ...

    def render(self, model: str, chat: ChatRequest) -> str:
        """The prompt that the model's chat template makes of the conversation."""
        ...

    def generate(self, model: str, prompt: Prompt, options: Options) -> Events:
        """Wake the model if it sleeps, decode the prompt, sample.  All text that is ready comes as one `Text`; the last event is `Finish`.

        Text prompts are tokenized with the model's BOS if it wants one, special tokens are parsed.
        Errors before the first event leave nothing behind: `InvalidRequest`, `ContextExceeded`, `Unavailable` and its kinds, `ServerError`.
        """
        ...

    def chat(self, model: str, chat: ChatRequest, options: Options) -> Events:
        """`render`, fetch the images and sound of the conversation, then `generate`."""
        ...

    def infill(self, model: str, infill: Infill, options: Options) -> Events:
        """What goes into the gap of a text.  `NotSupported`: the model was not trained for that."""
        ...

    async def embed(self, model: str, inputs: Sequence[TextPrompt], normalize: int | None = None) -> tuple[Embedding, ...]:
        """One `Embedding` for each input, in order, computed side by side; cancelling ends all.  Errors are those of `generate`.

        normalize: -1 none, 0 the largest magnitude to 32760, p > 0 the p-norm to 1; None: as the settings say.  Needs `--embeddings`.
        """
        ...

    async def rank(self, model: str, query: str, documents: Sequence[str]) -> tuple[Embedding, ...]:
        """How well each document answers the query: the first number of each.  `NotSupported`: not started with `--rerank`."""
        ...

    async def wake(self, model: str) -> None:
        """Load the model if it is not, and wait until it is awake.  `Unavailable`: the device, or the model, could not be had."""
        ...

    async def sleep(self, model: str) -> None:
        """Give the device back at the next batch boundary, and wait until that is done.  A running request wakes the model again."""
        ...


@asynccontextmanager
async def open_host(settings: Settings) -> AsyncIterator[Host]:
    """Take the models of `settings` in and start loading them, one after the other.  On leaving, requests end and everything is given back.

    A file name without a folder that is not in the current folder is looked up in the model folder (`lsm.models.resolve`).
    Raises `ArenaError` if the arena cannot be used, `ModelFileError` if a model file cannot be right.
    """
    from lsm.models import resolve
    from lsm.runtime.host import open_local_host  # the compiled part is loaded only where a model is served

    paths = tuple(resolve(path, os.environ) for path in settings.model_paths)
    projectors = tuple(path if str(path) == "none" else resolve(path, os.environ) for path in settings.media.mmproj_paths)
    media = replace(settings.media, mmproj_paths=projectors)
    async with open_local_host(replace(settings, model_paths=paths, media=media)) as host:
        yield host


def build_info() -> Mapping[str, Any]:
    """What was built (version, commit, flags), which devices there are and their memory in bytes.  `BuildError` when it cannot run here."""
    from lsm.native.library import build_info as info

    return info()
