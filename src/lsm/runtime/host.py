"""All models of one process behind `lsm.api.Host`."""

from __future__ import annotations

import itertools
import os
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import trio

from lsm.arena.directory import default_directory
from lsm.arena.ledger import Ledger
from lsm.arena.line import Line
from lsm.chat.media import MediaParts
from lsm.chat.template import ChatTemplate
from lsm.config import Settings
from lsm.config.settings import ModelSource
from lsm.engine.engine import Engine
from lsm.engine.gguf_header import read_header
from lsm.engine.infill import infill_prompt
from lsm.engine.normalize import NONE
from lsm.engine.ranking import rank_prompt
from lsm.errors import InvalidRequest, NotFound, NotSupported
from lsm.machines.table import Machine
from lsm.native.devices import chosen_devices
from lsm.native.memory import set_shadow
from lsm.runtime.changes import Changes
from lsm.runtime.device_budget import device_budget
from lsm.runtime.embedding import embed_all
from lsm.runtime.encoder_room import EncoderRoom
from lsm.runtime.engine_settings import engine_config
from lsm.runtime.engine_thread import EngineThread
from lsm.runtime.executor import Executor, Observer
from lsm.runtime.media_source import fetch_all
from lsm.runtime.owner import Owner
from lsm.runtime.room_effects import Budget
from lsm.runtime.slot_files import open_folder
from lsm.runtime.slot_saving import SlotFiles
from lsm.runtime.state import document
from lsm.runtime.trace import Recorder
from lsm.values import (
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
    SlotFile,
    SlotInfo,
    Text,
)

Prompt = str | Sequence[int] | MediaPrompt

LONG_TEXT = 16_384  # characters; more than this is rendered and tokenized on a thread, so that the loop stays free
CHANGES_INTERVAL_S = 0.05
MAX_PREPARING = 2  # schemas and the like that are compiled at the same time; others wait for them, not everything else
_memory_owners = itertools.count(1)  # names in the ledger of device memory, which is one for the process


