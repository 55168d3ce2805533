"""`lsm`: words that it does not know are answered with the nearest one that it does."""

from __future__ import annotations

import re

import pytest
from lsm_cli.main import run


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["modles"], "'modles' is not a verb; did you mean models?"),
        (["zzzzz"], "'zzzzz' is not a verb; there are pull, models, state, doctor, verify, graph, demo"),
        (["models", "--jsn"], "--jsn is not known; did you mean --json?"),
        (["state", "--apikey=hush"], "--apikey is not known; did you mean --api-key?"),
        (["verify", "trace", "--quantum=5", "--min-hold=6", "--zzzzz"], "--zzzzz is not known; see lsm verify --help"),
        (["doctor", "--helo"], "--helo is not known; did you mean --help?"),
        (["doctor", "now"], "'now' is one word too many; see lsm doctor --help"),
        (["--versoin"], "--versoin is not known; did you mean --version?"),
        (["--jsn", "models"], "--jsn is not known; did you mean --json?"),
    ],
)
def test_unknown_word_names_the_nearest(argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Command line: one line, status 1, nothing done."""
    assert run(argv, {}) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"lsm: {sentence}\n")


@pytest.mark.parametrize(("argv", "sentence"), [([], "a verb is missing: pull, models"), (["pull"], "required: NAME")])
def test_missing_word_shows_the_usage(argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Command line: argparse's own status and form."""
    with pytest.raises(SystemExit) as ended:
        run(argv, {})
    err = capsys.readouterr().err
    assert ended.value.code == 2 and err.startswith("usage: lsm") and sentence in err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """C.9: the same line as `lsm-server --version`."""
    assert run(["--version"], {}) == 0
    assert re.fullmatch(r"lsm-server [^ ]+ \(llama\.cpp .+, [0-9a-f]{9}\)\n", capsys.readouterr().out)
