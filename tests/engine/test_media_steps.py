"""Images in prompts, on a scripted model: what is decoded, what is kept, what fails."""

from __future__ import annotations

import pytest

from lsm.engine.outputs import Cancelled
from lsm.errors import ContextExceeded, DecodeFailed, InvalidRequest, ServerError
from tests.engine.scripted import Bench, continuation, end, error, result, tokens, with_media

CAT = ("cat", 6)
DOG = ("dog", 6)


def test_an_image_is_decoded_between_the_texts_around_it() -> None:
    """S15, D.2: the answer follows from all of the prompt, in order, and the counts are right."""
    bench = Bench()
    prompt, media = with_media([3, 4, 5], CAT, [6, 7])
    bench.submit("a", prompt, media=media, max_tokens=3)
    outputs = bench.run()
    _, finish = result(outputs, "a")
    assert tokens(outputs, "a") == continuation(prompt, 3)
    assert finish.prompt_tokens == 11 and finish.timings.prompt_n == 11 and finish.timings.cache_n == 0
    assert bench.scheduler.counters().prompt_tokens == 11
    assert bench.encoder.calls == [["cat"]]


@pytest.mark.parametrize("parts", [(CAT, [3]), ([3], CAT), (CAT,), (CAT, DOG), ([3], CAT, DOG, [4], CAT)])
def test_images_may_stand_anywhere(parts: tuple[object, ...]) -> None:
    """D.2: also at the end, where the last embedding gives the logits, and one behind the other."""
    bench = Bench()
    prompt, media = with_media(*parts)  # type: ignore[arg-type]
    bench.submit("a", prompt, media=media, max_tokens=2)
    assert tokens(bench.run(), "a") == continuation(prompt, 2)


def test_positions_go_on_behind_an_image_that_takes_few() -> None:
    """D.2: with M-RoPE; the scripted model asserts each position."""
    bench = Bench()
    prompt, media = with_media([3, 4], ("cat", 6, 2), [5, 6])
    bench.submit("a", prompt, media=media, max_tokens=3)
    bench.run()
    longer, more = with_media([3, 4], ("cat", 6, 2), [5, 7, 8])
    bench.submit("b", longer, media=more, max_tokens=1)
    _, finish = result(bench.run(), "b")
    assert finish.timings.cache_n == 9


@pytest.mark.parametrize(
    ("second", "cached", "encoded"),
    [
        (([3, 4], CAT, [5, 8]), 9, []),
        (([3, 4], CAT, [9, 9]), 8, []),
        (([3, 4], DOG, [5, 6]), 2, ["dog"]),
        (([3, 4], ("cat", 5), [5, 6]), 2, ["cat"]),
        (([3, 4], CAT), 2, ["cat"]),
    ],
)
def test_a_prefix_is_kept_over_an_image_with_the_same_content(second: tuple[object, ...], cached: int, encoded: list[str]) -> None:
    """S31, D.2: a cached image is neither encoded nor decoded again; a prefix never ends inside one."""
    bench = Bench(n_slots=1)
    prompt, media = with_media([3, 4], CAT, [5, 6])
    bench.submit("a", prompt, media=media, max_tokens=1)
    bench.run()
    bench.encoder.calls.clear()
    prompt, media = with_media(*second)  # type: ignore[arg-type]
    bench.submit("b", prompt, media=media, max_tokens=2)
    outputs = bench.run()
    assert result(outputs, "b")[1].timings.cache_n == cached
    assert tokens(outputs, "b") == continuation(prompt, 2)
    assert [id for call in bench.encoder.calls for id in call] == encoded


def test_images_of_all_requests_may_share_one_turn_of_the_encoder() -> None:
    """S5: the encoder comes for a batch, not for each image."""
    bench = Bench()
    bench.encoder.n_batch = 8
    for id in ("a", "b"):
        prompt, media = with_media([3], (f"{id}-1", 4), [4], (f"{id}-2", 4), [5])
        bench.submit(id, prompt, media=media, max_tokens=1)
    bench.run()
    assert bench.encoder.calls == [["a-1", "a-2", "b-1", "b-2"]]


