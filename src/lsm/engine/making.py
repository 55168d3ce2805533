"""From the settings of a model, and what it turned out to be, to the limits of its scheduler."""

from __future__ import annotations

from lsm.engine.checkpoints import Spacing
from lsm.engine.config import EngineConfig
from lsm.engine.decoder import embedding_limits
from lsm.engine.limits import Limits
from lsm.engine.sizes import slot_size
from lsm.engine.speculation.making import synthetic_rates
from lsm.engine.state_shape import learn_shape
from lsm.errors import ConfigError
from lsm.native.context import Context
from lsm.native.model import Model
from lsm.native.rollback import N_TOKENS, Rollback, probe_memory


def n_ctx_slot(config: EngineConfig, model: Model, context: Context) -> int:
    return slot_size(context.n_ctx_seq, config.batching.n_ctx_per_slot, model.n_ctx_train)


def make_limits(config: EngineConfig, model: Model, context: Context) -> Limits:
    """Raises `ConfigError` for what this model's memory cannot do."""
    n_swa = 0 if config.swa_full else model.n_swa
    probed = probe_memory(context)
    rollback = probed.rollback
    needs_snapshots = n_swa > 0 or rollback in (Rollback.FULL, Rollback.BOUNDED)
    can_trim = rollback is Rollback.PART
    can_shift = context.can_shift and can_trim  # a shift forgets tokens in the middle
    _check_shifts(config, can_shift)
    return Limits(
        n_slots=context.n_seq_max,
        n_ctx_slot=n_ctx_slot(config, model, context),
        n_batch=context.n_batch,
        n_swa=n_swa,
        shares_cells=config.shares_cells,
        similarity_min=config.batching.slot_prompt_similarity,
        can_trim=can_trim,
        state_shape=None if probed.state is None else learn_shape(probed.state, N_TOKENS),
        cache_limit_bytes=0 if config.computing.embeds or rollback is Rollback.NO else config.keeping.cache_limit_bytes,
        cache_limit_tokens=context.n_ctx,
        cache_idle_slots=config.keeping.cache_idle_slots,
        spacing=Spacing(
            n_max=config.keeping.n_ctx_checkpoints if needs_snapshots else 0,
            min_step=config.keeping.checkpoint_min_step,
            n_batch=context.n_batch,
            n_ubatch=context.n_ubatch,
        ),
        n_ubatch=context.n_ubatch,
        generates=context.has_memory,
        decoder_start=model.decoder_start if model.has_decoder else None,
        embedding=embedding_limits(context) if config.computing.embeds else None,
        n_adapters=len(config.steering.adapters),
        context_shift=config.batching.context_shift,
        can_shift=can_shift,
        synthetic_rates=synthetic_rates(config.speculating),
        eog=model.vocab.eog,
        adds_bos=model.vocab.add_bos,
        cont_batching=config.batching.cont_batching,
    )


def _check_shifts(config: EngineConfig, can_shift: bool) -> None:
    if config.batching.context_shift and not can_shift:
        raise ConfigError("--context-shift: the memory of this model cannot move tokens; without it answers end where the context does")
    if config.cache_reuse and not can_shift:
        raise ConfigError("--cache-reuse: the memory of this model cannot move tokens; without it common beginnings are reused")
