"""C.1, C.2, S17, S28: flags of how llama.cpp loads and computes."""

from __future__ import annotations

import pytest

from lsm.tuning import CPU_BUFFER, Computing, Loading
from tests.cli.test_arguments import parse, refusal


def test_defaults_are_llama_servers() -> None:
    """C.1, C.2: nothing given."""
    assert (parse().loading, parse().computing) == (Loading(), Computing())
    assert (Loading().load_mode, Loading().lazy_mode, Loading().fit, Loading().fit_target_mib, Loading().fit_ctx) == (
        "auto", "auto", True, (1024,), 4096,
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["auto", "none", "mmap", "dio"])
def test_load_modes(mode: str) -> None:
    """S28: the flag, its short form, its environment name."""
    assert {
        parse("--load-mode", mode).loading.load_mode,
        parse("-lm", mode).loading.load_mode,
        parse(LLAMA_ARG_LOAD_MODE=mode).loading.load_mode,
    } == {mode}


@pytest.mark.parametrize("mode", ["mlock", "mmap+mlock"])
def test_locked_memory_is_refused_with_the_reason(mode: str) -> None:
    """S28: what is locked cannot leave the device."""
    assert "locked memory cannot be given back" in refusal("--load-mode", mode)


@pytest.mark.parametrize(
    ("flag", "replacement"),
    [("--mmap", "mmap"), ("--no-mmap", "none"), ("--mlock", "mlock"), ("--direct-io", "dio")],
)
def test_old_flags_name_their_replacement(flag: str, replacement: str) -> None:
    """S28: the flags of old became one."""
    assert f"--load-mode {replacement}" in refusal(flag)


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_lazy_modes(mode: str) -> None:
    """S17: three values, the short flag, the environment."""
    assert parse("-lzm", mode).loading.lazy_mode == parse(LLAMA_ARG_LAZY_MODE=mode).loading.lazy_mode == mode
    assert parse("--lazy-mode", "on", "--load-mode", "mmap").loading.lazy_mode == "on"


def test_lazy_reading_needs_a_mapped_file() -> None:
    """S17: `on` needs mmap; the old name is gone; another value is none of the three."""
    assert "add --load-mode mmap" in refusal("--lazy-mode", "on")
    assert "--lazy-mode" in refusal("--tensor-read-lazy", "on")
    assert "none of on, auto, off" in refusal("--lazy-mode", "maybe")


def test_where_tensors_go() -> None:
    """C.1: -ot is repeatable and takes a list; the shorthands come after it."""
    loading = parse("-ot", r"blk\.0=CPU,output=CPU", "-ot", "attn=CPU", "--n-cpu-moe", "1", "--cpu-moe").loading
    assert loading.override_tensor == ((r"blk\.0", "CPU"), ("output", "CPU"), ("attn", "CPU"))
    experts = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
    assert loading.placements[3:] == ((experts, CPU_BUFFER), (rf"blk\.0{experts}", CPU_BUFFER))


@pytest.mark.parametrize("text", ["output", "=CPU", "output=", "(=CPU"])
def test_a_wrong_place_is_refused(text: str) -> None:
    """C.1: neither a pair, nor a regular expression."""
    assert "--override-tensor" in refusal("--override-tensor", text)


def test_metadata_in_four_types() -> None:
    """C.1: --override-kv KEY=TYPE:VALUE, in a list or repeated."""
    given = parse("--override-kv", "a=int:7,b=bool:false", "--override-kv", "c=float:0.5,d=str:x=y").loading.override_kv
    assert given == (("a", 7), ("b", False), ("c", 0.5), ("d", "x=y"))


@pytest.mark.parametrize(
    "text", ["a", "a=7", "a=int:x", "a=bool:yes", "a=int:9223372036854775808", "a=str:" + "x" * 128, "k" * 128 + "=int:1"]
)
def test_wrong_metadata_is_refused(text: str) -> None:
    """C.1: the type and the value must fit, and llama.cpp's fields have an end."""
    assert "--override-kv" in refusal("--override-kv", text)


def test_fit_targets() -> None:
    """S21: one number for all devices, or one for each; `/` divides as well."""
    assert parse("-fitt", "512").loading.fit_target_mib == (512,)
    assert parse("--fit-target", "512,1024/2048").loading.fit_target_mib == (512, 1024, 2048)
    assert not parse("--fit", "off").loading.fit and not parse(LLAMA_ARG_FIT="off").loading.fit
    assert "is not a number of MiB" in refusal("-fitt", "1G")


def test_cpus_by_mask_and_range_add_up() -> None:
    """C.2: -C is a hexadecimal mask, -Cr a range, which may be open."""
    assert parse("-C", "0x5", "-Cr", "4-5").computing.cpus == {0, 2, 4, 5}
    assert parse("-Cr", "-1").computing.cpus == {0, 1}
    for flag, text in (("-C", "xyz"), ("-C", "0"), ("-Cr", "5-4"), ("-Cr", "-"), ("-Cr", "0-999")):
        assert "such as" in refusal(flag, text)


def test_flags_that_openmp_makes_useless_name_its_own() -> None:
    """D.5 (7): a flag that would do nothing is refused with the reason."""
    assert "OMP_PROC_BIND" in refusal("--cpu-strict", "1")
    assert "GOMP_SPINCOUNT" in refusal("--poll", "50")


def test_embedding_flags() -> None:
    """C.2: --embeddings, --pooling; --rerank means pooling rank."""
    assert parse("--embedding").computing.embeds and parse("--embeddings", "--pooling", "cls").computing.pooling_wanted == "cls"
    rerank = parse("--reranking").computing
    assert rerank.embeds and rerank.pooling_wanted == "rank"
    assert parse("--embd-normalize", "-1").computing.embd_normalize == -1
    assert "--pooling is mean" in refusal("--rerank", "--pooling", "mean")
    assert "add --embeddings" in refusal("--pooling", "mean")


def test_rope_in_one_way_only() -> None:
    """C.2: --rope-scale N is --rope-freq-scale 1/N."""
    assert parse("--rope-scale", "4").computing.freq_scale == parse("--rope-freq-scale", "0.25").computing.freq_scale == 0.25
    assert "in two ways" in refusal("--rope-scale", "4", "--rope-freq-scale", "0.25")
