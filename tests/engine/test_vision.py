"""Images through a real engine: the same answers whether the encoder stays or comes just in time, and what is in device memory when."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lsm.engine.config import EngineConfig, ProjectorConfig
from lsm.engine.engine import Engine
from lsm.engine.outputs import Cancelled, Failed, Job
from lsm.errors import DeviceMemoryError, InvalidRequest, ModelFileError, NotSupported
from lsm.native.library import lib
from lsm.native.memory import MemoryClass
from lsm.native.projector_check import measure
from lsm.runtime.executor import Executor, Fired
from lsm.values import Options
from tests import tiny_projectors
from tests.engine.loaded import GREEDY, SAME_IN_ANY_BATCH, run
from tests.engine.scripted import end, error, result, tokens
from tests.media_files import png, wav
from tests.tiny_projectors import PAIRS, write_pair

MARKER = "<__media__>"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """The paths of a model and its projector, by the pair's name."""
    return partial(write_pair, tmp_path_factory.mktemp("pairs"))


class Bench:
    """A loaded engine, what its encoder did, and how much it had on the device while it did it."""

    def __init__(self, pair: tuple[Path, Path], owner: int, on_demand: bool, fits: bool, spare_bytes: int = 0, **config: Any) -> None:
        projector = ProjectorConfig(path=pair[1], marker=MARKER, on_demand=on_demand)
        defaults = {"n_ctx": 512, "n_batch": 64, "n_ubatch": 64, "threads": 1, "n_parallel": 2, **SAME_IN_ANY_BATCH}
        self.fired: list[Fired] = []
        self.encoder_bytes: dict[str, int] = {}  # on the device when the state was left
        self.fits = fits
        self.n_taken = 0
        self.spare_bytes = spare_bytes
        self.no_room_in = ""  # the next allocation after this state was entered fails
        config_ = EngineConfig(path=pair[0], projector=projector, **(defaults | config))
        self.engine = Engine(config_, owner, lambda table, subject: Executor(table, subject, self._on_fired), room=self)

    def _on_fired(self, fired: Fired) -> None:
        if fired.machine == "encoder":
            self.fired.append(fired)
            self.encoder_bytes[fired.source] = self.engine.memory.bytes("encoder").device
            if fired.target == self.no_room_in:
                self.no_room_in = ""
                lib.lsm_device_fail_at(lib.LSM_FAULT_MAP, 0)

    def take(self, size_bytes: int) -> bool:
        """Without `fits` there is room for what the weights leave, and no more."""
        taken = self.fits or size_bytes <= self.spare_bytes
        self.n_taken += taken
        return taken

    def give_back(self) -> None:
        self.n_taken -= 1

    def submit(self, id: str, prompt: str, *media: bytes, **options: Any) -> None:
        ids, chunks = self.engine.perception.tokenize(prompt, media)
        self.engine.submit(Job(id, ids, Options(sampling=GREEDY, **({"max_tokens": 6} | options)), chunks))

    def answer(self, prompt: str, *media: bytes, **options: Any) -> list[int]:
        self.submit("one", prompt, *media, **options)
        return tokens(run(self.engine), "one")

    def trace(self) -> tuple[bytes, bytes]:
        """The last logits, and everything in the cache of slot 0."""
        context = self.engine._context
        assert context is not None
        return context.logits(-1).tobytes(), context.sequence_state(0).tobytes()

    def on_device(self) -> int:
        """Bytes, of all classes, those that never leave too.  The peak counts from now on."""
        self.engine.memory.peak_bytes(restart=True)
        return self.engine.memory.peak_bytes()

    def effects(self) -> list[str]:
        return [effect for fired in self.fired for effect in fired.effects]


@contextmanager
def bench(pair: tuple[Path, Path], owner: int, *, on_demand: bool = True, fits: bool = True, **config: Any) -> Iterator[Bench]:
    made = Bench(pair, owner, on_demand, fits, **config)
    made.engine.load(lambda fraction: True)
    made.fired.clear()
    made.encoder_bytes.clear()
    try:
        yield made
    finally:
        made.engine.close()


def file_for(name: str, seed: int = 1) -> bytes:
    return wav(hertz=100.0 * seed) if name == "ultravox" else png(seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PAIRS))