class LocalHost:
    """See `lsm.api.Host`."""

    def __init__(
        self,
        owners: dict[str, Owner],
        paths: dict[str, Path],
        arena: Path,
        budget: Budget,
        settings: Settings,
        changes: Changes,
        slot_files: SlotFiles,
    ) -> None:
        self._owners = owners
        self._paths = paths
        self._arena = arena
        self._budget = budget
        self._settings = settings
        self._changes = changes
        self._slot_files = slot_files
        self._created_s = int(time.time())
        self._templates: dict[str, ChatTemplate] = {}
        self._preparing = trio.CapacityLimiter(MAX_PREPARING)

    # ---- never waits ----------------------------------------------------------------------------------------------------

    def models(self) -> tuple[ModelInfo, ...]:
        return tuple(map(self._info, self._owners.values()))

    def model(self, model: str) -> ModelInfo:
        return self._info(self._owner(model))

    def counters(self, model: str) -> Counters:
        owner = self._owner(model)
        return replace(owner.activity.counters, requests_processing=owner.running, requests_waiting=owner.waiting)

    def slots(self, model: str) -> tuple[SlotInfo, ...]:
        return self._owner(model).activity.slots

    def state(self) -> dict[str, Any]:
        owners = [(owner, self._paths[alias]) for alias, owner in self._owners.items()]
        return document(owners, self._arena, self._budget.size_bytes)

    def tokenize(self, model: str, text: str, *, add_special: bool = False, parse_special: bool = True) -> tuple[int, ...]:
        return tuple(self._owner(model).vocab.tokenize(text, add_special, parse_special).tolist())

    def pieces(self, model: str, tokens: Sequence[int]) -> tuple[bytes, ...]:
        vocab = self._owner(model).vocab
        return tuple(vocab.piece(int(token), True) for token in _checked(tokens, vocab.n_tokens))

    def detokenize(self, model: str, tokens: Sequence[int]) -> str:
        return b"".join(self.pieces(model, tokens)).decode("utf-8", "replace")

    def set_adapters(self, model: str, scales: Mapping[int, float]) -> None:
        self._owner(model).set_adapters(scales)

    def render(self, model: str, chat: ChatRequest) -> str:
        owner = self._owner(model)
        return self._template(owner).render(chat, _media_parts(owner))

    # ---- waits --------------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def changes(self) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        async def states() -> AsyncIterator[dict[str, Any]]:
            version = self._changes.version
            while True:
                yield self.state()
                await trio.sleep(CHANGES_INTERVAL_S)
                version = await self._changes.after(version)

        yield states()

    @asynccontextmanager
    async def generate(self, model: str, prompt: Prompt, options: Options) -> AsyncIterator[AsyncIterator[Text | Progress | Finish]]:
        owner = self._owner(model)
        if isinstance(prompt, MediaPrompt):
            tokens, media = await trio.to_thread.run_sync(owner.perception.tokenize, prompt.text, prompt.files)
        else:
            tokens, media = await _tokens(owner.vocab, prompt), ()
        if (prepare := owner.preparation(options)) is not None:
            await trio.to_thread.run_sync(prepare, limiter=self._preparing)
        answer = owner.submit(uuid.uuid4().hex, tokens, options, media=media)
        try:
            yield answer
        finally:
            owner.cancel(answer)

    @asynccontextmanager
    async def chat(self, model: str, chat: ChatRequest, options: Options) -> AsyncIterator[AsyncIterator[Text | Progress | Finish]]:
        owner = self._owner(model)
        media = _media_parts(owner)
        render = partial(self._template(owner).render, chat, media)
        is_long = sum(map(_length, chat.messages)) > LONG_TEXT
        text = await trio.to_thread.run_sync(render) if is_long else render()
        files = await fetch_all(media.sources, self._settings.media.media_path, private_urls=self._settings.media.media_private_urls)
        async with self.generate(model, MediaPrompt(text, files) if files else text, options) as answer:
            yield answer

    @asynccontextmanager
    async def infill(self, model: str, infill: Infill, options: Options) -> AsyncIterator[AsyncIterator[Text | Progress | Finish]]:
        vocab, facts = self._loaded(model)
        suffix_first = self._settings.computing.spm_infill
        make = partial(infill_prompt, vocab, infill, facts.n_ctx_slot, options.max_tokens, suffix_first)
        n_characters = len(infill.prefix) + len(infill.suffix) + sum(len(text) for _, text in infill.extra)
        prompt = await trio.to_thread.run_sync(make) if n_characters > LONG_TEXT else make()
        async with self.generate(model, prompt.tolist(), options) as answer:
            yield answer

    async def embed(self, model: str, inputs: Sequence[str | Sequence[int]], normalize: int | None = None) -> tuple[Embedding, ...]:
        vocab, facts = self._loaded(model)
        norm = self._settings.computing.embd_normalize if normalize is None else normalize
        prompts = [await _tokens(vocab, text) for text in inputs]
        return await embed_all(self._owner(model), prompts, norm, facts.n_slots)

    async def rank(self, model: str, query: str, documents: Sequence[str]) -> tuple[Embedding, ...]:
        vocab, facts = self._loaded(model)
        if not self._settings.computing.embeds or facts.pooling != "rank":
            raise NotSupported("This server does not support reranking. Start it with `--reranking`")

        def prompts() -> list[np.ndarray]:
            return [rank_prompt(vocab, facts.rerank_template, query, document) for document in documents]

        is_long = len(documents) * len(query) + sum(map(len, documents)) > LONG_TEXT
        made = await trio.to_thread.run_sync(prompts) if is_long else prompts()
        return await embed_all(self._owner(model), made, NONE, facts.n_slots)

    async def save_slot(self, model: str, slot: int, filename: str) -> SlotFile:
        return await self._slot_files.save(self._owner(model), slot, filename)

    async def restore_slot(self, model: str, slot: int, filename: str) -> SlotFile:
        self._loaded(model)
        return await self._slot_files.restore(self._owner(model), slot, filename)

    async def erase_slot(self, model: str, slot: int) -> int:
        return await self._slot_files.erase(self._owner(model), slot)

    async def wake(self, model: str) -> None:
        await self._owner(model).wake()

    async def sleep(self, model: str) -> None:
        await self._owner(model).sleep()

    # ---- helpers --------------------------------------------------------------------------------------------------------

    def _owner(self, model: str) -> Owner:
        if not model:
            return next(iter(self._owners.values()))
        if model not in self._owners:
            raise NotFound(f"model '{model}' not found; this server has: {', '.join(self._owners)}")
        return self._owners[model]

    def _loaded(self, model: str) -> tuple[Any, ModelFacts]:
        """Vocabulary and facts.  Raises `ModelLoading` or `ModelFailed` before the model has been loaded."""
        owner = self._owner(model)
        vocab, facts = owner.vocab, owner.facts
        assert facts is not None
        return vocab, facts

    def _info(self, owner: Owner) -> ModelInfo:
        return ModelInfo(
            alias=owner.alias,
            path=str(self._paths[owner.alias]),
            load_state=owner.state("load"),
            sleep_state=owner.state("sleep"),
            facts=owner.facts,
            created_s=self._created_s,
            why=owner.why,
        )

    def _template(self, owner: Owner) -> ChatTemplate:
        vocab, facts = owner.vocab, owner.facts  # raises before the model has been loaded
        assert facts is not None
        if owner.alias not in self._templates:
            source = _template_override(self._settings) or facts.chat_template
            self._templates[owner.alias] = ChatTemplate(
                source, facts.bos_token, facts.eos_token, architecture=facts.architecture, adds_bos=vocab.add_bos
            )
            owner.user_marker = vocab.tokenize(self._templates[owner.alias].user_marker(), False, True)
        return self._templates[owner.alias]


