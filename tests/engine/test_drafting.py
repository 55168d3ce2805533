"""Real models that verify guesses: the answer is the model's own, token for token."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lsm.engine.config import EngineConfig
from lsm.engine.engine import Engine
from lsm.engine.fitting import measure_draft
from lsm.engine.outputs import Piece
from lsm.errors import ConfigError
from lsm.runtime.executor import Executor
from lsm.speculating import Speculating
from lsm.values import Sampling, Timings
from tests.engine.loaded import GREEDY, SAME_IN_ANY_BATCH, generate, loaded, run, submit
from tests.engine.scripted import result, tokens
from tests.tiny_models import write_gemma3, write_jamba, write_llama, write_mamba

CYCLE = [20, 30, 40, 50, 60] * 8
NGRAM = Speculating(types=("ngram-simple",), ngram_simple_size_n=1, ngram_simple_size_m=5)
OWNER, DRAFT_OWNER = 7301, 7302
WRITERS = {"attention": write_llama, "windows": write_gemma3, "recurrent": write_mamba, "hybrid": write_jamba}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("models")

    def path(name: str) -> Path:
        target = folder / f"{name}.gguf"
        if name == "other":
            return target if target.exists() else write_llama(target, seed=9, n_layer=1)
        return target if target.exists() else WRITERS[name](target)

    return path


def finish_of(engine: Engine, prompt: list[int], sampling: Sampling = GREEDY, **options: object) -> tuple[list[int], Timings]:
    submit(engine, "one", prompt, sampling, **({"cache_prompt": False} | options))
    outputs = run(engine)
    return tokens(outputs, "one"), result(outputs, "one")[1].timings


@pytest.mark.parametrize("name", list(WRITERS))
def test_greedy_answers_are_the_same_with_guesses(models: Callable[[str], Path], name: str) -> None:
    """S19: in every kind of memory; what was wrong leaves it without a trace."""
    with loaded(models(name), OWNER, **SAME_IN_ANY_BATCH) as engine:
        plain = generate(engine, CYCLE, max_tokens=48)
    with loaded(models(name), OWNER, speculating=NGRAM, **SAME_IN_ANY_BATCH) as engine:
        guessed, timings = finish_of(engine, CYCLE, max_tokens=48)
        assert guessed == plain
        assert timings.draft_n > timings.draft_n_accepted >= 0
        assert finish_of(engine, [*CYCLE, *plain[:5]], cache_prompt=True, max_tokens=20)[0] == plain[5:25]


@pytest.fixture(scope="module")
def twins(models: Callable[[str], Path]) -> Iterator[Engine]:
    """A model that drafts for itself."""
    speculating = Speculating(draft_model=models("attention"), draft_n_max=4)
    with loaded(models("attention"), OWNER + 4, OWNER + 5, speculating=speculating, n_parallel=2, **SAME_IN_ANY_BATCH) as engine:
        yield engine


def test_a_model_that_drafts_for_itself_is_always_right(twins: Engine) -> None:
    """S19: tiny target = tiny draft; every guess is accepted."""
    answer, timings = finish_of(twins, CYCLE, max_tokens=41)
    assert len(answer) == 41
    assert timings.draft_n_accepted == timings.draft_n == 32


def test_another_model_may_draft(models: Callable[[str], Path]) -> None:
    """C.8 --spec-draft-model: whatever it guesses, the answer is the model's own."""
    with loaded(models("attention"), OWNER, **SAME_IN_ANY_BATCH) as engine:
        plain = generate(engine, CYCLE, max_tokens=30)
    with loaded(
        models("attention"), OWNER, DRAFT_OWNER, speculating=Speculating(draft_model=models("other")), **SAME_IN_ANY_BATCH
    ) as engine:
        answer, timings = finish_of(engine, CYCLE, max_tokens=30)
    assert answer == plain
    assert timings.draft_n > timings.draft_n_accepted


