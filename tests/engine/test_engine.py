"""The engine on real computations: tiny random models, one for each kind of memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from lsm.engine.config import EngineConfig
from lsm.engine.engine import Engine
from lsm.engine.outputs import Cancelled, Failed
from lsm.errors import DecodeFailed, InvalidRequest, LsmError, ModelFileError
from lsm.native.context import Context
from lsm.native.model import Model
from lsm.runtime.executor import Executor
from lsm.values import Sampling
from tests.engine.loaded import GREEDY, SAME_IN_ANY_BATCH, generate, loaded, run, step_through, submit
from tests.engine.scripted import end, error, result, texts, tokens

PROMPTS = ("hello world", "the world is at you", "a", "it is in the ering on of to and")
KINDS = ("tiny_llama", "tiny_gemma3", "tiny_mamba")
CLASSES = ("weights", "kv", "compute")


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


def best_tokens(path: Path, owner: int, prompt: str, n: int) -> list[int]:
    """Greedy decoding by hand, one token at a time, over the native room alone."""
    with (
        Model.load(path, owner) as model,
        Context(model, owner, n_ctx=512, n_seq_max=1, kv_unified=True, threads=1, threads_batch=1) as context,
    ):
        cached = model.vocab.tokenize(prompt, True, True).tolist()
        n_prompt = len(cached)
        for at in range(n_prompt + n - 1):
            one = np.array([cached[at]], np.int32)
            context.step(one, np.array([at], np.int32), np.zeros(1, np.int32), np.ones(1, np.int8), np.zeros(1, np.int32))
            if at + 1 == len(cached):
                logits = context.logits(-1)
                logits[list(model.vocab.eog)] = -np.inf
                cached.append(int(logits.argmax()))
        return [int(token) for token in cached[n_prompt:]]


def test_greedy_is_the_best_token_of_the_logits_each_time(model: Path, owner: int) -> None:
    """S10, B.2 temperature 0: the engine's answer is what decoding by hand gives."""
    with loaded(model, owner, n_parallel=1) as engine:
        answer = generate(engine, PROMPTS[1], max_tokens=12)
    assert answer == best_tokens(model, owner, PROMPTS[1], 12)


@pytest.mark.parametrize("kv_unified", [True, False])
def test_four_at_once_answer_as_one_by_one(model: Path, owner: int, kv_unified: bool) -> None:
    """D.2: slots do not see each other."""
    with loaded(model, owner, n_parallel=4, kv_unified=kv_unified, **SAME_IN_ANY_BATCH) as engine:
        alone = [generate(engine, prompt, max_tokens=12) for prompt in PROMPTS]
        for i, prompt in enumerate(PROMPTS):
            submit(engine, str(i), prompt, max_tokens=12, cache_prompt=False)
        outputs = run(engine)
    assert [tokens(outputs, str(i)) for i in range(4)] == alone


def test_the_same_prompt_again_decodes_one_token(tiny_llama: Path, owner: int) -> None:
    """S9: cache_n == n-1, prompt_n == 1, greedy output identical."""
    with loaded(tiny_llama, owner) as engine:
        first = generate(engine, PROMPTS[3], max_tokens=8)
        submit(engine, "again", PROMPTS[3], max_tokens=8)
        outputs = run(engine)
        timings = result(outputs, "again")[1].timings
        n = len(engine.vocab.tokenize(PROMPTS[3], True, True))
    assert tokens(outputs, "again") == first
    assert (timings.cache_n, timings.prompt_n) == (n - 1, 1)


