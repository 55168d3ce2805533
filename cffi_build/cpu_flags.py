"""Which instruction sets ggml's CPU backend may use: those whose instructions this machine has just executed.

Reading the processor's flags is not enough: a virtual machine may advertise AMX or AVX512-FP16 and then kill the program that uses them.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

SELF_TEST = Path(__file__).with_name("cpu_self_test.c")

# ggml's option to the compiler flags that it stands for. A line may only rely on lines above it.
FEATURES: dict[str, tuple[str, ...]] = {
    "SSE42": ("-msse4.2",),
    "BMI2": ("-mbmi2",),
    "AVX": ("-mavx",),
    "F16C": ("-mf16c",),
    "FMA": ("-mfma",),
    "AVX2": ("-mavx2",),
    "AVX_VNNI": ("-mavxvnni",),
    "AVX512": ("-mavx512f", "-mavx512cd", "-mavx512vl", "-mavx512dq", "-mavx512bw"),
    "AVX512_VBMI": ("-mavx512vbmi",),
    "AVX512_VNNI": ("-mavx512vnni",),
    "AVX512_BF16": ("-mavx512bf16",),
}
BASELINE = ("SSE42",)
# ggml has kernels for these too, but where they fail they fail inside virtual machines in ways that a single instruction does not show.
NEVER = ("AMX_TILE", "AMX_INT8", "AMX_BF16")

Probe = Callable[[Sequence[str]], bool]


def compiler_flags(features: Iterable[str]) -> list[str]:
    """The flags for a set of features, in the order of the table."""
    chosen = set(features)
    return [flag for name, flags in FEATURES.items() if name in chosen for flag in flags]


def cmake_options(features: Iterable[str]) -> dict[str, str]:
    """ggml's options, each one spelled out, so that no default of ggml can switch one on."""
    chosen = set(features)
    options = {f"GGML_{name}": "ON" if name in chosen else "OFF" for name in FEATURES}
    return options | {f"GGML_{name}": "OFF" for name in NEVER}


def usable_features(probe: Probe) -> list[str]:
    """Those features whose flags the probe accepts. AVX512's extensions are asked only where AVX512 itself runs."""
    found: list[str] = []
    for name, flags in FEATURES.items():
        if name.startswith("AVX512_") and "AVX512" not in found:
            continue
        if probe(flags):
            found.append(name)
    return found


def requested_features(probed: Iterable[str], options: Mapping[str, str]) -> list[str]:
    """The probed features, corrected by what the user said about them (`-DGGML_AVX512=OFF`)."""
    wishes = {name: is_on(options[f"GGML_{name}"]) for name in FEATURES if f"GGML_{name}" in options}
    chosen = {name for name in probed if wishes.get(name, True)} | {name for name, wanted in wishes.items() if wanted}
    if "AVX512" not in chosen:  # the compiler takes a flag of an extension for permission to use AVX512 itself
        chosen = {name for name in chosen if not name.startswith("AVX512_")}
    return [name for name in FEATURES if name in chosen]


def is_on(value: str) -> bool:
    """CMake's idea of truth, as far as people use it on a command line."""
    return value.upper() in ("1", "ON", "YES", "TRUE", "Y")


def is_x86_64(compiler: Sequence[str]) -> bool:
    """Whether the compiler builds for x86-64. Elsewhere ggml's own choice for the architecture stands."""
    done = subprocess.run([*compiler, "-dM", "-E", "-x", "c", "/dev/null"], capture_output=True, text=True)
    return "#define __x86_64__ 1" in done.stdout


def build_self_test(compiler: Sequence[str], flags: Sequence[str], output: Path) -> bool:
    """Compile the self-test with these flags; False where the compiler or the assembler does not know them."""
    command = [*compiler, "-O1", *flags, str(SELF_TEST), "-o", str(output)]
    return subprocess.run(command, capture_output=True).returncode == 0


def probe_by_running(compiler: Sequence[str]) -> Probe:
    """A probe that compiles the self-test with the flags and runs it."""

    def probe(flags: Sequence[str]) -> bool:
        with tempfile.TemporaryDirectory() as scratch:
            program = Path(scratch, "self-test")
            return build_self_test(compiler, flags, program) and subprocess.run([program], capture_output=True).stdout == b"ok"

    return probe
