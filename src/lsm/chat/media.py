"""Images and sound in messages: which parts they are, and where their bytes come from (S15).

What must be read or fetched is only named here.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lsm.errors import InvalidRequest

KINDS = {"image_url": "image", "input_audio": "audio"}  # type of a part -> what it is
VIDEOS = ("input_video", "video_url")
FAMILIES = ("data:image/", "data:video/", "data:audio/")
HINT = "hint: start the server with the --mmproj that goes with the model"


@dataclass(frozen=True, slots=True)
class Inline:
    data: bytes


@dataclass(frozen=True, slots=True)
class Download:
    url: str


@dataclass(frozen=True, slots=True)
class LocalFile:
    """`name` is relative to the folder of --media-path, and does not leave it by its words; links are the reader's concern."""

    name: str


def new_marker(environ: Mapping[str, str]) -> str:
    """The text that stands for media in prompts: LLAMA_MEDIA_MARKER, else one that nobody can write by chance or guess."""
    return environ.get("LLAMA_MEDIA_MARKER") or f"<__media_{secrets.token_hex(16)}__>"


Source = Inline | Download | LocalFile


@dataclass(slots=True)
class MediaParts:
    """What a model takes, and the media that were found in a conversation, in order.  `marker` stands for each of them in the text."""

    marker: str = ""
    has_vision: bool = False
    has_audio: bool = False
    sources: list[Source] = field(default_factory=list)

    def take(self, part: Mapping[str, Any], where: str) -> str:
        """The text in place of a part that is an image or a sound.  Raises `InvalidRequest` that names the part."""
        kind = KINDS.get(part["type"], "video")
        if not self.marker:
            raise InvalidRequest(f"a part of type '{part['type']}' is not supported by this model; send text ({HINT})", where)
        if kind == "video":
            raise InvalidRequest("video input is not supported: send single frames as images", where)
        if not (self.has_vision if kind == "image" else self.has_audio):
            raise InvalidRequest(f"{kind} input is not supported by this model - {HINT}, one that has the encoder for it", where)
        self.sources.append(source_of(_address(part, where), where))
        return self.marker


def is_media(kind: str) -> bool:
    return kind in KINDS or kind in VIDEOS


def _address(part: Mapping[str, Any], where: str) -> str:
    """The string that says where the bytes are: `image_url.url`, or for sound `input_audio.data` or `.url`."""
    name = part["type"]
    inner = part.get(name)
    members = ("url",) if name == "image_url" else ("data", "url")
    if isinstance(inner, Mapping):
        for member in members:
            if isinstance(inner.get(member), str):
                return str(inner[member])
    raise InvalidRequest(f'must be an object with a text as "{members[0]}"', f"{where}.{name}")


def source_of(address: str, where: str = "") -> Source:
    """A URL to fetch, a file, a data URL, or base64.  Raises `InvalidRequest`."""
    if address.startswith(("http://", "https://")):
        return Download(address)
    if address.startswith("file://"):
        return LocalFile(_inside(address.removeprefix("file://"), where))
    if address.startswith("data:"):
        return Inline(_data_url(address, where))
    return Inline(decoded(address, where))


def _inside(name: str, where: str) -> str:
    clean = posixpath.normpath(name)
    if not name or "\0" in name or "\\" in name or posixpath.isabs(name) or clean == "." or clean.split("/")[0] == "..":
        raise InvalidRequest("a file:// name must be relative to the folder of --media-path, and stay inside it", where)
    return clean


def _data_url(url: str, where: str) -> bytes:
    parts = url.split(",")
    if len(parts) != 2:
        raise InvalidRequest("Invalid uri-encoded base64 value", where)
    if not parts[0].startswith(FAMILIES):
        raise InvalidRequest(f"Invalid uri format: it must begin with {', '.join(FAMILIES)}", where)
    if not parts[0].endswith("base64"):
        raise InvalidRequest("uri must be base64 encoded", where)
    return decoded(parts[1], where)


def decoded(text: str, where: str) -> bytes:
    """Base64, strictly; line breaks between its characters are allowed, as MIME writes them."""
    try:
        data = base64.b64decode(text.translate({10: None, 13: None}), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest("Invalid base64 value", where) from None
    if not data:
        raise InvalidRequest("Invalid base64 value: it is empty", where)
    return data