def test_a_conversation_that_goes_on_decodes_only_what_is_new(model: Path, owner: int) -> None:
    """First light 2: on each kind of memory, long beyond the sliding window, and the answers are those without a cache."""
    with loaded(model, owner, **SAME_IN_ANY_BATCH) as engine:
        conversation = engine.vocab.tokenize(" ".join(PROMPTS) * 3, True, True).tolist()
        assert len(conversation) > 60
        n_cached = 0
        for _ in range(3):
            submit(engine, "turn", np.array(conversation), max_tokens=20)
            outputs = run(engine)
            timings = result(outputs, "turn")[1].timings
            assert timings.cache_n == n_cached
            answer = tokens(outputs, "turn")
            assert answer == generate(engine, np.array(conversation), max_tokens=20, id_slot=3)
            n_cached = len(conversation) + len(answer) - 1
            conversation += [*answer, 300, 301, 270]


def test_four_conversations_at_once_keep_their_caches_in_one_sliding_window_cache(tiny_gemma3: Path, owner: int) -> None:
    """First light 2: together they are far longer than the cells for sliding layers; each turn still decodes only what is new."""
    with loaded(tiny_gemma3, owner, n_ctx=1024, **SAME_IN_ANY_BATCH) as engine:
        conversations = {str(i): [10 + i] * 100 for i in range(4)}
        cached = dict.fromkeys(conversations, 0)
        for _ in range(3):
            for id, conversation in conversations.items():
                submit(engine, id, np.array(conversation), max_tokens=8)
            outputs = run(engine)
            for id, conversation in conversations.items():
                assert result(outputs, id)[1].timings.cache_n == cached[id]
                conversation += tokens(outputs, id)
                cached[id] = len(conversation) - 1
                conversation += [20 + int(id)] * 30
        final = np.array(conversations["2"])
        submit(engine, "kept", final, max_tokens=8)
        assert tokens(run(engine), "kept") == generate(engine, final, max_tokens=8)


def test_an_end_that_differs_gives_the_answer_without_a_cache(model: Path, owner: int) -> None:
    """S11: kept or decoded again, the answer is the same."""
    with loaded(model, owner, **SAME_IN_ANY_BATCH) as engine:
        start = engine.vocab.tokenize(" ".join(PROMPTS) * 3, True, True).tolist()
        submit(engine, "first", np.array(start), max_tokens=30)
        run(engine)
        other = np.array([*start, 261, 262])
        submit(engine, "other", other, max_tokens=8)
        outputs = run(engine)
        assert tokens(outputs, "other") == generate(engine, other, max_tokens=8, id_slot=3)
        timings = result(outputs, "other")[1].timings
    assert timings.cache_n + timings.prompt_n == len(other)
    assert timings.cache_n == len(start) - (4 if "mamba" in model.name else 0)


@pytest.mark.parametrize("classes", [("weights", "compute"), CLASSES])
def test_memory_that_leaves_within_an_answer_changes_nothing(model: Path, owner: int, classes: tuple[str, ...]) -> None:
    """S9, S10: weights, and KV by option, released and restored between any two batches: the same tokens."""

    def move(engine: Engine) -> None:
        engine.memory.release(*classes)
        assert not any(engine.memory.resident(name) for name in classes if engine.memory.bytes(name).released)
        assert engine.memory.bytes("weights").device == 0
        engine.memory.restore(*classes)

    answers = []
    for between in (lambda engine: None, move):
        with loaded(model, owner) as engine:
            for i, prompt in enumerate(PROMPTS):
                submit(engine, str(i), prompt, max_tokens=10)
            outputs = step_through(engine, partial(between, engine))
            answers.append([tokens(outputs, str(i)) for i in range(4)])
    assert answers[0] == answers[1]
    assert all(len(answer) == 10 for answer in answers[0])


def test_the_cache_is_still_there_after_memory_came_back(model: Path, owner: int) -> None:
    """First light 2, S9: after a handoff prompt_n counts only the new tokens."""
    with loaded(model, owner) as engine:
        start = engine.vocab.tokenize(" ".join(PROMPTS) * 3, True, True).tolist()
        submit(engine, "first", np.array(start), max_tokens=4)
        answer = tokens(run(engine), "first")
        engine.memory.release(*CLASSES)
        engine.memory.restore(*CLASSES)
        submit(engine, "next", np.array([*start, *answer, 261]), max_tokens=1)
        timings = result(run(engine), "next")[1].timings
    assert (timings.cache_n, timings.prompt_n) == (len(start) + 3, 2)


