"""Batches in, tokens and logits out; sequences in the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lsm.errors import ConfigError, InvalidRequest, NotSupported, ServerError
from lsm.native.context import Context
from lsm.native.model import Model
from lsm.native.sampler import Sampler
from lsm.native.vocab import Tokens
from lsm.tuning import Computing
from tests.native.runner import Runner, open_context, prompt_tokens
from tests.tiny_modes import write_bert


@pytest.fixture(scope="module")
def model(tiny_llama: Path) -> Iterator[Model]:
    with Model.load(tiny_llama, 900_003) as model:
        yield model


@pytest.fixture
def context(model: Model) -> Iterator[Context]:
    with open_context(model) as context:
        yield context


def ints(*values: int) -> Tokens:
    return np.array(values, np.int32)


def flags(*values: int) -> NDArray[np.int8]:
    return np.array(values, np.int8)


def test_rows_are_served_in_the_order_asked_for(model: Model, context: Context) -> None:
    """Design 6: each row's logits, and its own sampler's token; rows without a sampler give -1."""
    greedy = Sampler(model.vocab, [("greedy", {})])
    worst = Sampler(model.vocab, [("logit_bias", {"bias": [(9, 1000.0)]}), ("greedy", {})])
    step = context.step(ints(5, 6, 7), ints(0, 1, 0), ints(0, 0, 1), flags(1, 1, 1), ints(2, 0, 1), [greedy, worst, None], logits=True)
    assert step.code == 0 and step.logits is not None
    for i, row in enumerate((2, 0, 1)):
        assert step.logits[i].tobytes() == context.logits(row).tobytes()
    assert step.sampled.tolist() == [int(np.argmax(context.logits(2))), 9, -1]


def test_a_prompt_in_pieces_is_the_same_prompt(model: Model, context: Context) -> None:
    """D.2: batches may cut a prompt anywhere; positions carry on."""
    prompt = prompt_tokens(model, 30, 1)
    whole, parts = Runner(model, context), Runner(model, context)
    whole.prompt(0, prompt)
    parts.prompt(1, prompt[:13])
    parts.prompt(1, prompt[13:])
    assert whole.trace.tokens[-1] == parts.trace.tokens[-1]
    np.testing.assert_allclose(whole.trace.rows[-1], parts.trace.rows[-1], atol=1e-3)


def test_sequences_do_not_see_each_other(model: Model, context: Context) -> None:
    """D.2: a sequence decodes the same alone and beside another."""
    alone, beside = Runner(model, context), Runner(model, context)
    alone.prompt(0, prompt_tokens(model, 20, 1))
    context.memory_clear()
    beside.prompt(1, prompt_tokens(model, 33, 2))
    beside.prompt(0, prompt_tokens(model, 20, 1))
    assert alone.trace.rows[-1].tobytes() == beside.trace.rows[-1].tobytes()


def test_forgetting_and_copying(model: Model, context: Context) -> None:
    """D.2: positions after removals, copies and clears."""
    run = Runner(model, context)
    run.prompt(0, prompt_tokens(model, 20, 1))
    assert (context.seq_pos_min(0), context.seq_pos_max(0), context.seq_pos_max(1)) == (0, 19, -1)
    context.seq_cp(0, 1)
    assert context.seq_rm(0, 15)
    assert (context.seq_pos_max(0), context.seq_pos_max(1)) == (14, 19)
    context.seq_keep(1)
    assert (context.seq_pos_max(0), context.seq_pos_max(1)) == (-1, 19)
    context.memory_clear()
    assert context.seq_pos_max(1) == -1


def test_sequences_that_do_not_exist_are_refused(context: Context) -> None:
    """D.2: an error rather than the end of the process."""
    for use in (context.seq_rm, context.seq_pos_min, context.seq_pos_max, context.sequence_state, lambda s: context.seq_cp(0, s)):
        with pytest.raises(InvalidRequest, match="sequence 3"):
            use(3)


def test_part_of_a_sequence_is_copied_only_in_a_shared_cache(model: Model, context: Context) -> None:
    """D.2: refused where llama.cpp would end the process, done where it can be."""
    Runner(model, context).prompt(0, prompt_tokens(model, 20, 1))
    with pytest.raises(NotSupported, match="kv_unified"):
        context.seq_cp(0, 1, 0, 10)
    with open_context(model, kv_unified=True) as shared:
        Runner(model, shared).prompt(0, prompt_tokens(model, 20, 1))
        shared.seq_cp(0, 1, 0, 10)
        assert shared.seq_pos_max(1) == 9


def test_a_shift_moves_positions(model: Model, context: Context) -> None:
    """D.2: positions from 10 on move down by 5 and decoding goes on there."""
    run = Runner(model, context)
    run.prompt(0, prompt_tokens(model, 20, 1))
    assert context.can_shift and context.seq_rm(0, 5, 10)
    context.seq_add(0, 10, -1, -5)
    assert context.seq_pos_max(0) == 14
    run.next[0] = 15
    run.steps(1)


def test_a_recurrent_model_cannot_forget_a_part(tiny_mamba: Path, owner: int) -> None:
    """S9: `seq_rm` says so and changes nothing; the whole sequence can go."""
    with Model.load(tiny_mamba, owner) as mamba, open_context(mamba) as context:
        assert mamba.is_recurrent
        Runner(mamba, context).prompt(0, prompt_tokens(mamba, 10, 1))
        assert not context.seq_rm(0, 5)
        assert context.seq_pos_max(0) == 9
        assert context.seq_rm(0) and context.seq_pos_max(0) == -1


def test_sequence_state_moves_to_another_sequence(model: Model, context: Context) -> None:
    """S6, S9: bytes out, bytes in, and the answer goes on as if nothing had happened."""
    run = Runner(model, context)
    run.prompt(0, prompt_tokens(model, 20, 1))
    state = context.sequence_state(0)
    run.steps(3)
    again = Runner(model, context)
    assert context.set_sequence_state(2, state)
    again.last[2], again.next[2] = run.trace.tokens[0], 20
    again.steps(3)
    assert again.trace.tokens == run.trace.tokens[1:]
    assert not context.set_sequence_state(2, state[:50])


def test_a_full_cache_is_told_by_code_1(model: Model) -> None:
    """D.2: not an error: the engine halves the batch or ends the request."""
    with open_context(model, n_ctx=256, n_seq_max=1) as context:
        n = context.n_ctx
        for start in range(0, n, 128):
            assert context.step(*block(start, 128)).code == 0
        assert context.step(*block(n, 1)).code == 1


def block(start: int, n: int) -> tuple[Tokens, Tokens, Tokens, NDArray[np.int8], Tokens]:
    """The arguments of a step: n tokens of sequence 0 from this position on, no outputs."""
    return np.full(n, 5, np.int32), np.arange(start, start + n, dtype=np.int32), np.zeros(n, np.int32), np.zeros(n, np.int8), ints()


def test_an_interrupt_ends_a_step_with_code_2(model: Model, context: Context) -> None:
    """D.2: and the next step after it is withdrawn works."""
    context.interrupt()
    assert context.step(*block(0, 64)).code == 2
    context.interrupt(False)
    context.memory_clear()
    assert context.step(*block(0, 64)).code == 0


def test_bad_batches_are_refused(context: Context) -> None:
    """D.2: before anything is decoded; the context goes on working."""
    with pytest.raises(InvalidRequest, match="1 to 128"):
        context.step(*block(0, 0))
    with pytest.raises(InvalidRequest, match="1 to 128"):
        context.step(*block(0, 129))
    with pytest.raises(InvalidRequest, match="at most 3 outputs"):
        context.step(ints(5, 6, 7, 8), ints(0, 1, 2, 3), ints(0, 0, 0, 0), flags(1, 1, 1, 1), ints(0))
    with pytest.raises(InvalidRequest, match="same length"):
        context.step(ints(5), ints(0, 1), ints(0), flags(1), ints(0))
    with pytest.raises(TypeError, match="int32"):
        context.step(np.array([5]), ints(0), ints(0), flags(1), ints(0))
    with pytest.raises(InvalidRequest, match="no logits"):
        context.step(ints(5), ints(0), ints(0), flags(0), ints(0), logits=True)
    assert context.step(ints(10**6), ints(1), ints(0), flags(1), ints(0)).code == -1
    assert context.step(ints(5), ints(1), ints(7), flags(1), ints(0)).code == -1
    assert context.step(ints(5), ints(1), ints(0), flags(1), ints(0)).code == 0


def test_rows_that_are_not_there_are_refused(context: Context) -> None:
    """D.2: logits of an empty context, embeddings of a context without them."""
    with pytest.raises(InvalidRequest, match="no logits"):
        context.logits(0)
    with pytest.raises(InvalidRequest, match="no embedding"):
        context.embedding(0)


def test_many_outputs_are_served_where_they_were_asked_for(model: Model) -> None:
    """Design 6: every token of a batch can have logits."""
    with open_context(model, n_outputs_max=64) as context:
        tokens, positions, sequences, outputs, _ = block(0, 64)
        rows = np.arange(64, dtype=np.int32)
        step = context.step(tokens, positions, sequences, outputs + flags(1), rows, logits=True)
        assert step.code == 0 and step.logits is not None and step.logits.shape == (64, context.n_vocab)


@pytest.mark.slow
def test_a_context_pays_for_the_outputs_it_asks_for(real_model: Callable[[str], Path], owner: int) -> None:
    """Design 4: with the 262,144 tokens of Gemma 3 the rows of a whole batch would cost half a gigabyte."""
    with Model.load(real_model("gemma3"), owner) as gemma:
        with open_context(gemma, n_batch=512, n_ubatch=512):
            few = gemma.memory.bytes("compute").device
        with open_context(gemma, n_batch=512, n_ubatch=512, n_outputs_max=512):
            assert gemma.memory.bytes("compute").device > 512 << 20 > 8 * few


def test_embeddings(model: Model) -> None:
    """B.5: a vector for each output row."""
    with open_context(model, computing=Computing(embeddings=True)) as context:
        assert context.step(ints(5, 6), ints(0, 1), ints(0, 0), flags(1, 1), ints(0, 1)).code == 0
        first, second = context.embedding(0), context.embedding(1)
        assert first.shape == (model.n_embd,) and not np.array_equal(first, second)


@pytest.mark.parametrize(("setting", "value"), [("flash_attn", "perhaps"), ("type_k", "f17"), ("type_v", "")])
def test_unknown_settings_are_refused_by_name(model: Model, setting: str, value: str) -> None:
    """B.0: with what is possible."""
    with pytest.raises(ConfigError, match=setting):
        open_context(model, **{setting: value})


def test_a_combination_that_llama_cpp_refuses(model: Model) -> None:
    """B.0: a quantized V cache needs flash attention."""
    with pytest.raises(ServerError, match="refuses"):
        open_context(model, type_v="q8_0", flash_attn="off")


@pytest.mark.parametrize("cache_type", ["f32", "q8_0", "q4_0"])
def test_cache_types(model: Model, cache_type: str) -> None:
    """C.3: the cache's size follows its type, and it survives a cycle."""
    with open_context(model, type_k=cache_type, type_v=cache_type, flash_attn="on") as context, open_context(model) as f16:
        assert context.n_ctx == f16.n_ctx
        run = Runner(model, context)
        run.prompt(0, prompt_tokens(model, 20, 1))
        model.memory.release("kv")
        model.memory.restore("kv")
        run.steps(2)


def test_pooling_wants_batches_of_whole_sequences(tmp_path: Path, owner: int) -> None:
    """Design 5: llama.cpp would end the process over a batch that does not divide into the sequences."""
    with Model.load(write_bert(tmp_path / "model.gguf"), owner) as model:
        with pytest.raises(ConfigError, match="n_ubatch.*3 sequences"):
            open_context(model, computing=Computing(embeddings=True), n_seq_max=3)
        open_context(model, computing=Computing(embeddings=True), n_seq_max=3, n_ubatch=63, n_batch=63)