def test_a_seed_gives_the_same_answer_with_and_without_guesses(models: Callable[[str], Path], twins: Engine) -> None:
    """S19: one random number for each token of the answer, none for guesses that are not looked at."""
    seeded = Sampling(seed=5, temperature=1.5, top_k=0, top_p=1.0, min_p=0.0, ignore_eos=True)
    with loaded(models("attention"), OWNER + 2, **SAME_IN_ANY_BATCH) as engine:
        plain = generate(engine, CYCLE, seeded, max_tokens=40)
    first, second = (finish_of(twins, CYCLE, seeded, max_tokens=40) for _ in range(2))
    assert first[0] == second[0] == plain
    assert first[1].draft_n > first[1].draft_n_accepted == second[1].draft_n_accepted


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0, ignore_eos=True, repeat_penalty=1.5, frequency_penalty=0.5),
        Sampling(temperature=0, ignore_eos=True, n_probs=2),
        Sampling(temperature=0, ignore_eos=True, backend_sampling=True),
        Sampling(temperature=1, seed=3, ignore_eos=True, backend_sampling=True),
    ],
    ids=["penalties", "logprobs", "backend", "backend-seeded"],
)
def test_samplers_see_only_what_becomes_part_of_the_answer(models: Callable[[str], Path], twins: Engine, sampling: Sampling) -> None:
    """S19, S34: grammars, penalties, probabilities and sampling on the device, token for token as without guesses."""

    with loaded(models("attention"), OWNER + 2, n_parallel=2, **SAME_IN_ANY_BATCH) as engine:
        plain = answer(engine, sampling)
    guessed = answer(twins, sampling)
    assert guessed[:2] == plain[:2]
    assert guessed[2] > 0


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0, ignore_eos=True, grammar='root ::= ("hello" | "world")+'),
        Sampling(temperature=0, json_schema=json.dumps({"type": "array", "items": {"type": "boolean"}, "minItems": 9})),
        Sampling(temperature=0, n_probs=1, json_schema=json.dumps({"type": "array", "items": {"type": "boolean"}, "minItems": 9})),
    ],
    ids=["grammar", "schema", "schema-logprobs"],
)
def test_constraints_rule_over_guesses(models: Callable[[str], Path], sampling: Sampling) -> None:
    """S19: what a grammar or a schema does not permit is refused, and they advance with each token of the answer, once."""
    speculating = Speculating(types=("ngram-simple",), ngram_simple_size_n=1, ngram_simple_size_m=3)
    with loaded(models("attention"), OWNER, **SAME_IN_ANY_BATCH) as engine:
        plain = answer(engine, sampling, 60)
    with loaded(models("attention"), OWNER, speculating=speculating, **SAME_IN_ANY_BATCH) as engine:
        guessed = answer(engine, sampling, 60)
    assert guessed[:2] == plain[:2]
    assert guessed[2] > 0


def answer(engine: Engine, sampling: Sampling, n: int = 24) -> tuple[list[int], list[tuple[int, ...]], int]:
    """The tokens, which ones were likeliest at their places, and how many guesses were right."""
    submit(engine, "one", CYCLE, sampling, cache_prompt=False, max_tokens=n)
    outputs = run(engine)
    told = [tuple(top.token for top in probs.top) for output in outputs if isinstance(output, Piece) for probs in output.text.probs]
    return tokens(outputs, "one"), told, result(outputs, "one")[1].timings.draft_n_accepted


def test_several_slots_are_drafted_for_in_one_batch(twins: Engine) -> None:
    """S22: the draft context has a sequence for each slot."""
    alone = [generate(twins, prompt, max_tokens=20) for prompt in (CYCLE, CYCLE[:7])]
    submit(twins, "a", CYCLE, max_tokens=20)
    submit(twins, "b", CYCLE[:7], max_tokens=20)
    outputs = run(twins)
    assert [tokens(outputs, id) for id in ("a", "b")] == alone
    assert all(result(outputs, id)[1].timings.draft_n_accepted > 0 for id in ("a", "b"))


def test_the_draft_context_is_as_long_as_the_targets(models: Callable[[str], Path]) -> None:
    """S22: with a part of the cache for each slot, an answer goes on beyond an equal share of what the draft was trained for."""
    speculating = Speculating(draft_model=models("attention"))
    with loaded(models("attention"), OWNER, DRAFT_OWNER, speculating=speculating, n_parallel=2, kv_unified=False, n_ctx=1024) as engine:
        answer, timings = finish_of(engine, CYCLE * 10, max_tokens=100)
        assert (len(answer), timings.draft_n_accepted > 0) == (100, True)
        assert engine._draft is not None and engine._context is not None
        assert engine._draft.n_ctx == engine._context.n_ctx


