"""Images and sound through real projectors: what they become, and what broken files do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import gguf
import numpy as np
import pytest

from lsm.errors import ConfigError, InvalidRequest, ModelFileError, ServerError, SourceChanged, Unavailable
from lsm.native.context import Context
from lsm.native.library import lib
from lsm.native.media import Chunk, Projector, decode_embeddings
from lsm.native.memory import MemoryClass
from lsm.native.model import Model
from lsm.native.projector_check import measure
from tests import tiny_projectors
from tests.media_files import bmp, png, wav
from tests.tiny_projectors import PAIRS, write_pair

MARKER = "<__media__>"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """The paths of a model and its projector, by the pair's name."""
    return partial(write_pair, tmp_path_factory.mktemp("pairs"))


@pytest.fixture(params=list(PAIRS))
def pair(request: pytest.FixtureRequest, files: Callable[[str], tuple[Path, Path]], owner: int) -> Iterator[tuple[Model, Projector]]:
    model_path, projector_path = files(request.param)
    with Model.load(model_path, owner) as model:
        projector = open_projector(projector_path, model)
        yield model, projector
        projector.close()


@pytest.fixture
def llava(files: Callable[[str], tuple[Path, Path]], owner: int) -> Iterator[tuple[Model, Projector]]:
    model_path, projector_path = files("llava")
    with Model.load(model_path, owner) as model:
        projector = open_projector(projector_path, model)
        yield model, projector
        projector.close()


def open_projector(path: Path, model: Model, **options: object) -> Projector:
    return Projector.open(path, model, marker=MARKER, threads=1, **options)  # type: ignore[arg-type]


def media(projector: Projector, seed: int = 1) -> bytes:
    return png(seed=seed) if projector.has_vision else wav(hertz=100.0 * seed)


def chunks(projector: Projector, *files: bytes) -> list[Chunk]:
    parts = projector.tokenize("one " + MARKER * len(files) + " two", [projector.bitmap(file) for file in files])
    return [part for part in parts if isinstance(part, Chunk)]


def test_a_prompt_becomes_tokens_and_chunks(pair: tuple[Model, Projector]) -> None:
    """S5: text around the media as the vocabulary has it, BOS in front; the chunk knows how much it takes."""
    model, projector = pair
    parts = projector.tokenize(f"hello {MARKER} world", [projector.bitmap(media(projector))])
    before, chunk, after = parts
    assert isinstance(chunk, Chunk) and not isinstance(before, Chunk) and not isinstance(after, Chunk)
    text = model.vocab.tokenize("hello ", True, True)
    assert before[: len(text)].tolist() == text.tolist()
    assert chunk.n_tokens > 0 and 0 < chunk.n_pos <= chunk.n_tokens
    assert len(chunk.positions(5)) == chunk.n_tokens * (4 if chunk.mrope else 1)
    assert chunk.positions(5).min() >= (0 if chunk.mrope else 5)


def test_the_id_follows_from_the_content(pair: tuple[Model, Projector]) -> None:
    """S31, D.2: prompts are compared by it."""
    _, projector = pair
    one, again, other = (chunks(projector, media(projector, seed))[0].id for seed in (1, 1, 2))
    assert one == again != other


def test_embeddings_are_the_same_after_the_encoder_has_been_away(pair: tuple[Model, Projector]) -> None:
    """S5: to the bit, from the file alone; and while it is away nothing can be encoded."""
    model, projector = pair
    first, second = chunks(projector, media(projector))[0], chunks(projector, media(projector, 2))[0]
    [expected], [other] = projector.encode(first), projector.encode(second)
    assert expected is not None and expected.shape == (first.n_tokens, model.n_embd) and np.isfinite(expected).all()
    assert other is not None and not np.array_equal(expected, other)
    for _ in range(2):
        model.memory.release(MemoryClass.ENCODER)
        assert model.memory.bytes(MemoryClass.ENCODER).device == 0 < model.memory.bytes(MemoryClass.ENCODER).released
        with pytest.raises(ServerError, match="released"):
            projector.encode(first)
        assert chunks(projector, media(projector))[0].id == first.id, "tokenizing needs no encoder"
        model.memory.restore(MemoryClass.ENCODER)
        [again] = projector.encode(first)
        assert again is not None and np.array_equal(again, expected)


