"""The script that measures GPUs works: with a tiny model it runs where there is none."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest

from lsm.native.memory import SHADOWS, set_shadow
from tests.bench import gpu


@pytest.fixture(autouse=True)
def default_shadow() -> Iterator[None]:
    yield
    set_shadow("file", 2**63)


def test_every_class_and_shadow_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Design 9: bytes and times for each class and shadow kind, beside a plain copy; nothing is lost on the way."""
    monkeypatch.setattr(sys, "argv", ["gpu", "classes", "--model", "tiny", "--kind", "q8_0", "--tokens", "600", "--ctx", "1024", "-n", "2"])
    gpu.main()
    text = capsys.readouterr().out
    assert re.findall(r"^shadow (\w+)", text, re.MULTILINE) == list(SHADOWS)
    for name in gpu.CLASSES:
        assert len(re.findall(rf"^  {name} +[0-9.]+ MiB", text, re.MULTILINE)) == len(SHADOWS)
    assert text.count("logits are the same bits") == len(SHADOWS)
