"""What guesses of the text itself are worth: speed with and without, in one run, where a text repeats itself and where it does not.

    python -m tests.bench.guesses MODEL.gguf [KIND...]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from lsm.engine.engine import Engine
from lsm.speculating import SPEC_TYPES, Speculating
from tests.engine.loaded import loaded, run, submit
from tests.engine.scripted import result

N_TOKENS = 160
ITEMS = "".join(f"item {i}: the price of this article is {i * 7 % 50} euros and it is in stock.\n" for i in range(12))
PROMPTS = {
    "repeats": f"<|im_start|>user\nCopy this list exactly:\n{ITEMS}<|im_end|>\n<|im_start|>assistant\n{ITEMS[:200]}",
    "does not": "<|im_start|>user\nWrite a story about a lighthouse.<|im_end|>\n<|im_start|>assistant\n",
}


def main() -> None:
    path, kinds = Path(sys.argv[1]), sys.argv[2:] or [kind for kind in SPEC_TYPES if kind.startswith("ngram")]
    with loaded(path, 1, n_ctx=2048, n_batch=512, n_ubatch=512, threads=-1) as plain:
        for kind in kinds:
            wanted = Speculating(types=(kind,), ngram_mod_n_min=4, ngram_mod_n_match=8)
            with loaded(path, 2, n_ctx=2048, n_batch=512, n_ubatch=512, threads=-1, speculating=wanted) as guessing:
                for name, prompt in PROMPTS.items():
                    _compare(kind, name, prompt, plain, guessing)


def _compare(kind: str, name: str, prompt: str, plain: Engine, guessing: Engine) -> None:
    ratios: list[float] = []
    for _ in range(3):  # in turns: a busy machine is busy for both
        (plain_s, _, _), (guessing_s, n, n_accepted) = _answer(plain, prompt), _answer(guessing, prompt)
        ratios.append(plain_s / guessing_s)
    print(f"{kind:14} a text that {name:8}: {sorted(ratios)[1]:.2f} times as fast; {n_accepted} of {n} guesses right")


def _answer(engine: Engine, prompt: str) -> tuple[float, int, int]:
    """Seconds after the prompt, guesses, right ones."""
    submit(engine, "one", prompt, max_tokens=N_TOKENS)
    while all(slot.state != "generating" for slot in engine.slots()):
        engine.step()
    start_s = time.perf_counter()
    timings = result(engine.outputs() + run(engine), "one")[1].timings
    return time.perf_counter() - start_s, timings.draft_n, timings.draft_n_accepted


if __name__ == "__main__":
    main()