def test_embeddings_go_into_the_cache(pair: tuple[Model, Projector]) -> None:
    """D.2: at their positions; what comes after depends on them."""
    model, projector = pair
    sizes = {"n_ctx": 512, "n_seq_max": 2, "n_batch": 256, "n_ubatch": 256}
    with Context(model, model.owner, kv_unified=True, threads=1, threads_batch=1, **sizes) as context:
        logits = []
        for sequence, seed in enumerate((1, 2)):
            chunk = chunks(projector, media(projector, seed))[0]
            [embeddings] = projector.encode(chunk)
            assert embeddings is not None
            assert decode_embeddings(context, embeddings, chunk.positions(0), sequence, causal=not chunk.non_causal) == (0, -1)
            assert context.seq_pos_max(sequence) == (0 if chunk.mrope else chunk.n_tokens - 1), "an image is one moment"
            step = context.step(
                np.array([5], np.int32), np.array([chunk.n_pos], np.int32), np.array([sequence], np.int32), np.ones(1, np.int8),
                np.zeros(1, np.int32), logits=True,
            )  # fmt: skip
            assert step.code == 0 and step.logits is not None
            logits.append(step.logits[0])
        assert np.isfinite(logits).all() and not np.allclose(logits[0], logits[1])


def test_wrong_embeddings_are_refused(llava: tuple[Model, Projector]) -> None:
    """B.0: where llama.cpp would read beyond the end, or end the process."""
    model, _ = llava
    with Context(model, model.owner, n_ctx=64, n_seq_max=1, kv_unified=True, threads=1, threads_batch=1, n_batch=32, n_ubatch=8) as context:
        places = np.arange(16, dtype=np.int32)
        good = np.zeros((16, model.n_embd), np.float32)
        for embeddings, positions, sequence, causal, message in (
            (np.zeros((16, 5), np.float32), places, 0, True, "128 numbers"),
            (good, np.arange(64, dtype=np.int32), 0, True, "1 positions"),
            (good, places[:15], 0, True, "as many"),
            (good.astype(np.float64), places, 0, True, "float32"),
            (good, places, 1, True, "sequence 1"),
            (good, places, 0, False, "--ubatch-size 16"),
            (np.zeros((40, model.n_embd), np.float32), np.arange(40, dtype=np.int32), 0, True, "1 to 32 tokens"),
        ):
            with pytest.raises(InvalidRequest, match=message):
                decode_embeddings(context, embeddings, positions, sequence, causal=causal)  # type: ignore[arg-type]
        model.memory.release(MemoryClass.KV)
        with pytest.raises(ServerError, match="released"):
            decode_embeddings(context, good, places, 0)


@pytest.mark.parametrize("data", [b"", b"\0" * 100, png()[:60], png()[:33], b"\x89PNG\r\n\x1a\n", b"GIF89a" + b"\xff" * 30, wav(), b"RIFF"])
def test_files_that_are_no_images_are_refused(llava: tuple[Model, Projector], data: bytes) -> None:
    """S15: cut off, empty, of another kind; the next one is read."""
    _, projector = llava
    with pytest.raises(InvalidRequest):
        projector.bitmap(data)
    assert not projector.bitmap(bmp()).is_audio


@pytest.mark.parametrize(("text", "n"), [(f"{MARKER} {MARKER}", 1), ("none", 1), (MARKER, 0)])
def test_markers_and_media_must_agree(llava: tuple[Model, Projector], text: str, n: int) -> None:
    _, projector = llava
    with pytest.raises(InvalidRequest, match="media markers"):
        projector.tokenize(text, [projector.bitmap(png())] * n)


def test_a_closed_projector_says_so(llava: tuple[Model, Projector]) -> None:
    """B14: an unload while others still tokenize."""
    model, projector = llava
    bitmap = projector.bitmap(png())
    model.memory.release(MemoryClass.ENCODER)
    projector.close()
    projector.close()
    for use in (lambda: projector.bitmap(png()), lambda: projector.tokenize(MARKER, [bitmap])):
        with pytest.raises(Unavailable):
            use()


def test_a_projector_of_another_model_is_refused(files: Callable[[str], tuple[Path, Path]], owner: int, tmp_path: Path) -> None:
    """S5: with both sizes; nothing of it stays in device memory."""
    wrong = tiny_projectors.write_llava(tmp_path / "wrong.gguf", n_embd_text=256)
    with Model.load(files("llava")[0], owner) as model:
        with pytest.raises(ModelFileError, match=r"n_embd = 128.*n_embd = 256"):
            open_projector(wrong, model)
        assert not any(model.memory.bytes(MemoryClass.ENCODER))
        open_projector(files("llava")[1], model).close()


