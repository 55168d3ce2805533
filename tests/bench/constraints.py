"""What a constraint costs for each token: to ask about one that was drawn, and to make the mask of all that are permitted.

    python -m tests.bench.constraints MODEL.gguf...
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lsm.engine.constraint import Grammars
from lsm.native.model import Model

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
ANSWER = '{"name": "John Smith the third of Wales", "age": 42, "tags": ["alpha", "beta gamma", "delta"]}'


def main() -> None:
    for owner, name in enumerate(sys.argv[1:], 1):
        with Model.load(Path(name), owner) as model:
            print(f"{Path(name).stem}: {model.vocab.n_tokens} tokens")
            _measure(model)


def _measure(model: Model) -> None:
    grammars, source = Grammars(model.vocab), ("json_schema", json.dumps(SCHEMA))
    first_s, compile_s = (_seconds(partial(grammars.compile, each)) for each in (("json_schema", "{}"), source))
    print(f"    the first schema takes {first_s:.2f} s, the next {1e3 * compile_s:.1f} ms")
    constraint = grammars.new(source)
    us: dict[str, list[float]] = {"ask": [], "mask": [], "take": []}
    for token in model.vocab.tokenize(ANSWER, False, False).tolist():
        us["ask"].append(1e6 * _seconds(partial(constraint.permits, token)))
        us["mask"].append(1e6 * _seconds(constraint.mask))
        us["take"].append(1e6 * _seconds(partial(constraint.take, token)))
    for what, values in us.items():
        print(f"    {what:5} {statistics.median(values):6.1f} us a token, at most {max(values):.0f}")


def _seconds(act: Callable[[], object]) -> float:
    start_s = time.perf_counter()
    act()
    return time.perf_counter() - start_s


if __name__ == "__main__":
    main()
