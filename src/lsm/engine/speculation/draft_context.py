"""A draft model, loaded beside the model that it drafts for: its memory has an owner of its own, and follows the model's (S22)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lsm.engine.config import EngineConfig
from lsm.engine.fitting import context_settings
from lsm.engine.gguf_header import read_header
from lsm.engine.ports import NO_CELL
from lsm.engine.speculation.draft_config import FLAG, draft_config
from lsm.engine.speculation.draft_model import Guess, Rows
from lsm.engine.speculation.vocabularies import mismatch
from lsm.errors import ConfigError, ServerError
from lsm.native.context import Context
from lsm.native.model import Model
from lsm.native.rollback import Rollback, probe_memory
from lsm.native.sampler import Sampler
from lsm.native.warmup import warm_up

N_CONSIDERED = 10  # the likeliest tokens; a guess's probability is among these
REFUSED = -1.0  # the probability of a guess that is no token of the target's


class DraftContext:
    """`draft_model.DraftDecoder`, over a context whose sequences are the target's slots."""

    def __init__(self, model: Model, context: Context, n_vocab: int) -> None:
        self._model = model
        self._context = context
        self._n_vocab = n_vocab
        self._samplers: dict[int, Sampler] = {}

    @classmethod
    def open(cls, config: EngineConfig, target: Model, context: Context, owner: int, progress: Callable[[float], bool]) -> DraftContext:
        """Load what `config` names beside the model whose context this is.

        Raises, leaving nothing behind:
            ConfigError: the two do not go together.
            ModelFileError, DeviceMemoryError, LoadCancelled: as for `Model.load`.
        """
        wanted = draft_config(config, context.n_ctx)
        read_header(wanted.path)
        model = Model.load(wanted.path, owner, progress=progress, loading=wanted.loading, placing=wanted.placing)
        try:
            if why := mismatch(target.vocab, model.vocab):
                raise ConfigError(f"{FLAG} {wanted.path}: cannot draft for {target.path.name}: {why}")
            own = Context(model, owner, **context_settings(wanted, context.n_seq_max))
            if probe_memory(own).rollback is not Rollback.PART:
                raise ConfigError(f"{FLAG} {wanted.path}: its memory cannot forget wrong guesses; take a model with plain attention")
            if wanted.computing.warmup:
                warm_up(model, own)
            return cls(model, own, target.vocab.n_tokens)
        except BaseException:
            model.close()
            raise

    @property
    def n_batch(self) -> int:
        return self._context.n_batch

    @property
    def n_ctx(self) -> int:
        return self._context.n_ctx

    @property
    def n_vocab(self) -> int:
        return self._context.n_vocab

    def decode(self, rows: Sequence[Rows]) -> Sequence[Guess] | None:
        guessing = [row for row in rows if row.guess]
        samplers = [self._sampler(row.slot) for row in guessing]
        lengths = [len(row.tokens) for row in rows]
        last_rows = np.cumsum(lengths, dtype=np.int32)[[row.guess for row in rows]] - np.int32(1)
        outputs = np.zeros(sum(lengths), np.int8)
        outputs[last_rows] = 1
        step = self._context.step(
            np.concatenate([row.tokens for row in rows]),
            np.concatenate([np.arange(row.pos, row.pos + len(row.tokens), dtype=np.int32) for row in rows]),
            np.repeat(np.array([row.slot for row in rows], np.int32), lengths),
            outputs,
            last_rows,
            samplers,
        )
        if step.code == NO_CELL:
            return None
        if step.code != 0:
            raise ServerError(f"llama_decode: {step.code}")
        return [self._guess(sampler) for sampler in samplers]

    def _guess(self, sampler: Sampler) -> Guess:
        token, probability = sampler.observed[0]
        return Guess(token, probability if token < self._n_vocab else REFUSED)

    def _sampler(self, slot: int) -> Sampler:
        """One for each slot: what it observed is read after all of them have drawn."""
        if slot not in self._samplers:
            sampler = Sampler(self._model.vocab, [("top_k", {"k": N_CONSIDERED}), ("dist", {"seed": 0})])
            sampler.observe(1, after_chain=True)
            self._samplers[slot] = sampler
        return self._samplers[slot]

    def forget(self, slot: int, start: int) -> None:
        removed = self._context.seq_rm(slot, start)
        assert removed, "a memory that can forget a part can forget this one"

    def interrupt(self) -> None:
        self._context.interrupt()

    def close(self) -> None:
        for sampler in self._samplers.values():
            sampler.close()
        self._model.close()
