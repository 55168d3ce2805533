"""A process whose KV cache is spilled: `python -m tests.native.spill_and_wait MODEL`.

Each time its memory is away it says `away` and waits for a line; at the end it says whether all logits were those of an undisturbed run.
"""

from __future__ import annotations

import sys

from lsm.native.model import Model
from tests.native.runner import ALL, ON_THE_CPU, open_context, story


def main(path: str) -> None:
    with Model.load(path, 1, placing=ON_THE_CPU) as model:
        context = open_context(model)
        undisturbed = story(model, context, lambda: None)

        def pause() -> None:
            model.memory.release(*ALL)
            print("away", flush=True)
            sys.stdin.readline()
            model.memory.restore(*ALL)

        print("same" if story(model, context, pause).same_as(undisturbed) else "different", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