def test_decoding_while_memory_is_away_fails_the_request_and_not_the_process(tiny_llama: Path, owner: int) -> None:
    """Design 4: the gate refuses; after the restore the next request is served."""
    with loaded(tiny_llama, owner) as engine:
        expected = generate(engine, PROMPTS[0], max_tokens=4)
        engine.memory.release(*CLASSES)
        submit(engine, "away", PROMPTS[0])
        assert isinstance(error(run(engine), "away"), DecodeFailed)
        engine.memory.restore(*CLASSES)
        assert generate(engine, PROMPTS[0], max_tokens=4) == expected


def test_text_can_be_tokenized_while_memory_is_away(tiny_llama: Path, owner: int) -> None:
    """S1 f: what needs no device answers in every state."""
    with loaded(tiny_llama, owner) as engine:
        before = engine.vocab.tokenize("hello world", True, True).tolist()
        engine.memory.release(*CLASSES)
        assert engine.vocab.tokenize("hello world", True, True).tolist() == before
        assert engine.vocab.detokenize(before[1:]) == b"hello world"
        assert (len(engine.slots()), engine.has_work) == (4, False)


def test_ten_requests_on_four_slots_all_end(model: Path, owner: int) -> None:
    """D.2: mixed load, mixed lengths, one of them cancelled, one refused; the others answer as each would alone."""
    with loaded(model, owner, **SAME_IN_ANY_BATCH) as engine:
        expected = {f"r{i}": generate(engine, PROMPTS[i % 4] * (1 + i % 3), max_tokens=2 + i) for i in range(8)}
        for i in range(8):
            submit(engine, f"r{i}", PROMPTS[i % 4] * (1 + i % 3), max_tokens=2 + i)
        submit(engine, "long", PROMPTS[3])
        submit(engine, "bad", np.zeros(0))
        outputs = []
        for _ in range(4):
            engine.step()
        engine.cancel("long")
        outputs += run(engine)
        assert {id: tokens(outputs, id) for id in expected} == expected
        assert isinstance(end(outputs, "long"), Cancelled)
        assert isinstance(error(outputs, "bad"), InvalidRequest)


def test_a_seed_gives_the_same_answer_again(tiny_llama: Path, owner: int) -> None:
    """B.2 seed: reproducible; another seed, or none, is not."""
    with loaded(tiny_llama, owner) as engine:
        draws = [
            generate(engine, PROMPTS[1], Sampling(seed=seed, temperature=2.0, top_k=0, ignore_eos=True), max_tokens=24)
            for seed in (1, 1, 2, -1, -1)
        ]
    assert draws[0] == draws[1]
    assert len({tuple(draw) for draw in draws}) == 4


def test_the_short_chain_of_temperature_zero_is_the_long_one(tiny_llama: Path, owner: int) -> None:
    """C.4: leaving out what cannot change the best token changes nothing."""
    with loaded(tiny_llama, owner) as engine:
        whole = Sampling(temperature=0, ignore_eos=True, xtc_probability=1e-30)
        assert generate(engine, PROMPTS[1], whole, max_tokens=24) == generate(engine, PROMPTS[1], GREEDY, max_tokens=24)


def test_ignore_eos_and_biases_reach_the_draw(tiny_llama: Path, owner: int) -> None:
    """B.2 logit_bias, ignore_eos."""
    with loaded(tiny_llama, owner) as engine:
        eos = engine.vocab.eos
        assert eos is not None
        wants_eos = ((eos, 1000.0),)
        submit(engine, "eos", "hello", Sampling(temperature=0, logit_bias=wants_eos), max_tokens=5)
        assert result(run(engine), "eos")[1].stop_type == "eos"
        assert eos not in generate(engine, "hello", Sampling(temperature=0, logit_bias=wants_eos, ignore_eos=True), max_tokens=5)


