"""The frozen values that cross between rooms: what a request is, what comes back.  Imports nothing of lsm.

Names and defaults follow llama-server (requirements B.2, C.4), so that a value means the same at every door.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # the commands do without
    import numpy as np
    from numpy.typing import NDArray

StopType = Literal["eos", "word", "limit", "none"]

SAMPLERS_DEFAULT = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
SAMPLERS = (*SAMPLERS_DEFAULT, "infill", "adaptive_p")

FLOAT32_MAX = 2.0**128 - 2.0**104  # what llama.cpp computes with: a larger number is infinite there


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the next token is drawn from the logits.  Defaults are llama-server's."""

    samplers: tuple[str, ...] = SAMPLERS_DEFAULT
    seed: int = -1  # -1: random
    temperature: float = 0.8  # 0: greedy
    top_k: int = 40  # 0: off
    top_p: float = 0.95
    min_p: float = 0.05
    top_n_sigma: float = -1.0
    typical_p: float = 1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    mirostat: int = 0  # 0 off, 1, 2
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    adaptive_target: float = -1.0  # of the sampler adaptive_p; negative: it draws as usual
    adaptive_decay: float = 0.9
    min_keep: int = 0
    ignore_eos: bool = False
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token, bias); -inf forbids the token
    grammar: str = ""  # GBNF, or Lark where it begins with %llguidance; empty: none
    grammar_lazy: bool = False  # the grammar rules from the first trigger on
    grammar_triggers: tuple[str | int, ...] = ()  # words, or tokens
    preserved_tokens: tuple[str, ...] = ()  # special tokens that are shown as text
    json_schema: str = ""  # JSON text; empty: none
    n_probs: int | None = None  # how many of the likeliest tokens are told with each one; None: nothing is told
    post_sampling_probs: bool = False  # tell probabilities after the samplers, not the model's own log-probabilities
    backend_sampling: bool = False  # let the device sample, where it can


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything about a generation but its prompt."""

    max_tokens: int = -1  # -1: until the end of generation or of the context; 0: only fill the cache
    stop: tuple[str, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    cache_prompt: bool = True
    id_slot: int = -1  # -1: any
    t_max_predict_ms: int = -1  # -1: no limit
    n: int = 1  # answers to the one prompt, each with its own random numbers
    n_keep: int = 0  # tokens that stay at the start when the context shifts; -1: the whole prompt
    n_discard: int = 0  # tokens that leave then; 0: half of the rest
    n_cache_reuse: int = 0  # shortest chunk of the cache that is moved to where the prompt has it; 0: none
    lora: tuple[tuple[int, float], ...] | None = None  # (adapter, scale); others do not act; None: as the model's scales are now
    return_progress: bool = False  # tell how much of the prompt is done
    timings_per_token: bool = False  # each text comes with the timings so far
    special: bool = False  # show special tokens in the text


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A conversation, as the chat template of the model takes it.

    `messages`: mappings with `role` and `content`: a string, or a list of parts such as `{"type": "text", "text": ...}`,
    `{"type": "image_url", "image_url": {"url": ...}}` and `{"type": "input_audio", "input_audio": {"data": ...}}`.
    """

    messages: tuple[Mapping[str, Any], ...]
    add_generation_prompt: bool = True
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Infill:
    """A text with a gap.  `prompt`: how what goes into the gap begins.  `extra`: other files, (name, text), the most telling one last."""

    prefix: str
    suffix: str
    prompt: str = ""
    extra: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TokenProb:
    """`value`: the natural logarithm of the model's own probability; with `post_sampling_probs` the probability after the samplers."""

    token: int
    piece: bytes
    value: float


@dataclass(frozen=True, slots=True)
class TokenProbs:
    """How likely a token of the answer was, and the likeliest ones at its place.  `is_log`: values are logarithms, of the model's own."""

    chosen: TokenProb
    top: tuple[TokenProb, ...]
    is_log: bool = True


