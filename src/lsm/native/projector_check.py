"""What a projector's file needs of the device, asked of a process of its own: llama.cpp ends the process on some damaged files.

`python -m lsm.native.projector_check FILE` builds the encoder's graphs without taking their memory, and prints the bytes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from lsm.errors import ModelFileError
from lsm.native.checks import message_buffer, text_of
from lsm.native.library import errors_logged, ffi, lib

TIMEOUT_S = 120.0


def measure(path: Path) -> int:
    """Bytes of the encoder's weights and compute buffers.

    Raises:
        ModelFileError: the file is damaged, or of a kind that this llama.cpp does not know.
    """
    environ = os.environ | {"GGML_NO_BACKTRACE": "1"}
    try:
        command = [sys.executable, "-P", "-m", __name__, str(path)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environ, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ModelFileError(f"{path}: could not be examined: {error}") from None
    if done.returncode == 0:
        return int(done.stdout)
    reason = (done.stderr.strip().splitlines() or [_end(done.returncode)])[-1]
    raise ModelFileError(f"{path}: llama.cpp cannot use this file as a projector: {reason}. Download it again, or convert it again")


def _end(status: int) -> str:
    return f"it crashes ({signal.Signals(-status).name})" if status < 0 else f"it ends with status {status}"


def main(path: str) -> int:
    size_bytes, err = ffi.new("uint64_t *"), message_buffer()
    with errors_logged() as errors:
        code = lib.lsm_media_measure(os.fsencode(path), size_bytes, err, len(err))
    if code:
        sys.stderr.write("; ".join(errors) or text_of(err))
        return 1
    sys.stdout.write(str(size_bytes[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