def test_devices_are_checked(files: Callable[[str], tuple[Path, Path]], owner: int) -> None:
    """S24: an unknown name is an error, none is the CPU."""
    model_path, projector_path = files("llava")
    with Model.load(model_path, owner) as model:
        with pytest.raises(ConfigError, match="--mmproj-device toaster: there is no such device here"):
            open_projector(projector_path, model, device="toaster")
        open_projector(projector_path, model, device="none").close()
        open_projector(projector_path, model, device="CPU").close()


def test_a_replaced_file_is_noticed_before_it_is_read(files: Callable[[str], tuple[Path, Path]], owner: int, tmp_path: Path) -> None:
    """S24: the file is the copy, so it must be the same one."""
    path = tmp_path / "mmproj.gguf"
    path.write_bytes(files("llava")[1].read_bytes())
    with Model.load(files("llava")[0], owner) as model:
        projector = open_projector(path, model)
        model.memory.release(MemoryClass.ENCODER)
        path.unlink()
        path.write_bytes(files("llava")[1].read_bytes())
        with pytest.raises(SourceChanged):
            model.memory.restore(MemoryClass.ENCODER)
        projector.close()


def test_the_measure_is_what_it_takes(pair: tuple[Model, Projector]) -> None:
    """S5: so that whether it fits is known before a byte is taken."""
    model, projector = pair
    assert measure(projector.path) == model.memory.bytes(MemoryClass.ENCODER).device


@pytest.mark.parametrize("missing", ["mm.0.weight", "v.position_embd.weight", "v.blk.0.attn_out.weight", "v.patch_embd.weight"])
def test_a_file_on_which_llama_cpp_ends_itself_is_an_error(
    files: Callable[[str], tuple[Path, Path]], tmp_path: Path, missing: str
) -> None:
    """S5: asked of a process of its own."""
    with pytest.raises(ModelFileError, match=r"cannot use this file as a projector"):
        measure(tiny_projectors.without(files("llava")[1], tmp_path / "broken.gguf", missing))


def test_metadata_of_the_wrong_type_is_an_error(tmp_path: Path) -> None:
    """S5: GGUF's readers assert the type."""
    path = tmp_path / "odd.gguf"
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "mlp")
    writer.add_string("clip.vision.embedding_length", "many")
    writer.add_tensor("a", np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelFileError, match="GGML_ASSERT"):
        measure(path)


def test_a_saved_chunk_stands_for_the_first_one(pair: tuple[Model, Projector]) -> None:
    """S31: everything but the content: id, size, positions; written again it is the same, and nobody can encode it."""
    _, projector = pair
    chunk = chunks(projector, media(projector))[0]
    loaded = projector.load(chunk.save())
    assert loaded._replace(handle=None, prompt=None) == chunk._replace(handle=None, prompt=None)
    assert loaded.positions(7).tolist() == chunk.positions(7).tolist()
    assert loaded.save() == chunk.save()
    assert chunk.is_moment == (chunk.n_pos < chunk.n_tokens)
    with pytest.raises(ServerError):
        projector.encode(loaded)


def test_bytes_that_no_chunk_was_saved_as_are_refused(llava: tuple[Model, Projector]) -> None:
    """S31: every cut, what comes behind the end, text, and numbers of all sizes anywhere: an error or a chunk, never the end."""
    _, projector = llava
    data = chunks(projector, png())[0].save()
    text = lib.mtmd_input_chunks_get(lib.mtmd_test_create_input_chunks(), 0)
    saved_text = Chunk(text, None, False, "", 0, 0, False, False).save()
    for bad in (*(data[:n] for n in range(len(data))), data + b"\0", saved_text):
        with pytest.raises(InvalidRequest, match="media"):
            projector.load(bad)
    for at in range(len(data) - 7):
        for number in (0, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 2**64 - at):
            size = 4 if number < 2**32 else 8
            try:
                projector.load(data[:at] + (number % 2**64).to_bytes(size, "little") + data[at + size :])
            except InvalidRequest:
                pass


def test_a_chunk_of_the_other_sense_is_refused(files: Callable[[str], tuple[Path, Path]], owner: int) -> None:
    """S31: sound for a projector that only sees, and the other way round."""
    with Model.load(files("llava")[0], owner) as model:
        eyes, ears = (open_projector(files(name)[1], model) for name in ("llava", "ultravox"))
        try:
            for one, other, what in ((eyes, ears, "an image"), (ears, eyes, "sound")):
                with pytest.raises(InvalidRequest, match=f"it holds {what}, which the projector has no encoder for"):
                    other.load(chunks(one, media(one))[0].save())
        finally:
            eyes.close()
            ears.close()
