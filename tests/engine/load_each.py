"""Load each model file named on the command line, and say how it went: a line for each.  What ends this process shows as a missing line.

python -m tests.engine.load_each FILE ..
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from lsm.errors import LsmError, ModelFileError
from tests.engine.loaded import loaded, run, submit

MAX_MEMORY_BYTES = 8 << 30  # a file that asks for more gets an error instead of the machine's memory


def outcome(path: Path) -> str:
    try:
        with loaded(path, 1) as engine:
            engine.vocab.tokenize("hello world\n", True, True)
            submit(engine, "a", [5, 6, 7], max_tokens=2)
            run(engine)
    except ModelFileError as error:
        return f"refused: {error.message}"
    except LsmError as error:
        return f"failed: {type(error).__name__}: {error.message}"
    return "loaded"


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    for argument in sys.argv[1:]:
        print(outcome(Path(argument)), flush=True)


if __name__ == "__main__":
    main()