def test_answers_are_the_same_whether_the_encoder_stays_or_comes(name: str, files: Callable[[str], tuple[Path, Path]], owner: int) -> None:
    """S5: bit-identical, beside the weights and in turn with them; and other media, other answers."""
    prompts = [(f"hello {MARKER} world", file_for(name)), (f"{MARKER}{MARKER} is", file_for(name), file_for(name, 2))]
    with bench(files(name), owner, on_demand=False) as stays:
        expected = [(stays.answer(text, *media, cache_prompt=False, id_slot=0), *stays.trace()) for text, *media in prompts]
        stays.answer(prompts[0][0], file_for(name, 3), cache_prompt=False, id_slot=0)
        other = stays.trace()
        assert set(stays.effects()) == {"run"} and stays.engine.memory.bytes("encoder").device > 0
    assert expected[0][1] != other[0] and expected[0][2] != other[1]
    for fits in (True, False):
        with bench(files(name), owner, fits=fits, spare_bytes=measure(files(name)[1]) - 1) as comes:
            assert [(comes.answer(text, *media, cache_prompt=False, id_slot=0), *comes.trace()) for text, *media in prompts] == expected


@pytest.mark.parametrize("name", ["llava", "gemma3"])
def test_the_encoder_is_on_the_device_only_while_it_encodes(name: str, files: Callable[[str], tuple[Path, Path]], owner: int) -> None:
    """S5: observed through the ledger's bytes, in every state of the window."""
    with bench(files(name), owner) as made:
        assert made.engine.memory.bytes("encoder").device == 0, "after the load it has left"
        made.answer(f"hello {MARKER}", png())
        assert made.effects() == ["restore_encoder", "run", "release_encoder"]
        assert made.n_taken == 0, "what was taken of the room was given back"
        assert made.encoder_bytes["host"] == 0 and made.encoder_bytes["entering"] > 0 and made.encoder_bytes["leaving"] == 0
        assert made.engine.memory.bytes("encoder").device == 0


def test_a_text_never_brings_the_encoder_in(files: Callable[[str], tuple[Path, Path]], owner: int) -> None:
    """S5: nor does one beside an image that is in the cache."""
    with bench(files("llava"), owner) as made:
        made.answer("hello world")
        assert made.fired == []
        made.answer(f"hello {MARKER} one", png())
        made.fired.clear()
        made.answer(f"hello {MARKER} one two", png())
        assert made.fired == [], "the image was taken from the cache"


def test_two_images_with_room_for_the_weights_or_the_encoder(files: Callable[[str], tuple[Path, Path]], owner: int) -> None:
    """S5: the order, the measured peak, and a KV cache that nobody touched."""
    with bench(files("llava"), owner, fits=False) as made:
        memory, engine = made.engine.memory, made.engine
        weights, encoder = memory.bytes("weights").device, memory.bytes("encoder").released
        rest = made.on_device() - weights
        made.submit("first", f"one {MARKER} two", png(), id_slot=0)
        run(engine)
        engine_context = engine._context
        assert engine_context is not None
        before = hashlib.sha256(engine_context.sequence_state(0)).hexdigest()
        made.on_device()
        made.fired.clear()
        made.submit("second", f"three {MARKER} four", png(seed=2), id_slot=1, max_tokens=0)
        run(engine)
        assert made.effects() == ["release_weights", "restore_encoder", "run", "release_encoder", "restore_weights"]
        assert memory.peak_bytes() == rest + max(weights, encoder), "not a byte more than the larger of the two"
        assert hashlib.sha256(engine_context.sequence_state(0)).hexdigest() == before
        assert memory.bytes("kv").released == 0


def test_cancelled_requests_and_texts_beside_an_image(files: Callable[[str], tuple[Path, Path]], owner: int) -> None:
    """I3: in the middle of a prompt with two images; what runs beside it goes on, undisturbed."""
    with bench(files("llava"), owner) as made:
        alone = made.answer("hello world", cache_prompt=False)
        made.submit("text", "hello world", cache_prompt=False)
        made.submit("media", f"{MARKER} a {MARKER} b", png(), png(seed=2))
        made.engine.step()
        made.engine.cancel("media")
        outputs = run(made.engine)
        assert isinstance(end(outputs, "media"), Cancelled)
        assert tokens(outputs, "text") == alone