@asynccontextmanager
async def open_local_host(settings: Settings) -> AsyncIterator[LocalHost]:
    """See `lsm.api.open_host`."""
    for source in settings.models:
        for path in (source.path, source.projector):
            if path is not None:
                read_header(path)  # before anything else: a broken file is a message, not a server
    if template := _template_override(settings):
        ChatTemplate(template, "", "")  # likewise
    chosen_devices(settings.placing)  # likewise
    set_shadow(settings.shadow, _shadow_max_bytes(settings))
    arena = settings.arena or default_directory(os.environ)
    budget = device_budget(settings.vram_budget)
    changes = Changes()
    observer = Recorder(trace) if (trace := os.environ.get("LSM_TRACE")) else None
    async with AsyncExitStack() as exits, trio.open_nursery() as nursery:
        folder = exits.enter_context(open_folder(path)) if (path := settings.keeping.slot_save_path) else None
        owners: dict[str, Owner] = {}
        running: list[trio.CancelScope] = []
        try:
            with trio.CancelScope(shield=True):  # takes no time; a start that is cancelled half way would never return
                for source in settings.models:
                    line = exits.enter_context(Line(arena, source.alias))
                    ledger = exits.enter_context(Ledger(arena, source.alias))
                    owner = _owner(source, line, ledger, budget, settings, changes, observer, exits)
                    running.append(await nursery.start(_run, owner))
                    owners[source.alias] = owner
            nursery.start_soon(_load_in_order, tuple(owners.values()))
            paths = {source.alias: source.path for source in settings.models}
            yield LocalHost(owners, paths, arena, budget, settings, changes, SlotFiles(folder, settings.models, settings.computing))
        finally:
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as stopping:
                    for owner in owners.values():
                        stopping.start_soon(owner.stop)
            for scope in running:
                scope.cancel()
            nursery.cancel_scope.cancel()


async def _run(owner: Owner, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
    """An owner has to hear `stop` also when everything else is cancelled: it runs until its own scope is."""
    with trio.CancelScope(shield=True) as scope:
        async with trio.open_nursery() as nursery:
            await nursery.start(owner.run)
            task_status.started(scope)


async def _load_in_order(owners: Sequence[Owner]) -> None:
    """In the order of the command line: each is in the line before the next one asks."""
    for owner in owners:
        await owner.load()


def _owner(
    source: ModelSource,
    line: Line,
    ledger: Ledger,
    budget: Budget,
    settings: Settings,
    changes: Changes,
    observer: Observer | None,
    exits: AsyncExitStack,
) -> Owner:
    def new_instance(machine: Machine, subject: str) -> Executor:
        return Executor(machine, f"{source.alias}/{subject}", observer)

    def make_engine(send: Any, receive: Any) -> EngineThread:
        room = EncoderRoom(lambda: owner.room, trio.lowlevel.current_trio_token())
        owners = next(_memory_owners), next(_memory_owners)
        engine = Engine(engine_config(source, settings), owners[0], new_instance, room=room, draft_owner=owners[1])
        thread = EngineThread(engine, source.alias, send, receive)
        exits.push_async_callback(thread.stop)
        return thread

    owner = Owner(
        source.alias,
        line,
        ledger,
        make_engine,
        changes,
        budget=budget,
        min_hold_s=settings.min_hold_ms / 1e3,
        quantum_s=settings.quantum_ms / 1e3,
        idle_s=settings.sleep_idle_seconds,
        evict_kv=settings.sleep_evict_kv,
        encoder_stays=source.projector is not None and not settings.media.mmproj_ondemand,
        observer=observer,
    )
    return owner


def _shadow_max_bytes(settings: Settings) -> int:
    if settings.shadow_max_bytes >= 0:
        return settings.shadow_max_bytes
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _template_override(settings: Settings) -> str:
    if settings.chat_template_file is not None:
        return settings.chat_template_file.read_text()
    return settings.chat_template or ""


def _media_parts(owner: Owner) -> MediaParts:
    """What this model takes beside text."""
    facts = owner.facts
    return MediaParts(facts.media_marker, facts.has_vision, facts.has_audio) if facts else MediaParts()


def _length(message: Mapping[str, Any]) -> int:
    """About how much there is to render, for what may be no sound message yet."""
    return 64 + len(str(message.get("content", ""))) if isinstance(message, Mapping) else 0


async def _tokens(vocab: Any, prompt: str | Sequence[int]) -> np.ndarray:
    """Token ids, int32, (n,)."""
    if isinstance(prompt, str):
        tokenize = partial(vocab.tokenize, prompt, True, True)
        return await trio.to_thread.run_sync(tokenize) if len(prompt) > LONG_TEXT else tokenize()
    return np.asarray(_checked(prompt, vocab.n_tokens), dtype=np.int32)


def _checked(tokens: Sequence[int], n_tokens: int) -> Sequence[int]:
    for token in tokens:
        if not 0 <= token < n_tokens:
            raise InvalidRequest(f"token {token} is not in the vocabulary (0 to {n_tokens - 1})", "tokens")
    return tokens
