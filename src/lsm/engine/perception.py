"""How a model sees and hears: its projector, loaded, and the encoder that comes and goes."""

from __future__ import annotations

from collections.abc import Sequence

from lsm.engine.config import EngineConfig, ProjectorConfig
from lsm.engine.encoder import EncoderWindow, MediaChunk, Room, lay_out
from lsm.engine.gguf_header import read_header
from lsm.engine.media_file import check_file
from lsm.engine.ports import NewInstance
from lsm.engine.prefix import Tokens
from lsm.engine.prompt import Span
from lsm.engine.slot_file import Media
from lsm.engine.slot_media import from_file
from lsm.errors import ModelFileError, NotSupported
from lsm.machines.encoder import ENCODER
from lsm.native.media import Chunk, Projector
from lsm.native.model import Model
from lsm.native.projector_check import measure


class Perception:
    """Of one model; between `open` and `close`, which belong to the engine's thread.  The rest is for any thread."""

    def __init__(self, projector: Projector, encoder: EncoderWindow, n_ubatch: int) -> None:
        self.projector = projector
        self.encoder = encoder
        self._n_ubatch = n_ubatch

    @classmethod
    def open(
        cls, config: EngineConfig, wanted: ProjectorConfig, model: Model, new_instance: NewInstance, room: Room
    ) -> Perception:
        """Load the projector beside the model.

        Raises, leaving nothing behind:
            ModelFileError: the file is missing, damaged, no projector, or one for another model.
            DeviceMemoryError: the device has no room.
        """
        header = read_header(wanted.path)
        if header.architecture != "clip":
            raise ModelFileError(f"{wanted.path}: is a model ({header.architecture}); --mmproj wants the projector that goes with it")
        size_bytes = measure(wanted.path)
        opened: list[Projector] = []

        def open_projector() -> Projector:
            opened.append(_open(config, wanted, model))
            return opened[0]

        encoder = EncoderWindow(new_instance(ENCODER, "encoder"), model.memory, room, wanted.on_demand)
        try:
            encoder.arrive(open_projector, size_bytes)
        except BaseException:
            for projector in opened:
                projector.close()
            encoder.freed()
            raise
        return cls(opened[0], encoder, config.n_ubatch)

    def tokenize(self, text: str, files: Sequence[bytes]) -> tuple[Tokens, tuple[MediaChunk, ...]]:
        """A prompt, shape (n,), int32, with its media; `text` has the marker once for each of the files.

        Raises:
            InvalidRequest: a file is no image or sound, or a damaged one, or of a kind that the model does not take.
            NotSupported: an image is larger than one computation.
        """
        for file in files:
            check_file(file, self.projector.has_vision, self.projector.has_audio)
        parts = self.projector.tokenize(text, [self.projector.bitmap(file) for file in files])
        for part in parts:
            if isinstance(part, Chunk) and part.non_causal and part.n_tokens > self._n_ubatch:
                raise NotSupported(f"an image of {part.n_tokens} tokens is one computation here: it needs --ubatch-size {part.n_tokens}")
        return lay_out(parts)

    def recall(self, tokens: Tokens, media: Media) -> tuple[Tokens, tuple[Span, ...]]:
        """What a slot file has of a prompt, as `tokenize` would give it.  Raises `Damaged`; `Unavailable` while the model is unloaded."""
        return from_file(tokens, media, self.projector.load)

    def close(self) -> None:
        """Also while the memory is released.  Before the model is closed."""
        self.projector.close()
        self.encoder.freed()


def _open(config: EngineConfig, wanted: ProjectorConfig, model: Model) -> Projector:
    return Projector.open(
        wanted.path,
        model,
        marker=wanted.marker,
        threads=config.n_threads_batch,
        image_min_tokens=wanted.image_min_tokens,
        image_max_tokens=wanted.image_max_tokens,
        batch_max_tokens=wanted.batch_max_tokens,
        flash_attn=config.flash_attn,
        device=wanted.device,
        placing=config.placing,
    )
