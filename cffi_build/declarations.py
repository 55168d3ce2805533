"""The declarations that Python sees, read from the headers that the libraries were built with.

Nothing is typed twice: `cc -E` expands the headers, what they include from the system is dropped, and of ggml only what `WANTED` names is
kept. cffi then writes the C source of the extension, and the C compiler checks every struct and signature against the same headers.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import cffi

MODULE = "lsm.native._native"
LLAMA_HEADERS = ("llama.h", "mtmd.h", "mtmd-helper.h", "ggml-cpu.h")
KEPT_HEADERS = re.compile(r"(llama|ggml|ggml-(backend|alloc|opt|cpu)|gguf|mtmd|mtmd-helper|lsm_\w+)\.h")
WANTED = re.compile(
    r"(llama|mtmd|lsm)_\w+"
    r"|ggml_backend_(dev|reg)_\w+|ggml_backend_(name|buft_name|get_device|load_all)"
    r"|ggml_(version|commit|type_name|type_size|blck_size|row_size|is_quantized|time_us|log_set|nbytes)"
    r"|ggml_(backend_)?cpu_\w+"
)
# Functions of Python that C may call. They must not raise: cffi would print the traceback and return zero.
CALLBACKS = 'extern "Python" void lsm_on_log_line(int level, const char * line);\n'


def expand(headers: Sequence[str], include: Sequence[Path], compiler: Sequence[str]) -> str:
    """The headers after the preprocessor, without compiler extensions and without what came from the system's headers."""
    source = "".join(f'#include "{name}"\n' for name in headers)
    # Attributes (deprecation, printf formats) mean nothing to cffi's parser.
    command = [*compiler, "-E", "-x", "c", "-D__attribute__(x)=", *(f"-I{directory}" for directory in include), "-"]
    text = subprocess.run(command, input=source, stdout=subprocess.PIPE, text=True, check=True).stdout
    kept, lines = False, []
    for line in text.splitlines():
        if marker := re.match(r'#\s*\d+\s+"([^"]*)"', line):
            kept = KEPT_HEADERS.fullmatch(Path(marker[1]).name) is not None
        elif kept and not line.startswith("#"):
            lines.append(line)
    return "\n".join(lines)


def integer_constants(headers: Sequence[str], include: Sequence[Path], compiler: Sequence[str]) -> list[str]:
    """`#define NAME ...` for the integer macros of llama.h and the shim; the C compiler fills in the values."""
    source = "".join(f'#include "{name}"\n' for name in headers)
    command = [*compiler, "-E", "-dM", "-x", "c", *(f"-I{directory}" for directory in include), "-"]
    macros = subprocess.run(command, input=source, stdout=subprocess.PIPE, text=True, check=True).stdout
    integer = r"^#define ((?:LLAMA|LSM)_\w+) \(?-?(?:0x)?[0-9a-fA-F]+[uUlL]*\)?$"
    return sorted(f"#define {name} ..." for name in re.findall(integer, macros, re.M))


def statements(text: str) -> Iterator[str]:
    """Top-level C statements, each with its semicolon or, for a function body, its closing brace."""
    depth, start = 0, 0
    for match in re.finditer(r"[{}();]", text):
        character = match.group()
        depth += (character in "{(") - (character in "})")
        body_ends = character == "}" and re.match(r"\s*(static|inline)\b", text[start:]) and "(" in text[start : match.end()].split("{")[0]
        if depth == 0 and (character == ";" or body_ends):
            yield text[start : match.end()].strip()
            start = match.end()


def declared_function(statement: str) -> str | None:
    """The name of the function that a statement declares or defines; None for types and constants."""
    head = statement.split("{")[0]
    if head.startswith("typedef") or (match := re.search(r"\b(\w+)\s*\(", head)) is None:
        return None
    return match[1]


def select(text: str) -> str:
    """What cffi is given: all types, the wanted functions, no bodies, nothing twice."""
    chosen: dict[str, None] = {}
    for statement in statements(text):
        function = declared_function(statement)
        if function is not None and (not WANTED.fullmatch(function) or statement.endswith("}")):
            continue
        if function is None and statement.startswith("static"):
            continue
        statement = re.sub(r"\b(extern|_Noreturn)\b\s*", "", statement)
        statement = re.sub(r"\[[^\]]*sizeof[^\]]*\]", "[...]", statement)
        chosen[re.sub(r"\s+", " ", statement)] = None
    return "\n".join(chosen)


def shim_headers(shim: Path) -> list[str]:
    """The flat C headers of the shim, by name."""
    return sorted(path.name for path in shim.glob("lsm_*.h"))


def generate(prefix: Path, shim: Path, compiler: Sequence[str]) -> tuple[str, str]:
    """(declarations for cffi, C prelude of the extension)."""
    headers = [*LLAMA_HEADERS, *shim_headers(shim)]
    include = [prefix / "include", shim]
    constants = integer_constants(headers, include, compiler)
    declarations = "\n".join([select(expand(headers, include, compiler)), *constants, CALLBACKS])
    return declarations, "".join(f'#include "{name}"\n' for name in headers)


def write_extension_source(declarations: str, prelude: str, output: Path) -> None:
    """Write the C source of the extension module."""
    ffi = cffi.FFI()
    ffi.cdef(declarations)
    ffi.set_source(MODULE, prelude)
    ffi.emit_c_code(str(output))


def main() -> None:
    """python declarations.py PREFIX SHIM COMPILER OUTPUT.c"""
    prefix, shim, compiler, output = sys.argv[1:]
    declarations, prelude = generate(Path(prefix), Path(shim), shlex.split(compiler))
    Path(output).with_suffix(".cdef").write_text(declarations + "\n")
    write_extension_source(declarations, prelude, Path(output))


if __name__ == "__main__":
    main()
