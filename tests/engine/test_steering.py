"""C.1: an engine with LoRA adapters and control vectors beside its weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from lsm.engine.config import EngineConfig
from lsm.engine.engine import Engine
from lsm.engine.outputs import Ended
from lsm.engine.steering import read_control_vectors
from lsm.errors import ModelFileError
from lsm.runtime.executor import Executor
from lsm.tuning import Steering
from tests.engine.loaded import SAME_IN_ANY_BATCH, generate, loaded, run, submit
from tests.engine.scripted import tokens
from tests.tiny_adapters import N_EMBD, write_control_vector, write_lora
from tests.tiny_models import Writer

PROMPT = list(range(10, 50))
ALL = ("weights", "kv", "compute", "adapters")


@pytest.fixture
def lora(tmp_path: Path) -> Path:
    return write_lora(tmp_path / "lora.gguf", seed=4, invocation_tokens=(ord("h") + 3, ord("i") + 3))


def test_scales_act_from_the_next_request_on(tiny_llama: Path, lora: Path, owner: int) -> None:
    """B.1 POST /lora-adapters: each scale has its own answer; 0 is the model's own, also where it is the scale at first."""
    with loaded(tiny_llama, owner) as engine:
        plain = generate(engine, PROMPT, max_tokens=8)
    with loaded(tiny_llama, owner, steering=Steering(lora=((lora, 1.0),), lora_init_without_apply=True)) as engine:
        assert generate(engine, PROMPT, max_tokens=8) == plain
        answers = {}
        for scale in (1.0, -1.0, 0.0, 1.0):
            engine.set_adapters((scale,))
            answers.setdefault(scale, []).append(generate(engine, PROMPT, max_tokens=8))
    assert answers[0.0] == [plain] and plain != answers[1.0][0] != answers[-1.0][0] != plain
    assert answers[1.0][0] == answers[1.0][1]


def test_a_cache_that_other_scales_made_is_not_used(tiny_llama: Path, lora: Path, owner: int) -> None:
    """B.1 POST /lora-adapters: the same prompt again is decoded whole after a change, and is found when the old scale returns."""
    with loaded(tiny_llama, owner, n_parallel=1, steering=Steering(lora=((lora, 1.0),)), **SAME_IN_ANY_BATCH) as engine:
        seen = [_answer(engine, scale) for scale in (1.0, 0.5, 1.0, 0.5, 0.5)]
        answers = {scale: _answer(engine, scale, cache_prompt=False)[0] for scale in (1.0, 0.5)}
    assert [answer for answer, _ in seen] == [answers[scale] for scale in (1.0, 0.5, 1.0, 0.5, 0.5)]
    n_found = len(PROMPT) - 1
    assert [n_cached for _, n_cached in seen] == [0, 0, n_found, n_found, n_found]


def _answer(engine: Engine, scale: float, **options: object) -> tuple[list[int], int]:
    """Tokens, and how many of the prompt were found in a cache."""
    engine.set_adapters((scale,))
    submit(engine, "again", PROMPT, max_tokens=8, **options)
    outputs = run(engine)
    (finish,) = [output.finish for output in outputs if isinstance(output, Ended)]
    return tokens(outputs, "again"), finish.timings.cache_n


def test_an_answer_keeps_the_scales_that_it_began_with(tiny_llama: Path, lora: Path, owner: int) -> None:
    """B.1 POST /lora-adapters: they count from the next request on."""
    with loaded(tiny_llama, owner, n_parallel=1, steering=Steering(lora=((lora, 1.0),)), **SAME_IN_ANY_BATCH) as engine:
        undisturbed = generate(engine, PROMPT, max_tokens=8)
        submit(engine, "one", PROMPT, max_tokens=8, cache_prompt=False)
        for _ in range(4):
            engine.step()
        engine.set_adapters((0.0,))
        assert tokens(run(engine), "one") == undisturbed
        assert generate(engine, PROMPT, max_tokens=8) != undisturbed


