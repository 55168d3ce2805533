"""Slot files on disk, and a file of ours beside each: NAME is llama-server's format, NAME.lsm has a digest of it and the snapshots.

A file is there as a whole or not at all, whatever happens while it is written.  One that is damaged, cut off or of another model is
refused before anything of it is used; one without ours, as llama-server writes it, is checked as far as its format allows.  Links are
never followed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lsm.engine.checkpoints import STATE_HEADER_BYTES
from lsm.engine.prefix import Tokens
from lsm.engine.prompt import Span
from lsm.engine.prompt_cache import Held, Scales
from lsm.engine.slot_content import SlotContent
from lsm.engine.slot_file import HEADER, WORD_BYTES, Damaged, Media, Saved, count_words, decode_tokens, encode
from lsm.engine.slot_media import for_file
from lsm.errors import ConfigError, InvalidRequest, ServerError
from lsm.runtime.slot_notes import SUFFIX, Mark, Notes, read_notes, write_notes

NAME_BYTES_MAX = 255 - len(SUFFIX)
FORBIDDEN = frozenset('/\\:*?"<>|\ufffd\ufeff\uff0e\u2215\u2216')
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

SCRAP = re.compile(r"\.lsm-[0-9a-f]{16}")  # a file that is being written

Part = bytes | memoryview
Recall = Callable[[Tokens, Media], tuple[Tokens, tuple[Span, ...]]]


def check_name(name: str) -> None:
    """A plain file name on every system.  Raises `InvalidRequest`."""
    is_control = any(ord(letter) < 0x20 or 0x7F <= ord(letter) <= 0x9F or 0xD800 <= ord(letter) <= 0xDFFF for letter in name)
    is_odd = not name or name[0] in ". " or name[-1] in ". " or ".." in name or FORBIDDEN & set(name) or name.endswith(SUFFIX)
    if is_control or is_odd or len(name.encode()) > NAME_BYTES_MAX:
        raise InvalidRequest(f"Invalid filename: it must be a plain name of at most {NAME_BYTES_MAX} bytes that does not end in {SUFFIX}")


def without_projector(tokens: Tokens, media: Media) -> tuple[Tokens, tuple[Span, ...]]:
    """Raises `Damaged`."""
    raise Damaged("Cannot restore media tokens without an mmproj")


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """`is_sound`: a digest vouches for the bytes."""

    content: SlotContent
    size_bytes: int
    is_sound: bool


@contextlib.contextmanager
def open_folder(path: Path) -> Iterator[SlotFolder]:
    """Raises `ConfigError`: it is no folder, or cannot be opened."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"--slot-save-path {path}: {error.strerror}: name a folder that exists") from None
    try:
        _sweep(fd)
        yield SlotFolder(fd)
    finally:
        os.close(fd)


def _sweep(folder: int) -> None:
    """Remove what a killed process was writing.  What a living one writes is locked."""
    for name in filter(SCRAP.fullmatch, os.listdir(folder)):
        with contextlib.suppress(OSError):
            fd = os.open(name, READ, dir_fd=folder)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(name, dir_fd=folder)
            finally:
                os.close(fd)


