"""From the settings to the drafters of a loaded model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from lsm.engine.config import EngineConfig
from lsm.engine.speculation.draft_config import FLAG
from lsm.engine.speculation.draft_context import DraftContext
from lsm.engine.speculation.draft_model import DraftModel
from lsm.engine.speculation.drafter import Drafter
from lsm.engine.speculation.lookup_file import read_lookup
from lsm.engine.speculation.ngram_cache import NgramCache
from lsm.engine.speculation.ngram_map import NgramMap
from lsm.engine.speculation.ngram_mod import NgramMod
from lsm.engine.speculation.ngram_simple import NgramSimple
from lsm.engine.speculation.synthetic import Rates, resolve_rates
from lsm.errors import ConfigError
from lsm.native.model import Model
from lsm.speculating import DRAFT_SIMPLE, Speculating


def make_drafters(wanted: Speculating, draft: DraftContext | None) -> list[Drafter]:
    """In the order in which they are asked.  Raises `ConfigError`: a lookup file cannot be read, or a draft model is missing."""
    return [_maker(kind, wanted, draft)() for kind in wanted.kinds]


def _maker(kind: str, s: Speculating, draft: DraftContext | None) -> Callable[[], Drafter]:
    makers: Mapping[str, Callable[[], Drafter]] = {
        "ngram-simple": partial(NgramSimple, s.ngram_simple_size_n, s.ngram_simple_size_m, s.ngram_simple_min_hits),
        "ngram-map-k": partial(NgramMap, s.ngram_map_k_size_n, s.ngram_map_k_size_m, s.ngram_map_k_min_hits, by_value=False),
        "ngram-map-k4v": partial(NgramMap, s.ngram_map_k4v_size_n, s.ngram_map_k4v_size_m, s.ngram_map_k4v_min_hits, by_value=True),
        "ngram-mod": partial(NgramMod, s.ngram_mod_n_match, s.ngram_mod_n_min, s.ngram_mod_n_max),
        "ngram-cache": partial(_ngram_cache, s),
        DRAFT_SIMPLE: partial(_draft_model, s, draft),
    }
    return makers[kind]


def _ngram_cache(wanted: Speculating) -> NgramCache:
    files = {"--lookup-cache-dynamic": wanted.lookup_cache_dynamic, "--lookup-cache-static": wanted.lookup_cache_static}
    dynamic, static = ({} if path is None else read_lookup(path, flag) for flag, path in files.items())
    return NgramCache(dynamic, static)


def _draft_model(wanted: Speculating, draft: DraftContext | None) -> DraftModel:
    if draft is None:
        raise ConfigError(f"--spec-type {DRAFT_SIMPLE} needs a model that drafts: name it with {FLAG}")
    return DraftModel(draft, wanted.draft_n_max, wanted.draft_n_min, wanted.draft_p_min)


def synthetic_rates(wanted: Speculating) -> Rates:
    """Raises `ConfigError`: they do not go with the drafts."""
    return resolve_rates(wanted.synth_len, wanted.synth_rates, wanted.n_draft_max)


def check_target(config: EngineConfig, model: Model) -> None:
    """Raises `ConfigError` for a model that nothing can be guessed for."""
    if config.speculating.kinds and (model.has_encoder or not model.has_decoder or config.computing.embeds):
        raise ConfigError("--spec-type: this model, as it is served, does not write token by token; leave it away")
