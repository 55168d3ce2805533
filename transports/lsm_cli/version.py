"""What `--version` says."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from lsm.errors import BuildError


def version_text() -> str:
    """Our version and the one of llama.cpp, or why there is none."""
    from lsm.api import build_info

    try:
        ours = version("lsm-server")
    except PackageNotFoundError:  # run from a source tree that was never installed
        ours = "not installed"
    try:
        info = build_info()
    except BuildError as error:
        return f"lsm-server {ours} (llama.cpp: {error.message})"
    return f"lsm-server {ours} (llama.cpp {info['llama_cpp_version']}, {info['llama_cpp_commit']})"
