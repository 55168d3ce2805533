"""A model with an encoder and a decoder: it reads the prompt as a whole, then writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lsm.engine.outputs import Cancelled
from lsm.errors import DecodeFailed, InvalidRequest, ServerError
from lsm.native.context import Context
from lsm.native.model import Model
from tests.engine.loaded import SAME_IN_ANY_BATCH, generate, loaded, run, step_through, submit
from tests.engine.scripted import Bench, end, error, result, tokens
from tests.tiny_modes import write_t5

PROMPTS = ([5, 60, 71, 2], [9, 80, 2], [100, 101, 102, 103, 104, 2])
CLASSES = ("weights", "kv", "compute")


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_t5(tmp_path_factory.mktemp("tiny") / "t5.gguf")


def by_hand(path: Path, owner: int, prompt: list[int], n: int) -> list[int]:
    """Greedy decoding over the native room alone, the whole answer decoded anew for each token."""
    answer: list[int] = []
    settings = {"n_ctx": 256, "n_seq_max": 1, "kv_unified": True, "threads": 1, "threads_batch": 1, "flash_attn": "off"}
    with Model.load(path, owner) as model, Context(model, owner, **settings) as context:  # type: ignore[arg-type]
        source = np.array(prompt, np.int32)
        context.encode(source, np.arange(len(source), dtype=np.int32), np.zeros_like(source), np.ones(len(source), np.int8))
        for _ in range(n):
            context.memory_clear()
            written = np.array([0, *answer], np.int32)
            last = np.array([len(written) - 1], np.int32)
            outputs = (np.arange(len(written)) == last[0]).astype(np.int8)
            context.step(written, np.arange(len(written), dtype=np.int32), np.zeros_like(written), outputs, last)
            logits = context.logits(-1)
            logits[list(model.vocab.eog)] = -np.inf
            answer.append(int(logits.argmax()))
    return answer


def test_the_answer_is_what_decoding_by_hand_gives(t5: Path, owner: int) -> None:
    """D.1: the decoder looks at the encoded prompt, and begins after the token that its file names."""
    expected = [by_hand(t5, owner, prompt, 8) for prompt in PROMPTS]
    with loaded(t5, owner, n_ctx=256, **SAME_IN_ANY_BATCH) as engine:
        assert [generate(engine, np.array(prompt), max_tokens=8) for prompt in PROMPTS] == expected
    assert len({tuple(answer) for answer in expected}) > 1


def test_requests_take_turns_in_the_one_slot(t5: Path, owner: int) -> None:
    """D.2: a context remembers one reading; what comes at the same time waits, and its prompt is counted as it was sent."""
    with loaded(t5, owner, n_ctx=256, n_parallel=4, **SAME_IN_ANY_BATCH) as engine:
        assert len(engine.slots()) == 1
        for i, prompt in enumerate(PROMPTS):
            submit(engine, str(i), np.array(prompt), max_tokens=4)
        outputs = run(engine)
        for i, prompt in enumerate(PROMPTS):
            _, finish = result(outputs, str(i))
            assert (finish.prompt_tokens, finish.timings.cache_n, finish.completion_tokens) == (len(prompt), 0, 4)


def test_what_was_read_survives_a_sleep_in_the_middle(t5: Path, owner: int) -> None:
    """S10: memory leaves after each token, and the answer is the same."""
    with loaded(t5, owner, n_ctx=256) as engine:
        expected = generate(engine, np.array(PROMPTS[0]), max_tokens=8)

        def sleep() -> None:
            engine.memory.release(*CLASSES)
            engine.memory.restore(*CLASSES)

        submit(engine, "again", np.array(PROMPTS[0]), max_tokens=8)
        assert tokens(step_through(engine, sleep), "again") == expected


def test_a_prompt_that_an_encoder_cannot_take_at_once(t5: Path, owner: int) -> None:
    """B.0: refused with the numbers and the remedy; the process lives."""
    with loaded(t5, owner, n_ctx=256, n_ubatch=32) as engine:
        submit(engine, "long", np.array([5] * 33))
        failed = error(run(engine), "long")
        assert isinstance(failed, InvalidRequest) and "up to 32 tokens" in failed.message and "--ubatch-size" in failed.message
        assert len(generate(engine, np.array([5] * 32), max_tokens=2)) == 2


class ScriptedReader:
    def __init__(self, code: int = 0, error: Exception | None = None) -> None:
        self.code, self.error = code, error
        self.read: list[list[int]] = []

    def encode(self, source: np.ndarray, slot: int) -> int:
        self.read.append(source.tolist())
        if self.error is not None:
            raise self.error
        return self.code


@pytest.mark.parametrize("reader", [ScriptedReader(-3), ScriptedReader(error=ServerError("it is away"))])
def test_a_failed_reading_ends_its_request(reader: ScriptedReader) -> None:
    """D.2: and no other."""
    bench = Bench(n_slots=1, decoder_start=3, reader=reader)
    bench.submit("a", [5, 6])
    assert isinstance(error(bench.run(), "a"), DecodeFailed)
    reader.code, reader.error = 0, None
    bench.submit("b", [7, 8], max_tokens=1)
    assert result(bench.run(), "b")[1].prompt_tokens == 2
    assert reader.read == [[5, 6], [7, 8]] and bench.cached(0) == [3]


def test_a_request_cancelled_while_it_waits_is_never_read() -> None:
    """D.2: cancelled while queued: zero tokens computed for it."""
    reader = ScriptedReader()
    bench = Bench(n_slots=1, decoder_start=3, reader=reader)
    bench.submit("a", [5, 6])
    bench.scheduler.cancel("a")
    assert isinstance(end(bench.run(), "a"), Cancelled) and reader.read == []
