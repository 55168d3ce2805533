"""Loading the compiled module: the fallback for lesser processors, and llama.cpp's log in Python's logging."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lsm.native import library, processor

LLAMA_LOG = logging.getLogger("lsm.llama")

# Runs in a process of its own: which CPU backend is mapped is decided once for each process. Argument: why the self-test "failed", or "".
DECODE = r"""
import sys
from lsm.native import processor
if sys.argv[1]:
    processor.self_test_failure = lambda program: sys.argv[1]
from lsm.native.library import build_info, ffi, lib, using_baseline

parameters = lib.llama_model_default_params()
model = lib.llama_model_load_from_file(sys.argv[2].encode(), parameters)
context_parameters = lib.llama_context_default_params()
context_parameters.n_ctx = 64
context_parameters.n_threads = context_parameters.n_threads_batch = 1
context = lib.llama_init_from_model(model, context_parameters)
n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
tokens = [5, 17, 42]
for _ in range(4):
    batch = ffi.new("llama_token[]", tokens if len(tokens) == 3 else tokens[-1:])
    assert lib.llama_decode(context, lib.llama_batch_get_one(batch, len(batch))) == 0
    logits = ffi.unpack(lib.llama_get_logits_ith(context, -1), n_vocab)
    tokens.append(max(range(n_vocab), key=logits.__getitem__))
print(sorted({line.split()[-1] for line in open("/proc/self/maps") if "libggml-cpu" in line}))
print(using_baseline, build_info()["cpu_features"] == ["SSE42"])
print(tokens)
"""


def decode_in_a_process(reason: str, model: Path) -> tuple[list[str], str]:
    done = subprocess.run([sys.executable, "-c", DECODE, reason, str(model)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def failing_program(path: Path, body: str) -> Path:
    subprocess.run(["cc", "-x", "c", "-", "-o", path], input=f"int main(void) {{ {body} }}", text=True, check=True)
    return path


def test_illegal_instruction_is_recognized(tmp_path: Path) -> None:
    """Build: a processor that lacks an instruction is found by a program that may die, not by the crash of ours."""
    reason = processor.self_test_failure(failing_program(tmp_path / "dies", '__asm__ volatile("ud2");'))
    assert reason == "this processor cannot run an instruction that the usual one was built to use"


def test_any_other_failure_of_the_self_test_counts_too(tmp_path: Path) -> None:
    """Build: where the self-test says nothing, the slower backend is the safe choice."""
    assert "ended with status 3" in str(processor.self_test_failure(failing_program(tmp_path / "fails", "return 3;")))
    assert "could not be run" in str(processor.self_test_failure(tmp_path / "missing"))


def test_self_test_of_this_build_passes_here() -> None:
    """Build: the backend in use was built for this machine."""
    assert processor.self_test_failure(library.library_directory() / "cpu-self-test") is None
    assert library.using_baseline is False


def test_baseline_backend_is_what_runs_after_a_failed_self_test(tiny_llama: Path) -> None:
    """Build: after a failed self-test only the baseline CPU backend is mapped, one warning says so, and a model decodes the same."""
    (usual, usual_flags, usual_tokens), quiet = decode_in_a_process("", tiny_llama)
    (mapped, flags, tokens), warnings = decode_in_a_process("the test says so", tiny_llama)
    assert usual == str([str(next(library.library_directory().glob("libggml-cpu.so*")))])
    assert usual_flags == "False False"
    assert mapped == str([str(next((library.library_directory() / "baseline").glob("libggml-cpu.so*")))])
    assert flags == "True True"
    assert tokens == usual_tokens
    assert "baseline" not in quiet
    assert warnings.count("The baseline CPU backend is used, which is slower: the test says so.") == 1


@pytest.fixture
def warnings_again() -> Iterator[None]:
    yield
    library.set_log_level(logging.WARNING)


def load_a_missing_model() -> None:
    assert library.lib.llama_model_load_from_file(b"/nowhere/model.gguf", library.lib.llama_model_default_params()) == library.ffi.NULL


def test_llama_logs_into_python_logging(caplog: pytest.LogCaptureFixture) -> None:
    """Build: what llama.cpp has to say arrives in the logger lsm.llama, one record for each line, with its level."""
    load_a_missing_model()
    records = [record for record in caplog.records if record.name == "lsm.llama"]
    assert any("/nowhere/model.gguf" in record.getMessage() and record.levelno == logging.ERROR for record in records)
    assert not any(record.getMessage().endswith("\n") for record in records)
    assert min(record.levelno for record in records) >= logging.WARNING


@pytest.mark.usefixtures("warnings_again")
def test_log_level_decides_what_leaves_c(caplog: pytest.LogCaptureFixture) -> None:
    """Build: lower levels can be asked for, and higher ones silence llama.cpp."""
    library.set_log_level(logging.CRITICAL)
    load_a_missing_model()
    assert [record for record in caplog.records if record.name == "lsm.llama"] == []
    library.set_log_level(logging.DEBUG)
    assert LLAMA_LOG.level == logging.DEBUG
    load_a_missing_model()
    assert [record for record in caplog.records if record.name == "lsm.llama"] != []


def test_failing_log_handler_does_not_reach_c(capfd: pytest.CaptureFixture[str]) -> None:
    """Build: an exception in a handler of the application ends in the callback; C goes on, and so do we."""
    calls: list[str] = []

    class Failing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            calls.append(record.getMessage())
            raise RuntimeError("the handler is broken")

    handler = Failing()
    LLAMA_LOG.addHandler(handler)
    try:
        load_a_missing_model()
    finally:
        LLAMA_LOG.removeHandler(handler)
    assert calls
    assert "the handler is broken" not in capfd.readouterr().err


def test_log_lines_come_from_any_thread(caplog: pytest.LogCaptureFixture) -> None:
    """Build: threads may log at the same time; no line is torn."""
    threads = [threading.Thread(target=load_a_missing_model) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = [record.getMessage() for record in caplog.records if "failed to open" in record.getMessage()]
    assert len(lines) == 4
    assert len(set(lines)) == 1