def test_penalties_count_the_prompt(tiny_llama: Path, owner: int) -> None:
    """C.4 presence_penalty: no token of the prompt or the answer comes again."""
    with loaded(tiny_llama, owner) as engine:
        prompt = engine.vocab.tokenize(PROMPTS[3], True, True).tolist()
        free = generate(engine, np.array(prompt), max_tokens=30)
        apart = generate(engine, np.array(prompt), Sampling(temperature=0, ignore_eos=True, presence_penalty=1000.0), max_tokens=30)
    assert len(set(free) | set(prompt)) < len(free) + len(prompt)
    assert len(set(apart)) == len(apart)
    assert not set(apart) & set(prompt)


def grammar(text: str) -> Sampling:
    """Only this text may be answered."""
    return Sampling(temperature=0, grammar=f'root ::= "{text}"')


@pytest.mark.parametrize(
    ("defaults", "flag"),
    [(Sampling(grammar="root ::= <no such token>"), "--grammar "), (Sampling(logit_bias=((100_000, 1.0),)), "--logit-bias ")],
)
def test_defaults_that_do_not_fit_the_vocabulary_are_told_at_the_load(
    defaults: Sampling, flag: str, tiny_llama: Path, owner: int, caplog: pytest.LogCaptureFixture
) -> None:
    """C --grammar, --logit-bias: one who starts a server looks at its log, not at the answers of others; the model serves."""
    with loaded(tiny_llama, owner, sampling=defaults) as engine:
        submit(engine, "a", "hello", max_tokens=1)
        assert not isinstance(run(engine)[-1], Failed)
    told = [record.getMessage() for record in caplog.records if record.name == "lsm.engine"]
    assert len(told) == 1 and told[0].startswith(flag)


def test_characters_come_whole_though_each_token_is_a_byte(tiny_llama: Path, owner: int) -> None:
    """B.2: an emoji is split over tokens, and never over pieces."""
    with loaded(tiny_llama, owner) as engine:
        submit(engine, "a", "hello", grammar("é😀👩‍👩ü"), max_tokens=40)
        outputs = run(engine)
        text, finish = result(outputs, "a")
    assert (text, finish.stop_type) == ("é😀👩‍👩ü", "eos")
    assert len(tokens(outputs, "a")) == len("é😀👩‍👩ü".encode()) + 1
    assert "\ufffd" not in text


def test_an_answer_cut_within_a_character_ends_before_it(tiny_llama: Path, owner: int) -> None:
    """B.2: max_tokens may leave half a character, which is dropped as in llama-server."""
    with loaded(tiny_llama, owner) as engine:
        submit(engine, "a", "hello", grammar("é😀"), max_tokens=4)
        assert texts(run(engine), "a") == "é"


def test_a_stop_word_over_several_tokens(tiny_llama: Path, owner: int) -> None:
    """B.2 stop: with a real vocabulary."""
    with loaded(tiny_llama, owner) as engine:
        submit(engine, "a", "hello", grammar("one STOOP two STOP three"), stop=("STOP",), max_tokens=40)
        text, finish = result(run(engine), "a")
    assert (text, finish.stop_type, finish.stopping_word) == ("one STOOP two ", "word", "STOP")


def test_a_bad_grammar_is_refused(tiny_llama: Path, owner: int) -> None:
    """B.2: bad grammar: 400."""
    with loaded(tiny_llama, owner) as engine:
        submit(engine, "a", "hello", Sampling(grammar="root ::= ("))
        refused = error(run(engine), "a")
    assert isinstance(refused, InvalidRequest)
    assert refused.field == "grammar"