class SlotFolder:
    """The folder of --slot-save-path.  Its methods wait for the disk."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, name: str, content: SlotContent, mark: Mark) -> int:
        """The bytes of the file.

        Raises:
            InvalidRequest: the name stands for something else than a file.
            ServerError: the disk is full, or cannot be written; what was there before is still there.
        """
        tokens, media = for_file(content.held.tokens, content.held.spans)
        parts = encode(Saved(tokens, content.state, media))
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        notes = Notes(digest.hexdigest(), mark, content.held.adapters, content.checkpoints)
        try:
            self._refuse_other_than_file(name)
            with contextlib.ExitStack() as scraps:
                new, new_notes = self._new_file(parts, scraps), self._new_file(write_notes(notes), scraps)
                self._remove(name + SUFFIX)  # for a moment NAME has no digest, rather than that of another file
                os.rename(new, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
                os.rename(new_notes, name + SUFFIX, src_dir_fd=self._fd, dst_dir_fd=self._fd)
                os.fsync(self._fd)
        except OSError as error:
            raise ServerError(f"Unable to save slot: {error.strerror}") from None
        return sum(len(part) for part in parts)

    def read(self, name: str, mark: Mark, size_max_bytes: int, adapters: Scales, recall: Recall = without_projector) -> Read:
        """What is in the file.

        size_max_bytes: what a state of this model can have at most.  adapters: which acted, where nobody wrote it down.
        recall: makes a prompt of the tokens and media of a file (`Perception.recall`), after the digest was compared, if there is one.

        Raises `InvalidRequest`: there is no such file, or it is damaged, of another model or projector, or no slot file.
        """
        try:
            with self._open(name) as fd:
                saved, size_bytes, digest = _read(fd, size_max_bytes)
            notes = self._notes(name)
            if notes is not None:
                _check(notes, name, digest, mark, saved)
            tokens, spans = recall(saved.tokens, saved.media) if saved.media else (saved.tokens, ())
        except (OSError, Damaged, MemoryError) as error:
            why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error) or "it is larger than the free memory"
            raise InvalidRequest(f"Unable to restore slot: '{name}': {why}") from None
        if notes is None:
            return Read(SlotContent(Held(tokens, spans, adapters), saved.state), size_bytes, is_sound=False)
        return Read(SlotContent(Held(tokens, spans, notes.adapters), saved.state, notes.checkpoints), size_bytes, is_sound=True)

    def _notes(self, name: str) -> Notes | None:
        try:
            with self._open(name + SUFFIX) as fd:
                return read_notes(_bytes(fd, os.fstat(fd).st_size))
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def _open(self, name: str) -> Iterator[int]:
        """Raises `Damaged`: it is no plain file."""
        try:
            fd = os.open(name, READ, dir_fd=self._fd)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise Damaged("it is a symbolic link, which is not followed") from None
            raise
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Damaged("it is not a file")
            yield fd
        finally:
            os.close(fd)

    def _refuse_other_than_file(self, name: str) -> None:
        for path in (name, name + SUFFIX):
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISREG(os.stat(path, dir_fd=self._fd, follow_symlinks=False).st_mode):
                    raise InvalidRequest(f"Invalid filename: '{path}' is there, and is not a file")

    def _new_file(self, parts: Iterable[Part], scraps: contextlib.ExitStack) -> str:
        """The name of a file with these contents, safely on disk; `scraps` removes it unless it gets another name before."""
        name, fd = self._locked_file()
        scraps.callback(os.close, fd)
        scraps.callback(self._remove, name)
        with open(fd, "wb", closefd=False) as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(fd)
        return name

    def _locked_file(self) -> tuple[str, int]:
        """The lock tells those who sweep that somebody writes; one who swept before it was there made the file nameless."""
        while True:
            name = f".lsm-{secrets.token_hex(8)}"
            fd = os.open(name, WRITE, 0o600, dir_fd=self._fd)
            with contextlib.suppress(OSError):  # not every file system has locks; there nobody sweeps either
                fcntl.flock(fd, fcntl.LOCK_EX)
            if os.fstat(fd).st_nlink:
                return name, fd
            os.close(fd)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)


def _check(notes: Notes, name: str, digest: str, mark: Mark, saved: Saved) -> None:
    """Raises `InvalidRequest`."""
    if notes.digest != digest:
        remedy = f"it is damaged; if another program wrote it since, remove '{name}{SUFFIX}'"
        raise InvalidRequest(f"Unable to restore slot: '{name}' is not what was saved: {remedy}")
    if notes.mark.model != mark.model:
        raise InvalidRequest(f"Unable to restore slot: '{name}' was saved by another model, or with other RoPE settings")
    if saved.media and mark.projector not in ("", notes.mark.projector):
        raise InvalidRequest(f"Unable to restore slot: '{name}' has media that were encoded by another projector (--mmproj)")
    if [entry.n_tokens for entry in notes.checkpoints if entry.n_tokens > len(saved.tokens)]:
        raise InvalidRequest(f"Unable to restore slot: '{name}{SUFFIX}' has snapshots of more tokens than '{name}'")


def _read(fd: int, size_max_bytes: int) -> tuple[Saved, int, str]:
    """Content, bytes, digest."""
    size_bytes = os.fstat(fd).st_size
    header = _bytes(fd, min(HEADER.size, size_bytes))
    n_words = count_words(header, size_bytes)
    state_bytes = size_bytes - HEADER.size - n_words * WORD_BYTES
    if state_bytes > size_max_bytes:
        raise Damaged("its state is larger than the model's whole cache")
    words, state = np.empty(n_words, "<i4"), np.empty(STATE_HEADER_BYTES + state_bytes, np.uint8)
    _fill(fd, words.view(np.uint8).data)
    _fill(fd, state[STATE_HEADER_BYTES:].data)
    digest = hashlib.sha256(header)
    digest.update(words.data)
    digest.update(state[STATE_HEADER_BYTES:].data)
    tokens, media = decode_tokens(words)
    return Saved(tokens, state, media), size_bytes, digest.hexdigest()


def _bytes(fd: int, size_bytes: int) -> bytes:
    data = bytearray(size_bytes)
    _fill(fd, memoryview(data))
    return bytes(data)


def _fill(fd: int, buffer: memoryview) -> None:
    while len(buffer):
        n = os.readv(fd, [buffer])
        if not n:
            raise Damaged("it became shorter while it was read")
        buffer = buffer[n:]