def test_an_image_that_cannot_be_encoded_ends_its_request_alone() -> None:
    """S5: 500 server_error; the next request is served, and so is one that runs beside it."""
    bench = Bench()
    bench.encoder.error = ServerError("the encoder does not fit")
    prompt, media = with_media([3], CAT, [4])
    bench.submit("a", prompt, media=media, max_tokens=1)
    bench.submit("b", [5, 6], max_tokens=2)
    outputs = bench.run()
    assert error(outputs, "a").status == 500
    assert tokens(outputs, "b") == continuation([5, 6], 2)
    assert bench.cached(0) == [], "what of it was in the cache is unknown"


@pytest.mark.parametrize("code", [1, 2, -3])
def test_an_image_that_cannot_be_decoded_ends_its_request(code: int) -> None:
    """D.2: and leaves nothing of it in the cache."""
    bench = Bench(shares_cells=False)
    prompt, media = with_media(CAT, [4])
    bench.decoder.codes = [code]
    bench.submit("a", prompt, media=media, max_tokens=1)
    assert isinstance(error(bench.run(), "a"), DecodeFailed)
    assert bench.cached(0) == []


def test_idle_slots_make_room_for_an_image() -> None:
    """D.2: as they do for text."""
    bench = Bench()
    bench.answer("old", [8, 8, 8], max_tokens=1)
    prompt, media = with_media(CAT, [4])
    bench.decoder.codes = [1]
    bench.submit("a", prompt, media=media, max_tokens=1, id_slot=1)
    assert tokens(bench.run(), "a") == continuation(prompt, 1)
    assert bench.cached(0) == []


def test_a_cancel_between_two_images_keeps_the_first() -> None:
    """I3: the slot is free at once; what is whole in the cache serves the next prompt."""
    bench = Bench(n_slots=1)
    prompt, media = with_media([3], CAT, DOG, [4])
    bench.submit("a", prompt, media=media, max_tokens=1)
    bench.scheduler.step()
    bench.scheduler.step()
    bench.scheduler.cancel("a")
    assert isinstance(end(bench.scheduler.outputs(), "a"), Cancelled)
    prompt, media = with_media([3], CAT, [5])
    bench.submit("b", prompt, media=media, max_tokens=1)
    assert result(bench.run(), "b")[1].timings.cache_n == 7


def test_without_the_weights_nothing_is_decoded_and_nothing_is_lost() -> None:
    """S5: the request goes on when they are back, with the embeddings that it has."""
    bench = Bench()
    prompt, media = with_media([3], CAT, [4])
    bench.encoder.loses_weights = True
    bench.submit("a", prompt, media=media, max_tokens=2)
    bench.scheduler.step()
    bench.scheduler.step()
    assert bench.encoder.is_lost and bench.scheduler.has_work
    n_calls = len(bench.decoder.calls)
    bench.scheduler.step()
    assert len(bench.decoder.calls) == n_calls
    bench.encoder.is_lost = bench.encoder.loses_weights = False
    assert tokens(bench.run(), "a") == continuation(prompt, 2)
    assert bench.encoder.calls == [["cat"]]


def test_the_sampler_hears_of_the_text_alone() -> None:
    """C.4: penalties look at tokens; placeholders are none."""
    bench = Bench()
    bench.n_look_back = 3
    prompt, media = with_media([3, 4], CAT, [5])
    bench.submit("a", prompt, media=media, max_tokens=1)
    bench.run()
    assert bench.samplers[0].prompt_seen == [3, 4, 5]


def test_placeholders_without_media_are_refused() -> None:
    """S15: negative ids come from us alone."""
    bench = Bench()
    prompt, _ = with_media([3], CAT)
    bench.submit("a", prompt, max_tokens=1)
    assert isinstance(error(bench.run(), "a"), InvalidRequest)


def test_an_image_counts_against_the_context() -> None:
    """S18: as many positions as it has embeddings."""
    bench = Bench(n_ctx_slot=64)
    prompt, media = with_media(("cat", 64))
    bench.submit("a", prompt, media=media)
    assert isinstance(error(bench.run(), "a"), ContextExceeded)
