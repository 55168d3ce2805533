"""Embeddings, ranking, infill and encoder-decoder models behind `lsm.api.Host`, with real engines on tiny models."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import trio

from lsm.api import Host
from lsm.engine.infill import infill_prompt
from lsm.errors import InvalidRequest, NotSupported, ServerError
from lsm.values import Finish, Infill, Options
from tests.runtime.test_host import GREEDY, LIMIT_S, host_of, tokens
from tests.tiny_modes import FIM, N_EMBD, write_bert, write_t5

OVERRIDES = ",".join(f"tokenizer.ggml.fim_{name}_token_id=int:{token}" for name, token in FIM.items())
TEXTS = ["hello world", "the world is at you", "a"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bert(tmp_path_factory.mktemp("tiny") / "bert.gguf")


async def vectors(host: Host, model: str, texts: list[str]) -> np.ndarray:
    """(n, n_embd)"""
    await host.wake(model)
    return np.concatenate([one.vectors for one in await host.embed(model, texts)])


async def test_embeddings_have_the_length_one_unless_told_otherwise(tmp_path: Path, bert: Path) -> None:
    """B.5, C.2 --embd-normalize: the setting counts where the request is silent; special tokens are part of an input."""
    with trio.fail_after(LIMIT_S):
        async with host_of(tmp_path / "arena", {"a": bert}, "--embeddings") as host:
            made = await vectors(host, "a", TEXTS)
            raw = await host.embed("a", [TEXTS[0]], -1)
            ids = await host.embed("a", [host.tokenize("a", TEXTS[0], add_special=True)])
    assert made.shape == (3, N_EMBD) and made.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(made, axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(raw[0].vectors[0] / np.linalg.norm(raw[0].vectors), made[0], atol=1e-6)
    np.testing.assert_allclose(ids[0].vectors[0], made[0], atol=1e-6)


async def test_many_inputs_come_back_in_order(tmp_path: Path, bert: Path) -> None:
    """B.5: more than there are slots; each is the vector of its own text."""
    texts = [f"it is {i} of the world" for i in range(40)]
    with trio.fail_after(LIMIT_S):
        async with host_of(tmp_path / "arena", {"a": bert}, "--embeddings") as host:
            together = await vectors(host, "a", texts)
            for i in (0, 17, 39):
                np.testing.assert_allclose((await vectors(host, "a", [texts[i]]))[0], together[i], atol=1e-5)


async def test_embeddings_survive_taking_turns_with_another_model(tmp_path: Path, bert: Path, tiny_llama: Path) -> None:
    """S10, design 3: the device changes hands between requests, and nothing changes in them."""
    with trio.fail_after(LIMIT_S):
        async with host_of(tmp_path / "arena", {"a": bert, "b": tiny_llama}, "--embeddings") as host:
            before, text = await vectors(host, "a", TEXTS), await tokens(host, "b")
            for _ in range(3):
                np.testing.assert_allclose(await vectors(host, "a", TEXTS), before, atol=1e-5)
                assert await tokens(host, "b") == text


async def test_a_sleep_in_the_middle_of_many_inputs_changes_none(tmp_path: Path, bert: Path) -> None:
    """S10: those that were computed stay, the others follow after the wake."""
    texts = [f"it is {i} of the world" for i in range(60)]
    with trio.fail_after(LIMIT_S):
        async with host_of(tmp_path / "arena", {"a": bert}, "--embeddings") as host:
            expected = await vectors(host, "a", texts)
            made: list[np.ndarray] = []

            async def embed() -> None:
                made.append(await vectors(host, "a", texts))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(embed)
                for _ in range(3):
                    await host.sleep("a")
    np.testing.assert_allclose(made[0], expected, atol=1e-5)


async def test_leaving_ends_all_inputs(tmp_path: Path, bert: Path) -> None:
    """D.2: a client that goes cancels what is queued, too."""
    with trio.fail_after(LIMIT_S):
        async with host_of(tmp_path / "arena", {"a": bert}, "--embeddings") as host:
            await host.wake("a")
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(host.embed, "a", TEXTS * 500)
                    await trio.testing.wait_all_tasks_blocked()
                    nursery.cancel_scope.cancel()
            assert not scope.cancelled_caught
            while host.counters("a").requests_processing:
                await trio.testing.wait_all_tasks_blocked(0.01)


async def test_one_wrong_input_ends_the_request(tmp_path: Path, bert: Path) -> None:
    """B.5: with its error, and the next request is served."""
    with trio.fail_after(LIMIT_S):
        async with host_of(tmp_path / "arena", {"a": bert}, "--embeddings") as host:
            await host.wake("a")
            with pytest.raises(ServerError, match=r"input \(100 tokens\) is too large"):
                await host.embed("a", [*TEXTS, [5] * 100, *TEXTS])
            with pytest.raises(InvalidRequest):
                await host.embed("a", [[]])
            assert (await vectors(host, "a", TEXTS)).shape == (3, N_EMBD)


async def test_documents_are_scored_as_pairs(tmp_path: Path) -> None:
    """B.5: query and document, each closed by the end token; the same pair has the same score."""
    path = write_bert(tmp_path / "rank.gguf", pooling=gguf.PoolingType.RANK)
    with trio.fail_after(LIMIT_S):
        async with host_of(tmp_path / "arena", {"a": path}, "--rerank") as host:
            await host.wake("a")
            one, other, again = await host.rank("a", "hello", ["world", "you", "world"])
            [[pair]] = [(await host.embed("a", [[1, *host.tokenize("a", "hello"), 2, *host.tokenize("a", "world"), 2]]))]
    assert one.vectors.shape == (1, 1) and abs(float(one.vectors[0, 0]) - float(other.vectors[0, 0])) > 1e-3
    np.testing.assert_allclose(again.vectors, one.vectors, atol=1e-5)
    np.testing.assert_allclose(pair.vectors, one.vectors, atol=1e-5)
    assert one.n_tokens == pair.n_tokens


async def test_a_model_that_does_not_rank_says_so(tmp_path: Path, bert: Path) -> None:
    """B.5: 501 unless rerank mode."""
    with trio.fail_after(LIMIT_S):
        async with host_of(tmp_path / "arena", {"a": bert}, "--embeddings") as host:
            await host.wake("a")
            with pytest.raises(NotSupported, match="--reranking"):
                await host.rank("a", "hello", ["world"])


async def test_a_gap_is_filled_after_the_prompt_that_its_tokens_make(tmp_path: Path, tiny_llama: Path) -> None:
    """B.3 infill: the same answer as to the ids of the prompt; --spm-infill turns prefix and suffix round."""
    gap = Infill(prefix="hello ", suffix=" world", extra=(("a", "the"),))
    answers = []
    for flags in ((), ("--spm-infill",)):
        with trio.fail_after(LIMIT_S):
            async with host_of(tmp_path / "arena", {"a": tiny_llama}, "--override-kv", OVERRIDES, *flags) as host:
                await host.wake("a")
                options = Options(max_tokens=8, sampling=GREEDY)
                async with host.infill("a", gap, options) as answer:
                    filled = [token async for event in answer if not isinstance(event, Finish) for token in event.tokens]
                vocab = host._owner("a").vocab  # type: ignore[attr-defined]
                prompt = infill_prompt(vocab, gap, 512, 8, bool(flags))
                assert await tokens(host, "a", prompt.tolist(), 8) == filled
                answers.append(filled)
    assert answers[0] != answers[1]


async def test_a_model_without_the_tokens_cannot_fill(tmp_path: Path, tiny_llama: Path) -> None:
    """B.3: 501 that names what is missing."""
    with trio.fail_after(LIMIT_S):
        async with host_of(tmp_path / "arena", {"a": tiny_llama}) as host:
            await host.wake("a")
            with pytest.raises(NotSupported, match="prefix token is missing. suffix token is missing. middle token is missing."):
                async with host.infill("a", Infill(prefix="a", suffix="b"), Options()):
                    pass


async def test_an_encoder_decoder_model_answers_like_any_other(tmp_path: Path) -> None:
    """D.1: through the same queue, one after the other, with sleeps between its tokens."""
    path = write_t5(tmp_path / "t5.gguf")
    with trio.fail_after(LIMIT_S):
        async with host_of(tmp_path / "arena", {"a": path}) as host:
            expected = await tokens(host, "a", "hello world")
            async with host.generate("a", "hello world", Options(max_tokens=12, sampling=GREEDY)) as answer:
                disturbed: list[int] = []
                async for event in answer:
                    if not isinstance(event, Finish):
                        disturbed += event.tokens
                        await host.sleep("a")
    assert disturbed == expected
