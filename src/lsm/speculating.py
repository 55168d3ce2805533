"""Speculative decoding: frozen values that cross between rooms.  Imports nothing of lsm.

Names and defaults follow llama-server's flags (requirements C.8); what a value does is said where the flag stands, in
`lsm.config.speculating`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DRAFT_SIMPLE = "draft-simple"
# In the order in which they are asked; the first that guesses something is heard.
SPEC_TYPES = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache", DRAFT_SIMPLE)
NO_SPEC = "none"
N_CACHE_DRAFT = 8  # tokens of a draft of ngram-cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculating:
    """Of the n-gram kinds: `size_n`: tokens that must have been there before; `size_m`: most tokens guessed then; `min_hits`: how often."""

    types: tuple[str, ...] = ()  # of SPEC_TYPES; none: draft-simple where there is a draft model
    draft_model: Path | None = None
    draft_n_max: int = 3
    draft_n_min: int = 0
    draft_p_min: float = 0.0
    draft_devices: tuple[str, ...] | None = None  # None: those of the model
    draft_gpu_layers: int = -1  # -1: all
    draft_cache_type_k: str = "f16"
    draft_cache_type_v: str = "f16"
    draft_override_tensor: tuple[tuple[str, str], ...] = ()
    draft_cpu_moe: bool = False
    draft_n_cpu_moe: int = 0
    draft_threads: int = -1  # -1: as the model's
    draft_threads_batch: int = -1
    ngram_mod_n_match: int = 24
    ngram_mod_n_min: int = 48
    ngram_mod_n_max: int = 64
    ngram_simple_size_n: int = 12
    ngram_simple_size_m: int = 48
    ngram_simple_min_hits: int = 1
    ngram_map_k_size_n: int = 12
    ngram_map_k_size_m: int = 48
    ngram_map_k_min_hits: int = 1
    ngram_map_k4v_size_n: int = 12
    ngram_map_k4v_size_m: int = 48
    ngram_map_k4v_min_hits: int = 1
    lookup_cache_static: Path | None = None
    lookup_cache_dynamic: Path | None = None
    synth_len: float | None = None
    synth_rates: tuple[float, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """What is asked for guesses, in order."""
        if NO_SPEC in self.types:
            return ()
        wanted = self.types or ((DRAFT_SIMPLE,) if self.draft_model else ())
        return tuple(kind for kind in SPEC_TYPES if kind in wanted)

    @property
    def draft_path(self) -> Path | None:
        """Of the draft model, if it is used."""
        return self.draft_model if DRAFT_SIMPLE in self.kinds else None

    @property
    def n_draft_max(self) -> int:
        """The longest draft of any kind; 0: nothing is guessed."""
        lengths = {
            "ngram-simple": self.ngram_simple_size_m,
            "ngram-map-k": self.ngram_map_k_size_m,
            "ngram-map-k4v": self.ngram_map_k4v_size_m,
            "ngram-mod": self.ngram_mod_n_max,
            "ngram-cache": N_CACHE_DRAFT,
            DRAFT_SIMPLE: self.draft_n_max,
        }
        return max((lengths[kind] for kind in self.kinds), default=0)

    @property
    def is_synthetic(self) -> bool:
        return self.synth_len is not None or bool(self.synth_rates)
