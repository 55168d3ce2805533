"""Part C: the command line, its environment names, and what is refused with which sentence."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from lsm.config import SETTINGS, ModelSource, Settings, parse_arguments
from lsm.config.refused import REFUSED
from lsm.config.settings import BY_SPELLING
from lsm.errors import ConfigError
from lsm.values import Options

MODEL = ("-m", "m.gguf")


def parse(*argv: str, **environ: str) -> Settings:
    return parse_arguments((*MODEL, *argv), environ)


def refusal(*argv: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(*argv, **environ)
    return caught.value.message


def test_defaults_are_those_of_llama_server() -> None:
    """C.2, C.4, C.6: nothing given but a model."""
    settings = parse()
    assert settings.models == (ModelSource(Path("m.gguf"), "m"),)
    assert (settings.host, settings.port, settings.timeout_s, settings.sse_ping_interval_s) == ("127.0.0.1", 8080, 3600, 30)
    assert (settings.n_ctx, settings.n_batch, settings.n_ubatch, settings.flash_attn) == (0, 512, 512, "auto")
    assert (settings.slots, settings.ui, settings.metrics, settings.props) == (True, True, False, False)
    assert (settings.min_hold_ms, settings.quantum_ms, settings.sleep_idle_seconds) == (100, 2000, -1)
    assert settings.options == Options()
    assert settings.warnings == ()


def test_a_small_step_is_one_computation() -> None:
    """C.2: llama.cpp computes no more at once than a step has; only what was asked for can contradict."""
    assert (parse("-b", "64").n_batch, parse("-b", "64").n_ubatch) == (64, 64)
    assert parse("-b", "2048").n_ubatch == 512 and parse("-b", "64", "-ub", "32").n_ubatch == 32
    assert refusal("-b", "64", "-ub", "128").startswith("--ubatch-size 128 is larger than --batch-size 64")


def test_several_models_with_their_names_in_order() -> None:
    """C.1, C.6: -m is repeatable; -a names them in the same order, repeated or with commas."""
    wanted = (ModelSource(Path("a.gguf"), "one"), ModelSource(Path("b.gguf"), "two"))
    for names in (("-a", "one", "-a", "two"), ("--alias", "one,two")):
        assert parse_arguments(("-m", "a.gguf", "-m", "b.gguf", *names), {}).models == wanted


def test_names_that_do_not_fit_the_models() -> None:
    """C.6: fewer names than models, and two models of one name, are refused before anything is loaded."""
    assert "2 names for 1 models" in refusal("-a", "one,two")
    assert "two models are called 'm'" in refusal("-m", "elsewhere/m.gguf")


def test_no_model_names_the_remedy() -> None:
    """C.1: a server without a model says how to get one."""
    with pytest.raises(ConfigError, match="lsm pull"):
        parse_arguments((), {})


def test_command_line_wins_over_environment() -> None:
    """C: precedence env < command line."""
    assert parse(LLAMA_ARG_PORT="81").port == 81
    assert parse("--port", "82", LLAMA_ARG_PORT="81").port == 82


def test_first_of_two_environment_names_counts() -> None:
    """S10: LSM_ARENA is ours, LLAMA_VRAM_ARENA is understood."""
    assert parse(LLAMA_VRAM_ARENA="/a").arena == Path("/a")
    assert parse(LSM_ARENA="/b", LLAMA_VRAM_ARENA="/a").arena == Path("/b")


def test_underscore_and_equals_sign_in_long_flags() -> None:
    """C: in long flags `_` equals `-`; a value may follow `=`."""
    assert parse("--top_k=7").options.sampling.top_k == 7
    assert parse("--ctx_size", "64").n_ctx == 64


def test_repeated_flag_warns_and_last_wins() -> None:
    """C: repeated flag -> warning, last wins, whatever its spelling."""
    settings = parse("--port", "1", "--port", "2")
    assert settings.port == 2
    assert settings.warnings == ("--port is given more than once: the last one counts",)
    assert parse("--slots", "--no-slots").slots is False


def test_boolean_pairs() -> None:
    """C: --x and --no-x, LLAMA_ARG_X=off and LLAMA_ARG_NO_X."""
    assert parse("--no-slots").slots is False
    assert parse("--no-webui").ui is False
    assert parse("--metrics").metrics is True
    assert parse(LLAMA_ARG_ENDPOINT_METRICS="on").metrics is True
    assert parse(LLAMA_ARG_UI="off").ui is False
    assert parse(LLAMA_ARG_NO_UI="1").ui is False
    assert parse("--no-cache-prompt").options.cache_prompt is False
    assert "neither on nor off" in refusal(LLAMA_ARG_UI="perhaps")
    assert "takes no value" in refusal("--metrics=on")


def test_unified_cache_is_undecided_until_said() -> None:
    """S18: -np -1 is llama-server's automatic choice, which the engine makes unless -kvu or -no-kvu is given."""
    assert (parse().n_parallel, parse().kv_unified) == (-1, None)
    assert (parse("-np", "2").n_parallel, parse("-np", "auto").n_parallel) == (2, -1)
    assert parse("-np", "2", "-kvu").kv_unified is True
    assert parse("-no-kvu").kv_unified is False