def test_a_cache_that_all_share_makes_room_and_then_refuses(tiny_llama: Path, owner: int) -> None:
    """D.2 decode failures: idle slots are cleared first; then "Context size has been exceeded."; the engine serves on."""
    with loaded(tiny_llama, owner, n_ctx=256) as engine:
        expected = generate(engine, PROMPTS[0], max_tokens=4)
        for i in range(4):
            submit(engine, f"filler{i}", np.full(60, 10 + i), max_tokens=1)
        run(engine)
        submit(engine, "a", np.full(150, 20), max_tokens=2)
        assert result(run(engine), "a")[1].completion_tokens == 2
        for i in range(2):
            submit(engine, f"big{i}", np.full(120, 30 + i), max_tokens=40)
        outputs = run(engine)
        failed = [end(outputs, f"big{i}") for i in range(2)]
        messages = [output.error.message for output in failed if isinstance(output, Failed)]
        assert messages == ["Context size has been exceeded."]
        assert generate(engine, PROMPTS[0], max_tokens=4) == expected


def test_facts_stay_true_while_memory_is_away(tiny_llama: Path, owner: int) -> None:
    """B.1 props: what is known of a model once it is loaded."""
    engine = Engine(EngineConfig(path=tiny_llama, n_ctx=512, n_parallel=2, threads=1), owner, Executor)
    seen: list[float] = []
    facts = engine.load(lambda fraction: seen.append(fraction) is None)
    engine.close()
    assert (facts.architecture, facts.n_vocab, facts.n_ctx, facts.n_ctx_slot, facts.n_slots) == ("llama", 320, 512, 256, 2)
    assert (facts.n_ctx_train, facts.n_embd, facts.bos_token, facts.eos_token) == (4096, 128, "<s>", "</s>")
    assert facts.chat_template.startswith("{% for")
    assert facts.size_bytes > 0 and facts.n_params > 0 and facts.load_ms > 0
    assert seen == sorted(seen) and seen[-1] == 1.0


def truncated(path: Path, tmp_path: Path) -> Path:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(path.read_bytes()[:-1000])
    return broken


def missing(path: Path, tmp_path: Path) -> Path:
    return tmp_path / "missing.gguf"


@pytest.mark.parametrize("spoil", [truncated, missing])
def test_a_file_that_cannot_be_loaded_leaves_nothing_behind(
    spoil: Callable[[Path, Path], Path], tiny_llama: Path, tmp_path: Path, owner: int
) -> None:
    """First light 8: missing or broken GGUF: a clear error that names the file."""
    path = spoil(tiny_llama, tmp_path)
    engine = Engine(EngineConfig(path=path, threads=1), owner, Executor)
    with pytest.raises(ModelFileError, match=path.name):
        engine.load(lambda fraction: True)
    assert all(engine.memory.bytes(name).device == 0 for name in CLASSES)
    engine.close()


def test_a_load_can_be_stopped_and_tried_again(tiny_llama: Path, owner: int) -> None:
    """S7: a failed load frees all it took; the same engine may load later."""
    engine = Engine(EngineConfig(path=tiny_llama, n_ctx=512, threads=1), owner, Executor)
    with pytest.raises(LsmError, match="cancelled"):
        engine.load(lambda fraction: fraction < 0.5)
    assert engine.memory.bytes("weights").device == 0
    engine.load(lambda fraction: True)
    assert generate(engine, "hello", max_tokens=2)
    engine.close()


def test_closing_frees_all_memory_also_while_it_is_away(tiny_llama: Path, owner: int) -> None:
    """Design 4: a model may be freed while released, in the middle of a request."""
    with loaded(tiny_llama, owner) as engine:
        submit(engine, "a", "hello")
        engine.step()
        engine.memory.release(*CLASSES)
        engine.close()
        assert all(sum(engine.memory.bytes(name)) == 0 for name in CLASSES)
        assert (engine.has_work, engine.slots()) == (False, ())


def test_an_interrupted_step_fails_its_requests(tiny_llama: Path, owner: int) -> None:
    """Stop: a long batch does not hold up the end of the process."""
    with loaded(tiny_llama, owner) as engine:
        submit(engine, "a", "hello")
        engine.interrupt()
        engine.step()
        assert isinstance(error(engine.outputs(), "a"), DecodeFailed)