def test_requests_with_scales_of_their_own_do_not_see_each_other(tiny_llama: Path, lora: Path, owner: int) -> None:
    """B.2 lora: at once, each answers as it does alone; one that names none gets the model's."""
    asked: dict[str, tuple[tuple[int, float], ...] | None] = {"a": ((0, 1.0),), "b": ((0, -1.0),), "c": (), "d": None, "e": ((0, 1.0),)}
    with loaded(tiny_llama, owner, n_parallel=5, steering=Steering(lora=((lora, 0.5),)), **SAME_IN_ANY_BATCH) as engine:
        alone = {id: generate(engine, PROMPT, max_tokens=8, lora=scales) for id, scales in asked.items()}
        for id, scales in asked.items():
            submit(engine, id, PROMPT, max_tokens=8, cache_prompt=False, lora=scales)
        outputs = run(engine)
    assert {id: tokens(outputs, id) for id in asked} == alone
    assert len({tuple(answer) for answer in alone.values()}) == 4 and alone["a"] == alone["e"]


def test_a_choice_has_the_scales_of_its_job(tiny_llama: Path, lora: Path, owner: int) -> None:
    """B.2 lora, n: all choices, in batches of their own."""
    with loaded(tiny_llama, owner, n_parallel=3, steering=Steering(lora=((lora, 1.0),)), **SAME_IN_ANY_BATCH) as engine:
        alone = generate(engine, PROMPT, max_tokens=8, lora=((0, -1.0),))
        submit(engine, "a", PROMPT, max_tokens=8, n=2, lora=((0, -1.0),))
        submit(engine, "b", PROMPT, max_tokens=8)
        outputs = run(engine)
    assert [tokens(outputs, "a", index) for index in (0, 1)] == [alone, alone] != [tokens(outputs, "b")] * 2


def test_the_default_is_the_scale_of_the_flag(tiny_llama: Path, lora: Path, owner: int) -> None:
    """C.1 --lora, --lora-scaled: what acts before anybody has asked for another scale."""
    with loaded(tiny_llama, owner, steering=Steering(lora_scaled=((lora, -1.0),))) as engine:
        scaled = generate(engine, PROMPT, max_tokens=8)
        engine.set_adapters((0.0,))
        assert generate(engine, PROMPT, max_tokens=8) != scaled
        engine.set_adapters((-1.0,))
        assert generate(engine, PROMPT, max_tokens=8) == scaled


def test_what_acts_beside_the_weights_returns_with_them(tiny_llama: Path, lora: Path, tmp_path: Path, owner: int) -> None:
    """S10: adapters and control vectors leave the device and come back, in the middle of an answer."""
    vector = write_control_vector(tmp_path / "vector.gguf")
    steering = Steering(lora=((lora, 1.0),), control_vector_scaled=((vector, 50.0),))
    with loaded(tiny_llama, owner, steering=steering) as engine:
        undisturbed = generate(engine, PROMPT, max_tokens=8)
        submit(engine, "two", PROMPT, cache_prompt=False, max_tokens=8)
        outputs = []
        while engine.has_work:
            engine.memory.release(*ALL)
            assert engine.memory.bytes("adapters").device == 0 < engine.memory.bytes("adapters").released
            engine.memory.restore(*ALL)
            engine.step()
            outputs += engine.outputs()
        assert tokens(outputs, "two") == undisturbed


def test_control_vectors_act_on_the_layers_of_the_range(tiny_llama: Path, tmp_path: Path, owner: int) -> None:
    """C.1 --control-vector-layer-range: outside of it the model is itself."""
    vector = ((write_control_vector(tmp_path / "vector.gguf", layers=(1,)), 50.0),)
    answers = []
    for steering in (
        Steering(),
        Steering(control_vector=vector),
        Steering(control_vector=vector, control_vector_layers=(1, 1)),
        Steering(control_vector=vector, control_vector_layers=(2, 2)),
    ):
        with loaded(tiny_llama, owner, steering=steering) as engine:
            answers.append(generate(engine, PROMPT, max_tokens=8))
    plain, everywhere, inside, outside = answers
    assert plain == outside != everywhere == inside