@dataclass(frozen=True, slots=True)
class MediaPrompt:
    """A prompt with images or sound.  `text` has the model's marker (`ModelFacts.media_marker`) once for each of `files`, in order."""

    text: str
    files: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer: whole characters only, and never part of a stop string.  `probs`, where asked for: one for each token."""

    text: str
    tokens: tuple[int, ...]
    probs: tuple[TokenProbs, ...] = ()
    index: int = 0  # of the choice
    timings: Timings | None = None  # if they were asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How much of the prompt is in the cache: `processed` of `total` tokens, `cache` of them from before."""

    total: int
    cache: int
    processed: int
    time_ms: float  # in batches


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Only time spent in batches counts; a pause for another model does not."""

    cache_n: int  # prompt tokens found in the slot's cache
    prompt_n: int  # prompt tokens decoded for this request
    prompt_ms: float
    predicted_n: int
    predicted_ms: float
    draft_n: int = 0  # tokens that were guessed and verified
    draft_n_accepted: int = 0  # of these, tokens that became part of the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """How one choice of a generation ended.

    Prompt tokens are `timings.cache_n + timings.prompt_n`, completion tokens `timings.predicted_n`."""

    index: int = 0  # of the choice
    stop_type: StopType
    stopping_word: str
    truncated: bool  # the context was full, or the beginning of the answer left it
    id_slot: int
    timings: Timings
    prompt_tokens: int
    completion_tokens: int
    seed: int | None = None  # of the random numbers, drawn where the request left it open; None: no token was sampled


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """What an input means to the model, as numbers.

    vectors: shape (n, n_embd), float32: one row for the input, or one for each of its tokens; of a reranker its scores, (1, n_classes).
    """

    vectors: NDArray[np.float32]
    n_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterInfo:
    """A LoRA adapter, the `id`-th of its model.  `invocation_text` is what `invocation_tokens` mean, empty for a plain LoRA."""

    id: int
    path: str
    scale: float
    task_name: str
    prompt_prefix: str
    invocation_tokens: tuple[int, ...]
    invocation_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What is known of a model once it is loaded, and stays true while its memory is away."""

    architecture: str
    description: str
    vocab_type: int
    n_vocab: int
    n_ctx: int  # all slots together
    n_ctx_slot: int  # one slot: prompt and answer together
    n_ctx_train: int
    n_embd: int
    n_params: int
    size_bytes: int
    n_slots: int
    bos_token: str
    eos_token: str
    chat_template: str  # empty: the model has none
    rerank_template: str = ""
    pooling: str = "none"  # of its embeddings: one of `lsm.tuning.POOLINGS`
    n_embd_out: int = 0  # numbers in one embedding
    generates: bool = True  # False: it makes embeddings only
    load_ms: float
    adapters: tuple[AdapterInfo, ...] = ()  # with the scales that they have at first
    sampling: tuple[tuple[str, Any], ...] = ()  # fields of Sampling for which the file names a default
    has_vision: bool = False
    has_audio: bool = False
    media_marker: str = ""  # stands for an image or a sound in a prompt; empty: the model takes none


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """One model as a door lists it.  `facts` is None until it has been loaded; `why` says what went wrong, if something did."""

    alias: str
    path: str
    load_state: str
    sleep_state: str
    facts: ModelFacts | None
    created_s: int  # wall clock, when the server took the model in
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Monotonic counts of one model since the server started, for `/metrics`."""

    prompt_tokens: int = 0
    prompt_tokens_cached: int = 0
    prompt_seconds: float = 0.0
    predicted_tokens: int = 0
    predicted_seconds: float = 0.0
    decode_calls: int = 0
    busy_slots: int = 0  # summed over decode calls
    tokens_max: int = 0  # largest number of tokens seen in one slot
    draft_tokens: int = 0  # guessed, and verified
    draft_tokens_accepted: int = 0
    drafts: int = 0  # batches in which guesses of some slot were verified, one for each slot
    accepted_per_position: tuple[int, ...] = ()  # of the drafts; shorter than the longest possible draft until one is so long
    requests_processing: int = 0
    requests_waiting: int = 0
    checkpoints: int = 0  # snapshots kept now, of all slots and cached prompts
    checkpoint_bytes: int = 0
    prompt_cache_entries: int = 0  # prompts kept in host memory now
    prompt_cache_tokens: int = 0
    prompt_cache_bytes: int = 0  # their snapshots included
    prompt_cache_hits: int = 0  # prompts taken back since the start


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFile:
    """A slot that was written to a file, or read from one.  `degraded`: why less will be reused than was read; empty: nothing less."""

    id_slot: int
    filename: str
    n_tokens: int
    n_bytes: int
    elapsed_ms: float
    degraded: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotInfo:
    """One slot, as `/slots` shows it: of the request in it, or of the last one (`options` is None: there was none)."""

    id: int
    n_ctx: int
    state: str
    request_id: str
    n_prompt_tokens: int
    n_prompt_tokens_processed: int
    n_prompt_tokens_cache: int
    n_decoded: int
    has_new_line: bool = False  # the answer has one so far
    is_speculative: bool = False  # guesses are made for it
    options: Options | None = None
    prompt: Sequence[int] = field(default=(), compare=False, repr=False)  # token ids; negative where media stand
    written: Sequence[str] = field(default=(), compare=False, repr=False)  # pieces of the answer; grows while there is more