def test_unknown_flag_names_the_nearest() -> None:
    """C: unknown -> usage error."""
    assert refusal("--porrt", "1") == "--porrt is not known; did you mean --port?"
    assert "--help" in refusal("--zzzzzzzzzzzz")
    assert "stands alone" in refusal("other.gguf")


@pytest.mark.parametrize("flag", ["--mmproj-url", "-hf", "-hfd", "--mlock", "--draft-max", "--jinja", "--tools", "--spec-ngram-size-n"])
def test_flag_of_llama_server_is_refused_with_the_reason(flag: str) -> None:
    """C, D.5 (7), S28, C.8: what llama-server has and lsm has not, is not swallowed."""
    assert refusal(flag, "x") == f"{flag} {REFUSED[flag]}"


def test_replaced_flags_name_their_replacement() -> None:
    """S28, C.8: --mlock became --load-mode, --draft-max became --spec-draft-n-max."""
    assert "--load-mode" in refusal("--no-mmap")
    assert "--spec-draft-n-max" in refusal("--draft")


def test_no_flag_is_both_known_and_refused() -> None:
    """C: the two lists do not overlap."""
    assert not set(REFUSED) & set(BY_SPELLING)


def test_no_spelling_or_environment_name_means_two_things() -> None:
    """C: every flag and every environment name belongs to one setting."""
    spellings = [spelling for entry in SETTINGS for spelling in entry.spellings]
    names = [name for entry in SETTINGS for name in (*entry.env, *entry.env_off)]
    assert len(set(spellings)) == len(spellings)
    assert len(set(names)) == len(names)


def test_every_default_can_be_written_down() -> None:
    """C: each setting has a spelling, a help text, and is a field that exists."""
    settings = parse()
    for entry in SETTINGS:
        value: object = settings
        for part in entry.name.split("."):
            value = getattr(value, part)
        assert entry.name == "model_paths" or value == entry.default, entry.name
        assert entry.spellings and entry.help, entry.name


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (("--port", "70000"), "--port: '70000' is not a whole number from 0 to 65535"),
        (("-c", "1_000"), "-c: '1_000' is not a whole number from 0 to 2147483647"),
        (("-np", "0"), "-np: '0' is not a whole number from 1 to 256 or -1 or auto"),
        (("--top-p", "nan"), "--top-p: 'nan' is not a number from 0.0 to 1.0"),
        (("--temp", "-1"), "--temp: '-1' is not a number of at least 0.0"),
        (("--sleep-idle-seconds", "-2"), "--sleep-idle-seconds: '-2' is not a number of at least 0.0 or -1"),
        (("-ctk", "q3"), "-ctk: 'q3' is none of f32, f16"),
        (("--vram-budget", "much"), "--vram-budget: 'much' is neither a size such as 6GiB"),
        (("--vram-budget", "0"), "--vram-budget: '0' is not a size above 0"),
        *((("--vram-budget", f"{n}TiB"), f"--vram-budget: '{n}TiB' is more than any machine has") for n in (1048577, 999999999)),
        (("--shadow-max", "99999999TiB"), "--shadow-max: '99999999TiB' is more than any machine has"),
        (("--api-prefix", "llm"), "--api-prefix: 'llm' is not a path"),
        (("--samplers", "top_k;best"), "--samplers: 'top_k;best' names a sampler that does not exist"),
        (("-l", "15043"), "-l: '15043' is not a token's id followed by"),
        (("-ub", "4096"), "--ubatch-size 4096 is larger than --batch-size 512"),
        (("-fa", "off", "-ctv", "q8_0"), "--cache-type-v q8_0 needs flash attention"),
        (("--arena", ""), "--arena: '' is not a path"),
        (("--arena", "~nobody-at-all/a"), "--arena: '~nobody-at-all/a' begins with the home folder of nobody"),
        (("--port",), "--port needs a value (N)"),
        (("--port", "--host", "x"), "--port needs a value (N), but --host follows"),
    ],
)
def test_value_out_of_range_names_flag_value_and_range(argv: tuple[str, ...], sentence: str) -> None:
    """C: bad values."""
    assert refusal(*argv).startswith(sentence)


def test_bad_environment_value_names_the_variable() -> None:
    """C: the message names what the user wrote."""
    assert refusal(LLAMA_ARG_THREADS="many").startswith("LLAMA_ARG_THREADS: 'many'")


def test_unknown_environment_name_is_reported() -> None:
    """C, D.5 (7): LLAMA_ARG_MMPROJ_URL would do nothing, so it is said."""
    assert parse(LLAMA_ARG_MMPROJ_URL="x").warnings == ("LLAMA_ARG_MMPROJ_URL is set, but lsm-server has no such setting: ignored",)


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("6GiB", 6 << 30), ("800MB", 800_000_000), ("1.5Gi", 3 << 29), ("123", 123), ("auto", "auto")]
)
def test_budget_is_a_size_or_auto(text: str, size_bytes: int | str) -> None:
    """Design 4: `--vram-budget SIZE|auto`."""
    settings = parse("--vram-budget", text)
    assert settings.vram_budget == size_bytes
    assert not settings.warnings


