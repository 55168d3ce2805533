"""Images and sound in messages: which strings mean which bytes, and what is refused."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from lsm.chat.media import Download, Inline, LocalFile, MediaParts, new_marker, source_of
from lsm.chat.messages import normalized
from lsm.errors import InvalidRequest

DATA = b"\x89PNG"
ENCODED = base64.b64encode(DATA).decode()


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("http://example.org/a.png", Download("http://example.org/a.png")),
        ("https://example.org/a.png", Download("https://example.org/a.png")),
        ("file://a.png", LocalFile("a.png")),
        ("file://folder/b.png", LocalFile("folder/b.png")),
        ("file://folder/../b.png", LocalFile("b.png")),
        (f"data:image/png;base64,{ENCODED}", Inline(DATA)),
        (f"data:audio/wav;base64,{ENCODED}", Inline(DATA)),
        (f"data:video/mp4;base64,{ENCODED}", Inline(DATA)),
        (ENCODED, Inline(DATA)),
        (f"{ENCODED[:4]}\r\n{ENCODED[4:]}", Inline(DATA)),
    ],
)
def test_an_address_is_a_url_a_file_a_data_url_or_base64(address: str, source: object) -> None:
    """S15: in this order; the family of a data URL is not compared with the part's type."""
    assert source_of(address) == source


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("data:image/png;base64", "Invalid uri-encoded base64 value"),
        (f"data:image/png;base64,{ENCODED},{ENCODED}", "Invalid uri-encoded base64 value"),
        (f"data:text/plain;base64,{ENCODED}", "Invalid uri format"),
        (f"data:image/png,{ENCODED}", "uri must be base64 encoded"),
        ("data:image/png;base64,", "it is empty"),
        ("data:image/png;base64,!!!", "Invalid base64 value"),
        ("", "it is empty"),
        ("no base64!", "Invalid base64 value"),
        (ENCODED + "garbage!", "Invalid base64 value"),
        ("ftp://example.org/a.png", "Invalid base64 value"),
        ("file:///etc/passwd", "stay inside it"),
        ("file://../secret", "stay inside it"),
        ("file://a/../../secret", "stay inside it"),
        ("file://", "stay inside it"),
        ("file://a\0b", "stay inside it"),
    ],
)
def test_what_is_none_of_these_is_the_clients_mistake(address: str, message: str) -> None:
    """S15: 400, also where llama-server says 500 or decodes up to the first wrong character."""
    with pytest.raises(InvalidRequest, match=message) as refused:
        source_of(address, "messages[0].content[1]")
    assert refused.value.field == "messages[0].content[1]"


def parts(*content: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(content)}]


IMAGE = {"type": "image_url", "image_url": {"url": ENCODED}}
SOUND = {"type": "input_audio", "input_audio": {"data": ENCODED, "format": "wav"}}


def test_a_part_becomes_the_marker() -> None:
    """S15: one for each of the media, without newlines around it; texts are still joined by newlines."""
    media = MediaParts("<M>", has_vision=True, has_audio=True)
    text = {"type": "text", "text": "a"}
    by_url = {"type": "input_audio", "input_audio": {"url": "http://example.org/a.wav"}}
    [message] = normalized(parts(text, text, IMAGE, text, SOUND, by_url), media)
    assert message["content"] == "a\na<M>a<M><M>"
    assert media.sources == [Inline(DATA), Inline(DATA), Download("http://example.org/a.wav")]


@pytest.mark.parametrize(
    ("part", "media", "message"),
    [
        (IMAGE, MediaParts(), "not supported by this model.*--mmproj"),
        (SOUND, MediaParts("<M>", has_vision=True), "audio input is not supported"),
        (IMAGE, MediaParts("<M>", has_audio=True), "image input is not supported"),
        ({"type": "input_video", "input_video": {"data": ENCODED}}, MediaParts("<M>", True, True), "video input is not supported"),
        ({"type": "video_url", "video_url": {"url": ENCODED}}, MediaParts("<M>", True, True), "video input is not supported"),
        ({"type": "image_url"}, MediaParts("<M>", True), "image_url"),
        ({"type": "image_url", "image_url": ENCODED}, MediaParts("<M>", True), 'with a text as "url"'),
        ({"type": "image_url", "image_url": {"url": 1}}, MediaParts("<M>", True), 'with a text as "url"'),
        ({"type": "input_audio", "input_audio": {}}, MediaParts("<M>", True, True), 'with a text as "data"'),
        ({"type": "image", "image": ENCODED}, MediaParts("<M>", True, True), "Unsupported content part type"),
    ],
)
def test_parts_that_cannot_be_taken_are_named(part: dict[str, Any], media: MediaParts, message: str) -> None:
    """S15: 400 with the index of message and part."""
    with pytest.raises(InvalidRequest, match=message) as refused:
        normalized(parts({"type": "text", "text": "a"}, part), media)
    assert refused.value.field is not None and refused.value.field.startswith("messages[0].content[1]")


def test_the_marker_cannot_be_guessed() -> None:
    """S15: random, unless the environment says otherwise."""
    assert new_marker({}) != new_marker({}) and len(new_marker({})) == len("<__media_") + 32 + len("__>")
    assert new_marker({"LLAMA_MEDIA_MARKER": "<x>"}) == "<x>"