@pytest.mark.parametrize("classes", [("kv",), ("weights", "kv", "compute")])
def test_a_draft_model_leaves_and_returns_with_its_target(models: Callable[[str], Path], classes: tuple[str, ...]) -> None:
    """S10: three times in the middle of an answer; not a token changes, nothing is decoded again, and nothing stays behind."""
    speculating = Speculating(draft_model=models("attention"), draft_n_max=4)
    with loaded(models("attention"), OWNER, DRAFT_OWNER, speculating=speculating, **SAME_IN_ANY_BATCH) as engine:
        plain, counted = finish_of(engine, CYCLE, max_tokens=41)
        submit(engine, "one", CYCLE, cache_prompt=False, max_tokens=41)
        outputs = []
        for _ in range(3):
            engine.step()
            engine.step()
            outputs += engine.outputs()
            engine.memory.release(*classes)
            assert not engine.memory.resident("kv") and engine.memory.bytes("kv").device == 0
            engine.memory.restore(*classes)
        outputs += run(engine)
        assert tokens(outputs, "one") == plain
        timings = result(outputs, "one")[1].timings
        assert (timings.draft_n, timings.draft_n_accepted) == (counted.draft_n, counted.draft_n_accepted)


@pytest.mark.parametrize(("rates", "share"), [((0.0,) * 4, 0.0), ((1.0,) * 4, 1.0)])
def test_synthetic_acceptance(models: Callable[[str], Path], rates: tuple[float, ...], share: float) -> None:
    """S19: rates of 0: nothing accepted, and the tokens of an answer without guesses; of 1: everything."""
    speculating = Speculating(draft_model=models("other"), draft_n_max=4, synth_rates=rates)
    with loaded(models("attention"), OWNER + 2, **SAME_IN_ANY_BATCH) as engine:
        plain = generate(engine, CYCLE, max_tokens=25)
    with loaded(models("attention"), OWNER, DRAFT_OWNER, speculating=speculating, **SAME_IN_ANY_BATCH) as engine:
        answer, timings = finish_of(engine, CYCLE, max_tokens=25)
        assert timings.draft_n > 0 and timings.draft_n_accepted == share * timings.draft_n
        assert (answer == plain) is (share == 0)


@pytest.mark.parametrize(
    ("speculating", "words"),
    [
        (Speculating(types=("draft-simple",)), "--spec-draft-model"),
        (Speculating(synth_len=2.0), "--spec-type"),
        (Speculating(types=("ngram-cache",), synth_rates=(0.5,)), "one for each"),
        (Speculating(types=("ngram-cache",), lookup_cache_static=Path("missing.bin")), "missing.bin"),
    ],
)
def test_what_cannot_be_guessed_with_is_said_at_load(models: Callable[[str], Path], speculating: Speculating, words: str) -> None:
    """S19: the model does not load, and the message says what to do."""
    with pytest.raises(ConfigError, match=words), loaded(models("attention"), OWNER, speculating=speculating):
        pass


def test_models_that_do_not_go_together(models: Callable[[str], Path]) -> None:
    """S22: another vocabulary, or a memory that cannot forget guesses."""
    with (
        pytest.raises(ConfigError, match="cannot forget wrong guesses"),
        loaded(models("attention"), OWNER, DRAFT_OWNER, speculating=Speculating(draft_model=models("recurrent"))),
    ):
        pass


def test_what_both_will_take_is_known_before(models: Callable[[str], Path]) -> None:
    """S23, design 4: the draft model is charged too, to the byte."""
    config = EngineConfig(path=models("attention"), n_ctx=512, n_parallel=2, speculating=Speculating(draft_model=models("other")))
    foreseen = Engine(config, OWNER, Executor, draft_owner=DRAFT_OWNER).measure()
    with loaded(models("attention"), OWNER, DRAFT_OWNER, n_batch=512, n_ubatch=512, n_parallel=2, speculating=config.speculating) as engine:
        taken = {name: engine.memory.bytes(name).device for name in foreseen}
    with loaded(models("attention"), OWNER, n_batch=512, n_ubatch=512, n_parallel=2) as engine:
        alone = engine.memory.bytes("weights").device
    assert {name: foreseen[name] for name in ("weights", "kv")} == {name: taken[name] for name in ("weights", "kv")}
    assert foreseen["weights"] > alone


def test_fitting_asks_what_the_draft_model_takes(models: Callable[[str], Path]) -> None:
    """S23: more for a longer context, which it follows."""
    config = EngineConfig(path=models("attention"), n_parallel=2, speculating=Speculating(draft_model=models("other")))
    short, long = (measure_draft(config, n_ctx)[-1] for n_ctx in (512, 2048))
    assert short.model == long.model > 0
    assert long.context == 4 * short.context > 0