def test_sampling_flags() -> None:
    """C.4: lists, letters, biases and stop texts."""
    options = parse("--sampler-seq", "kt", "-l", "5-inf", "-l", "7+1.5", "-r", "###", "-r", "User:", "-n", "9", "-s", "-1").options
    assert options.sampling.samplers == ("top_k", "temperature")
    assert options.sampling.logit_bias == ((5, -math.inf), (7, 1.5))
    assert (options.stop, options.max_tokens, options.sampling.seed) == (("###", "User:"), 9, -1)
    assert parse("--samplers", "top-k;nucleus;temp").options.sampling.samplers == ("top_k", "top_p", "temperature")


def test_sequence_breakers_replace_the_defaults() -> None:
    """C.4: --dry-sequence-breaker clears the defaults; `none` clears what stands before."""
    assert parse("--dry-sequence-breaker", "a", "--dry-sequence-breaker", "b").options.sampling.dry_sequence_breakers == ("a", "b")
    assert parse("--dry-sequence-breaker", "none").options.sampling.dry_sequence_breakers == ()
    assert parse("--dry-sequence-breaker", "a", "--dry-sequence-breaker", "none").options.sampling.dry_sequence_breakers == ()


def test_keys_come_from_flag_and_file_and_stay_out_of_repr(tmp_path: Path) -> None:
    """B.0, C.6: comma list, file with comments; secrets appear neither in repr nor in messages."""
    file = tmp_path / "keys"
    file.write_text("# ours\nthird\n\n fourth \n")
    settings = parse("--api-key", "k-one,k-two", "--api-key-file", str(file))
    assert settings.api_keys == ("k-one", "k-two", "third", "fourth")
    assert "k-two" not in repr(settings)
    assert "hush" not in refusal("--api-key", "hush,")


def test_file_of_keys_without_a_key_does_not_open_the_server(tmp_path: Path) -> None:
    """B.0: an empty key file is an error, not a server without keys."""
    file = tmp_path / "keys"
    file.write_text("# nothing\n")
    assert "holds no key" in refusal("--api-key-file", str(file))


def test_template_and_grammar_come_from_files(tmp_path: Path) -> None:
    """C.4, C.7: --chat-template-file, --grammar-file; both forms together are refused."""
    file = tmp_path / "text"
    file.write_text("root ::= [a-z]+")
    settings = parse("--chat-template-file", str(file), "--grammar-file", str(file))
    assert settings.chat_template == settings.options.sampling.grammar == "root ::= [a-z]+"
    assert "leave one away" in refusal("--chat-template-file", str(file), "--chat-template", "x")
    assert "leave one away" in refusal("--grammar-file", str(file), "--grammar", "root ::= [a-z]")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """C: a missing, a binary and an endless file are refused by name."""
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "No such file" in refusal("--chat-template-file", str(tmp_path / "none"))
    assert "not UTF-8" in refusal("--chat-template-file", str(binary))
    assert "larger than 1024 KiB" in refusal("--chat-template-file", "/dev/zero")


@pytest.mark.parametrize("grammar", ["root ::= (", 'start ::= "a"', "root ::= " + "(" * 1000 + '"a"' + ")" * 1000])
def test_a_grammar_that_cannot_be_one_is_refused_at_start(grammar: str, tmp_path: Path) -> None:
    """C --grammar, --grammar-file: not with the first request."""
    assert refusal("--grammar", grammar).startswith("--grammar (or --grammar-file): ")
    file = tmp_path / "g.gbnf"
    file.write_text(grammar)
    assert refusal("--grammar-file", str(file)) == refusal("--grammar", grammar)


def test_a_schema_from_a_file(tmp_path: Path) -> None:
    """C.4 -jf: read at start; what is no JSON, and two constraints at once, end it with the reason."""
    file = tmp_path / "schema.json"
    file.write_text('{"type": "object"}')
    assert parse_arguments(["-m", "x.gguf", "-jf", str(file)], {}).options.sampling.json_schema == '{"type": "object"}'
    with pytest.raises(ConfigError, match="both given"):
        parse_arguments(["-m", "x.gguf", "-jf", str(file), "-j", "{}"], {})
    with pytest.raises(ConfigError, match="--grammar .* and --json-schema"):
        parse_arguments(["-m", "x.gguf", "-jf", str(file), "--grammar", "root ::= [a]"], {})
    file.write_text("{")
    with pytest.raises(ConfigError, match="is not JSON"):
        parse_arguments(["-m", "x.gguf", "-jf", str(file)], {})
    with pytest.raises(ConfigError, match="is not JSON"):
        parse_arguments(["-m", "x.gguf", "-j", "{"], {})
