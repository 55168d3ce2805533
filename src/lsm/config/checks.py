"""What no single setting can say: values that are right by themselves and wrong together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsm.errors import ConfigError
from lsm.gbnf import check_grammar
from lsm.speculating import DRAFT_SIMPLE
from lsm.tuning import Computing, Loading

if TYPE_CHECKING:
    from lsm.config.settings import Settings

FLOAT_CACHE_TYPES = ("f32", "f16", "bf16")


def check_together(settings: Settings) -> None:
    """Raises ConfigError that names the flags that contradict each other."""
    _check_batches(settings)
    _check_cache_types(settings)
    _check_names(settings)
    _check_media(settings)
    _check_grammar(settings.options.sampling.grammar)
    if settings.options.sampling.grammar and (settings.options.sampling.json_schema or settings.json_schema_file):
        raise ConfigError("--grammar (or --grammar-file) and --json-schema (or --json-schema-file) are both given: leave one away")
    _check_loading(settings.loading)
    _check_computing(settings.computing)
    _check_steering(settings)
    _check_speculating(settings)


def _check_loading(loading: Loading) -> None:
    if "mlock" in loading.load_mode:
        raise ConfigError(f"--load-mode {loading.load_mode}: locked memory cannot be given back to other models: take none or mmap")
    if loading.lazy_mode == "on" and loading.load_mode != "mmap":
        raise ConfigError("--lazy-mode on reads rows out of the mapped file: add --load-mode mmap")


def _check_computing(computing: Computing) -> None:
    if computing.rerank and computing.pooling not in (None, "rank"):
        raise ConfigError(f"--rerank is --pooling rank, but --pooling is {computing.pooling}: leave one away")
    if computing.pooling is not None and not computing.embeds:
        raise ConfigError("--pooling is about embeddings: add --embeddings")
    if computing.rope_scale and computing.rope_freq_scale:
        raise ConfigError("--rope-scale and --rope-freq-scale say the same in two ways: leave one away")


def _check_steering(settings: Settings) -> None:
    steering = settings.steering
    if steering.is_used and len(settings.model_paths) > 1:
        raise ConfigError("--lora and --control-vector are made for one model: serve it by itself, with one --model")
    if steering.control_vector_layers and not steering.control_vectors:
        raise ConfigError("--control-vector-layer-range is about control vectors: add --control-vector")


def _check_speculating(settings: Settings) -> None:
    wanted = settings.speculating
    if wanted.draft_model and len(settings.model_paths) > 1:
        raise ConfigError("--spec-draft-model drafts for one model: serve it by itself, with one --model")
    if DRAFT_SIMPLE in wanted.kinds and not wanted.draft_model:
        raise ConfigError(f"--spec-type {DRAFT_SIMPLE} needs a model that drafts: name it with --spec-draft-model")
    if wanted.draft_model and DRAFT_SIMPLE not in wanted.kinds:
        raise ConfigError(f"--spec-draft-model is for {DRAFT_SIMPLE}, which --spec-type leaves out: add it, or leave the model away")
    if wanted.synth_len is not None and wanted.synth_rates:
        raise ConfigError("--spec-synth-len and --spec-synth-rates say the same in two ways: leave one away")
    if wanted.is_synthetic and not wanted.kinds:
        raise ConfigError("--spec-synth-len and --spec-synth-rates are about guesses: choose what makes them with --spec-type")
    if wanted.ngram_mod_n_min > wanted.ngram_mod_n_max:
        raise ConfigError("--spec-ngram-mod-n-min is more than --spec-ngram-mod-n-max, so that no draft would be used: lower the first")
    if wanted.draft_n_min > wanted.draft_n_max:
        raise ConfigError("--spec-draft-n-min is more than --spec-draft-n-max, so that no draft would be used: lower the first")


def _check_batches(settings: Settings) -> None:
    if settings.n_ubatch > settings.n_batch:
        raise ConfigError(
            f"--ubatch-size {settings.n_ubatch} is larger than --batch-size {settings.n_batch}: lower the first or raise the second"
        )


def _check_cache_types(settings: Settings) -> None:
    if settings.flash_attn == "off" and settings.cache_type_v not in FLOAT_CACHE_TYPES:
        raise ConfigError(f"--cache-type-v {settings.cache_type_v} needs flash attention: leave --flash-attn off away, or take f16")


def _check_grammar(grammar: str) -> None:
    """What needs a vocabulary is checked with the first request."""
    try:
        if grammar and not grammar.startswith("%llguidance"):
            check_grammar(grammar)
    except ValueError as error:
        raise ConfigError(f"--grammar (or --grammar-file): {error}") from None


def _check_media(settings: Settings) -> None:
    media, n_models = settings.media, len(settings.model_paths)
    if media.mmproj_paths and media.mmproj_enabled and len(media.mmproj_paths) != n_models:
        raise ConfigError(
            f"--mmproj names {len(media.mmproj_paths)} projectors for {n_models} models: one for each --model, in the same order;"
            " 'none' for a model without"
        )
    if not media.mmproj_offload and media.mmproj_device not in ("", "none"):
        raise ConfigError(f"--mmproj-device {media.mmproj_device} and --no-mmproj-offload, which means the CPU: leave one of them away")
    if 0 < media.image_max_tokens < media.image_min_tokens:
        raise ConfigError(
            f"--image-min-tokens {media.image_min_tokens} is more than --image-max-tokens {media.image_max_tokens}: lower the first"
        )
    if media.media_path is not None and not media.media_path.is_dir():
        raise ConfigError(f"--media-path {media.media_path}: there is no such folder")


def _check_names(settings: Settings) -> None:
    if settings.aliases and len(settings.aliases) != len(settings.model_paths):
        raise ConfigError(
            f"--alias gives {len(settings.aliases)} names for {len(settings.model_paths)} models: one for each --model, in the same order"
        )
    names = [model.alias for model in settings.models]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ConfigError(f"two models are called {doubled[0]!r}: give each its own name with --alias")
