"""C.8: flags of speculative decoding."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm.config import parse_arguments
from lsm.errors import ConfigError
from lsm.speculating import Speculating


def speculating(*argv: str, **environ: str) -> Speculating:
    return parse_arguments(["-m", "x.gguf", *argv], environ).speculating


def refusal(*argv: str) -> str:
    with pytest.raises(ConfigError) as caught:
        speculating(*argv)
    return caught.value.message


def test_nothing_is_guessed_unless_asked() -> None:
    """C.8: --spec-type none."""
    assert speculating().kinds == speculating("--spec-type", "none").kinds == ()
    assert speculating().n_draft_max == 0


def test_kinds_are_asked_in_one_order() -> None:
    """C.8 --spec-type: several, by comma or by repeating; LLAMA_ARG_SPEC_TYPE."""
    assert speculating("--spec-type", "ngram-cache,ngram-simple").kinds == ("ngram-simple", "ngram-cache")
    assert speculating("--spec-type", "ngram-mod", "--spec-type", "ngram-map-k").kinds == ("ngram-map-k", "ngram-mod")
    assert speculating(LLAMA_ARG_SPEC_TYPE="ngram-mod").kinds == ("ngram-mod",)


def test_a_draft_model_alone_is_enough() -> None:
    """C.8 -md: draft-simple without --spec-type; sizes by flag and environment."""
    wanted = speculating("-md", "d.gguf", "-ngld", "4", LLAMA_ARG_SPEC_DRAFT_N_MAX="7")
    assert (wanted.kinds, wanted.draft_path, wanted.n_draft_max, wanted.draft_gpu_layers) == (("draft-simple",), Path("d.gguf"), 7, 4)


def test_the_default_set() -> None:
    """C.8 --spec-default: ngram-mod, with 24 tokens to match and drafts of 48 to 64."""
    wanted = speculating("--spec-default")
    assert wanted.kinds == ("ngram-mod",)
    assert (wanted.ngram_mod_n_match, wanted.ngram_mod_n_min, wanted.ngram_mod_n_max) == (24, 48, 64)


@pytest.mark.parametrize("kind", ["simple", "map-k", "map-k4v"])
def test_each_kind_has_its_own_sizes(kind: str) -> None:
    """C.8 --spec-ngram-{simple,map-k,map-k4v}-size-n, -size-m, -min-hits."""
    flag = f"--spec-ngram-{kind}"
    wanted = speculating(f"{flag}-size-n", "3", f"{flag}-size-m", "9", f"{flag}-min-hits", "2", "--spec-type", f"ngram-{kind}")
    field = f"ngram_{kind.replace('-', '_')}"
    assert [getattr(wanted, f"{field}_{name}") for name in ("size_n", "size_m", "min_hits")] == [3, 9, 2]
    assert wanted.n_draft_max == 9


def test_synthetic_acceptance() -> None:
    """S19: --spec-synth-len, --spec-synth-rates."""
    assert speculating("--spec-type", "ngram-cache", "--spec-synth-len", "2.5").synth_len == 2.5
    assert speculating("--spec-type", "ngram-cache", "--spec-synth-rates", "0.9,0.5").synth_rates == (0.9, 0.5)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--spec-type", "draft-mtp"], "no C API"),
        (["--spec-type", "guesses"], "is none of none, ngram-simple"),
        (["--spec-type", "draft-simple"], "--spec-draft-model"),
        (["-md", "d.gguf", "--spec-type", "ngram-mod"], "leave the model away"),
        (["-md", "d.gguf", "-m", "y.gguf"], "one --model"),
        (["--spec-synth-len", "2"], "--spec-type"),
        (["--spec-type", "ngram-mod", "--spec-synth-len", "2", "--spec-synth-rates", "1"], "in two ways"),
        (["--spec-type", "ngram-mod", "--spec-synth-len", "-1"], "is not a number of at least 1"),
        (["--spec-type", "ngram-mod", "--spec-synth-len", "nan"], "is not a number"),
        (["--spec-type", "ngram-mod", "--spec-synth-rates", "0.5,2"], "from 0.0 to 1.0"),
        (["--spec-ngram-mod-n-min", "70"], "lower the first"),
        (["--spec-draft-n-min", "9"], "lower the first"),
        (["--spec-draft-sampling", "probabilistic"], "is not supported yet"),
        (["--draft-max", "4"], "was removed by llama-server: use --spec-draft-n-max"),
        (["--draft-min", "4"], "was removed by llama-server: use --spec-draft-n-min"),
        (["--spec-ngram-size-n", "4"], "use the --spec-ngram-*-size-n"),
        (["--spec-draft-p-split", "0.1"], "trees of guesses"),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(argv: list[str], words: str) -> None:
    """C.8, S19, D.5 (7): wrong values, and flags that were removed or would do nothing."""
    assert words in refusal(*argv)
