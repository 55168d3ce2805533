"""What a job must be before it may wait for a slot.  Pure."""

from __future__ import annotations

from lsm.engine import sampling
from lsm.engine.limits import Limits
from lsm.engine.outputs import Job
from lsm.engine.prompt import text_tokens
from lsm.errors import ContextExceeded, InvalidRequest
from lsm.values import FLOAT32_MAX


def check_job(job: Job, limits: Limits, n_vocab: int) -> None:
    """Raise `InvalidRequest`, naming the field, or `ContextExceeded` when the prompt leaves no position for a token of the answer."""
    prompt, options, n_slots, n_ctx_slot = job.prompt, job.options, limits.n_slots, limits.n_ctx_slot
    if not len(prompt):
        raise InvalidRequest("must not be empty", "prompt")
    if len(prompt) >= n_ctx_slot:
        raise ContextExceeded(len(prompt), n_ctx_slot)
    text, n_media = text_tokens(prompt), sum(media.span.n_tokens for media in job.media)
    if len(text) + n_media != len(prompt) or (len(text) and text.max() >= n_vocab):
        raise InvalidRequest(f"has a token that is not in the vocabulary of {n_vocab} tokens", "prompt")
    if not -1 <= options.id_slot < n_slots:
        raise InvalidRequest(f"there are slots 0 to {n_slots - 1}; -1 takes any", "id_slot")
    if options.max_tokens < -1:
        raise InvalidRequest("must be 0 or more, or -1 for no limit", "max_tokens")
    if options.t_max_predict_ms < -1:
        raise InvalidRequest("must be 0 or more, or -1 for no limit", "t_max_predict_ms")
    if not 1 <= options.n <= n_slots:
        raise InvalidRequest(f"must be between 1 and {n_slots}, the number of slots", "n")
    if options.n > 1 and options.max_tokens == 0:
        raise InvalidRequest("must be 1 where no tokens are asked for", "n")
    if options.n > 1 and any(media.span.stop == len(prompt) for media in job.media):
        raise InvalidRequest("must be 1 where the prompt ends with media", "n")
    if options.n_keep < -1:
        raise InvalidRequest("must be 0 or more, or -1 for the whole prompt", "n_keep")
    if options.n_discard < 0:
        raise InvalidRequest("must be 0 or more", "n_discard")
    if options.n_cache_reuse < 0:
        raise InvalidRequest("must be 0 or more", "n_cache_reuse")
    for id, scale in options.lora or ():
        if not 0 <= id < limits.n_adapters:
            raise InvalidRequest(f"{id} is no LoRA adapter of this model; it has {limits.n_adapters}", "lora")
        if not abs(scale) <= FLOAT32_MAX:
            raise InvalidRequest("a scale must be a finite number of single precision", "lora")
    if options.n_cache_reuse > 0 and not limits.can_shift:
        raise InvalidRequest("must be 0: the memory of this model cannot move tokens", "n_cache_reuse")
    sampling.check(options.sampling, n_vocab)