def test_counts_of_a_request_with_an_image(files: Callable[[str], tuple[Path, Path]], owner: int) -> None:
    """B.2: prompt tokens are those of the text and the embeddings of the image."""
    with bench(files("llava"), owner) as made:
        made.submit("one", f"hello {MARKER} world", png())
        _, finish = result(run(made.engine), "one")
        assert finish.prompt_tokens == 7 + 16 + 6 and finish.timings.prompt_n == finish.prompt_tokens


def test_an_encoder_that_does_not_even_fit_alone_fails_its_request(files: Callable[[str], tuple[Path, Path]], owner: int) -> None:
    """S5: 500 server_error; it stays in host memory, the weights are back, the next requests are served."""
    with bench(files("llava"), owner, fits=False) as made:
        expected = made.answer(f"hello {MARKER}", png(), cache_prompt=False)
        lib.lsm_device_fail_at(lib.LSM_FAULT_MAP, 0)
        made.submit("fails", f"hello {MARKER}", png(seed=2))
        failed = error(run(made.engine), "fails")
        assert (failed.status, failed.type) == (500, "server_error") and "no room" in failed.message
        assert made.engine.memory.bytes("encoder").device == 0 and made.engine.memory.resident("weights")
        assert made.engine.lost_for is None
        assert made.answer(f"hello {MARKER}", png(), cache_prompt=False) == expected


@pytest.mark.parametrize("allocation", [0, 1, 2])
def test_a_failed_allocation_anywhere_in_a_window_is_survived(
    allocation: int, files: Callable[[str], tuple[Path, Path]], owner: int
) -> None:
    """S5: each allocation in turn; what fits beside the weights falls back to their place."""
    with bench(files("llava"), owner) as made:
        expected = made.answer(f"hello {MARKER}", png(), cache_prompt=False)
        lib.lsm_device_fail_at(lib.LSM_FAULT_MAP, allocation)
        try:
            made.answer(f"hello {MARKER}", png(), cache_prompt=False)
        finally:
            lib.lsm_device_fail_at(lib.LSM_FAULT_MAP, -1)
        assert made.engine.memory.bytes("encoder").device == 0
        assert made.answer(f"hello {MARKER}", png(), cache_prompt=False) == expected


def test_an_encoder_larger_than_the_room_that_the_weights_leave_is_not_tried(
    files: Callable[[str], tuple[Path, Path]], owner: int, tmp_path: Path
) -> None:
    """S5: the peak never exceeds the budget; the request fails with the bytes, nothing moves."""
    large = tiny_projectors.write_llava(tmp_path / "large.gguf", n_layer=8)
    with bench((files("llava")[0], large), owner) as made:
        made.fits = False
        made.submit("one", f"hello {MARKER}", png())
        failed = error(run(made.engine), "one")
        assert failed.status == 500 and "has no room for the encoder" in failed.message
        assert made.effects() == ["fail_media"] and made.engine.memory.resident("weights")
        made.fits = True
        assert made.answer(f"hello {MARKER}", png())


def test_weights_that_do_not_come_back_stop_the_engine_not_the_process(files: Callable[[str], tuple[Path, Path]], owner: int) -> None:
    """S5: an engine error state; after a release and a restore of everything the request goes on where it was."""
    with bench(files("llava"), owner, fits=False) as made:
        memory = made.engine.memory
        expected = made.answer(f"hello {MARKER} world", png(), cache_prompt=False)
        made.no_room_in = "returning"
        made.submit("one", f"hello {MARKER} world", png(), cache_prompt=False)
        made.engine.step()
        made.engine.step()
        assert isinstance(made.engine.lost_for, DeviceMemoryError) and not memory.resident("weights")
        for _ in range(3):
            made.engine.step()
        assert made.engine.outputs() == [] and made.engine.has_work
        memory.release(*MemoryClass)
        memory.restore("weights", "kv", "compute", "adapters")
        made.engine.woken()
        assert made.engine.lost_for is None
        assert tokens(run(made.engine), "one") == expected