def test_control_vectors_are_summed(tmp_path: Path) -> None:
    """C.1 --control-vector, --control-vector-scaled: each times its scale; layers that the model does not have are left out."""
    one = write_control_vector(tmp_path / "one.gguf", seed=1, layers=(1, 3))
    two = write_control_vector(tmp_path / "two.gguf", seed=2, layers=(1, 2, 9))
    alone = {path: read_control_vectors(((path, 1.0),), N_EMBD, 4) for path in (one, two)}
    assert alone[one].shape == (3, N_EMBD) and np.count_nonzero(alone[one].any(axis=1)) == 2
    both = read_control_vectors(((one, 2.0), (two, -0.5)), N_EMBD, 4)
    assert np.array_equal(both, np.float32(2.0) * alone[one] + np.float32(-0.5) * alone[two])


def test_what_is_known_of_an_adapter(tiny_llama: Path, lora: Path, owner: int) -> None:
    """B.1 GET /lora-adapters: numbers, files, scales, and what the file says."""
    steering = Steering(lora=((lora, 1.0),), lora_scaled=((lora, 0.5),))
    engine = Engine(EngineConfig(path=tiny_llama, n_ctx=512, threads=1, steering=steering), owner, Executor)
    first, second = engine.load(lambda fraction: True).adapters
    engine.close()
    assert (first.id, first.path, first.scale, second.id, second.scale) == (0, str(lora), 1.0, 1, 0.5)
    assert (first.task_name, first.prompt_prefix) == ("task 4", "prefix 4")
    assert (first.invocation_tokens, first.invocation_text) == ((ord("h") + 3, ord("i") + 3), "hi")


def _odd_alpha(path: Path) -> None:
    w = Writer(path, "llama", 1)
    w.gguf.add_type(gguf.GGUFType.ADAPTER)
    w.gguf.add_string(gguf.Keys.Adapter.TYPE, "lora")
    w.gguf.add_uint32(gguf.Keys.Adapter.LORA_ALPHA, 8)
    w.close()


def _odd_type(path: Path) -> None:
    w = Writer(path, "llama", 1)
    w.gguf.add_uint32("general.type", 1)
    w.close()


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: path.write_bytes(b"GGUF"), "odd.gguf"),
        (_odd_type, "general.type"),
        (_odd_alpha, "adapter.lora.alpha"),
        (lambda path: write_lora(path, architecture="gemma3"), "odd.gguf"),
        (lambda path: write_control_vector(path), "general.type"),
    ],
    ids=["half a file", "a type that is no text", "an alpha that is no float", "of another model", "a control vector"],
)
def test_a_file_that_is_no_adapter_ends_the_load(
    tiny_llama: Path, tmp_path: Path, owner: int, write: Callable[[Path], object], message: str
) -> None:
    """D.1: with a sentence that names it; llama.cpp aborts on some of these."""
    path = tmp_path / "odd.gguf"
    write(path)
    with pytest.raises(ModelFileError, match=message), loaded(tiny_llama, owner, steering=Steering(lora=((path, 1.0),))):
        pass


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: path.write_bytes(b"GGUF"), "vector.gguf"),
        (lambda path: write_lora(path), "instead of direction"),
        (lambda path: write_control_vector(path, layers=(0,)), "instead of direction"),
        (lambda path: write_control_vector(path, n_embd=64), "another model"),
    ],
    ids=["half a file", "an adapter", "layer 0", "of another model"],
)
def test_a_file_that_is_no_control_vector_is_refused(tmp_path: Path, write: Callable[[Path], object], message: str) -> None:
    """C.1 --control-vector: with a sentence that names it."""
    path = tmp_path / "vector.gguf"
    write(path)
    with pytest.raises(ModelFileError, match=message):
        read_control_vectors(((path, 1.0),), N_EMBD, 4)