def test_a_model_that_sleeps_in_the_middle_goes_on(files: Callable[[str], tuple[Path, Path]], owner: int) -> None:
    """S5, S6: everything leaves between two steps, everything but the encoder comes back."""
    with bench(files("gemma3"), owner, n_batch=8) as made:
        expected = made.answer(f"hello {MARKER} world", png(), cache_prompt=False)
        made.submit("one", f"hello {MARKER} world", png(), cache_prompt=False)
        outputs = []
        while made.engine.has_work:
            made.engine.step()
            outputs += made.engine.outputs()
            made.engine.memory.release(*MemoryClass)
            made.engine.memory.restore("weights", "kv", "compute")
            assert made.engine.memory.bytes("encoder").device == 0
        assert tokens(outputs, "one") == expected


def test_projectors_that_cannot_be_right_stop_the_load(files: Callable[[str], tuple[Path, Path]], owner: int, tmp_path: Path) -> None:
    """S5: with the reason; nothing is left behind, and the right one loads."""
    model, projector = files("llava")
    wrong = tiny_projectors.write_llava(tmp_path / "wrong.gguf", n_embd_text=256)
    broken = tiny_projectors.without(projector, tmp_path / "broken.gguf", "mm.0.weight")
    for path, message in (
        (model, r"is a model \(llama\); --mmproj wants the projector"),
        (wrong, "n_embd = 256"),
        (broken, "it crashes"),
        (tmp_path / "none.gguf", "no such file"),
    ):
        made = Bench((model, path), owner, True, True)
        with pytest.raises(ModelFileError, match=message):
            made.engine.load(lambda fraction: True)
        assert made.engine.resident_bytes() == 0
    with bench((model, projector), owner) as made:
        assert made.answer("hello")


def test_an_encoder_that_must_stay_and_does_not_fit_stops_the_load(files: Callable[[str], tuple[Path, Path]], owner: int) -> None:
    """S5: the remedy is named."""
    made = Bench(files("llava"), owner, False, False)
    with pytest.raises(DeviceMemoryError, match="--mmproj-ondemand"):
        made.engine.load(lambda fraction: True)
    assert made.engine.resident_bytes() == 0


def test_a_load_takes_turns_too(files: Callable[[str], tuple[Path, Path]], owner: int) -> None:
    """S5: the peak of a load is no larger than that of a window."""
    made = Bench(files("llava"), owner, True, False)
    made.engine.load(lambda fraction: True)
    try:
        assert made.effects() == ["release_weights", "open", "release_encoder", "restore_weights"]
        weights, encoder = made.engine.memory.bytes("weights").device, made.engine.memory.bytes("encoder").released
        peak = made.engine.memory.peak_bytes()
        assert peak <= made.on_device() - weights + max(weights, encoder)
    finally:
        made.engine.close()


def test_media_that_the_model_does_not_take(files: Callable[[str], tuple[Path, Path]], owner: int) -> None:
    """S15: 400 with a hint; an image too large for one computation names the setting."""
    with bench(files("llava"), owner) as made, pytest.raises(InvalidRequest, match="audio input is not supported"):
        made.engine.perception.tokenize(MARKER, [wav()])
    with bench(files("gemma3"), owner, n_ubatch=8) as made, pytest.raises(NotSupported, match="--ubatch-size 16"):
        made.engine.perception.tokenize(MARKER, [png()])
    plain = Engine(EngineConfig(path=files("llava")[0], n_ctx=64, threads=1), owner, Executor)
    plain.load(lambda fraction: True)
    try:
        with pytest.raises(InvalidRequest, match="without --mmproj"):
            plain.perception.tokenize(MARKER, [png()])
    finally:
        plain.close()


def test_an_engine_that_is_closed_with_media_under_way(files: Callable[[str], tuple[Path, Path]], owner: int) -> None:
    """B14: frees everything."""
    made = Bench(files("llava"), owner, True, True)
    made.engine.load(lambda fraction: True)
    made.submit("one", f"{MARKER} {MARKER}", png(), png(seed=2))
    made.engine.step()
    made.engine.fail_all(InvalidRequest("the server stops"))
    assert isinstance(end(made.engine.outputs(), "one"), Failed)
    made.engine.close()
    assert made.engine.resident_bytes() == 0
