"""Where images and sound come from: files below a folder, and the web, within limits."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from lsm.chat.media import Download, Inline, LocalFile
from lsm.errors import InvalidRequest, ServerError
from lsm.runtime.media_source import MAX_BYTES, download, fetch_all, first_private, read_file


@asynccontextmanager
async def server(answers: dict[str, bytes], hang: bool = False) -> AsyncIterator[str]:
    """Answers each path with these bytes, or never."""

    async def serve(stream: trio.SocketStream) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            request += await stream.receive_some(4096)
        if hang:
            await trio.sleep_forever()
        path = request.split()[1].decode()
        try:
            await stream.send_all(answers[path])
        except trio.BrokenResourceError:
            pass
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


def http(body: bytes, status: str = "200 OK", head: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\n{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


async def test_what_is_named_is_fetched_in_order(tmp_path: Path) -> None:
    """S15: inline, from a file, from the web."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.png").write_bytes(b"file")
    async with server({"/x.png": http(b"web")}) as base:
        sources = (Inline(b"inline"), LocalFile("a/b.png"), Download(f"{base}/x.png"))
        assert await fetch_all(sources, tmp_path, private_urls=True) == (b"inline", b"file", b"web")


async def test_redirects_are_followed_for_a_while() -> None:
    """S15: relative ones too."""
    answers = {
        "/one": http(b"", "302 Found", "Location: /two\r\n"),
        "/two": http(b"there"),
        "/circle": http(b"", "302 Found", "Location: /circle\r\n"),
        "/away": http(b"", "302 Found", "Location: file:///etc/passwd\r\n"),
    }
    async with server(answers) as base:
        assert await download(f"{base}/one", private_urls=True) == b"there"
        with pytest.raises(ServerError, match="redirects"):
            await download(f"{base}/circle", private_urls=True)
        with pytest.raises(InvalidRequest, match="not http"):
            await download(f"{base}/away", private_urls=True)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (http(b"", "404 Not Found"), "Failed to download image: the answer was 404"),
        (http(b"", "500 Oops"), "the answer was 500"),
        (http(bytes(MAX_BYTES + 1)), "larger than 10 MiB"),
        (b"not http at all\r\n\r\n", "Failed to download image"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "Failed to download image"),
        (b"", "Failed to download image"),
    ],
)
async def test_a_download_that_fails_says_why(answer: bytes, message: str) -> None:
    """S15: 500, one text for all media."""
    async with server({"/x": answer}) as base:
        with pytest.raises(ServerError, match=message):
            await download(f"{base}/x", private_urls=True)


async def test_a_slow_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """S15: after ten seconds; here after less."""
    monkeypatch.setattr("lsm.runtime.media_source.TIMEOUT_S", 0.1)
    async with server({}, hang=True) as base:
        with pytest.raises(ServerError, match="took longer"):
            await download(f"{base}/x", private_urls=True)


async def test_nobody_is_there() -> None:
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    with pytest.raises(ServerError, match="Failed to download image"):
        await download(f"http://127.0.0.1:{port}/", private_urls=True)


async def test_private_addresses_are_refused_before_anything_is_sent() -> None:
    """S15: a URL must not lead where only the server can go; nor a redirect, which comes here again."""
    async with server({"/x": http(b"secret")}) as base:
        with pytest.raises(InvalidRequest, match="no public address"):
            await download(f"{base}/x", private_urls=False)
    with pytest.raises(InvalidRequest, match="no public address"):
        await download("http://localhost/", private_urls=False)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "::1", "fe80::1%eth0", "fd00::1", "224.0.0.1", "100.64.0.1",
     "::ffff:127.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::"],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    """S15: private, local, shared, multicast; and what stands for one of these."""
    assert first_private(["93.184.216.34", address]) == address


def test_addresses_that_are_public() -> None:
    assert first_private(["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"]) == ""


def test_files_are_read_below_their_folder_alone(tmp_path: Path) -> None:
    """S15: missing ones, folders, links that lead out, and FIFOs are a 400."""
    folder, outside = tmp_path / "media", tmp_path / "secret"
    folder.mkdir()
    outside.write_bytes(b"secret")
    (folder / "good.png").write_bytes(b"good")
    (folder / "inside").symlink_to(folder / "good.png")
    (folder / "out").symlink_to(outside)
    os.mkfifo(folder / "fifo")
    assert read_file("good.png", folder) == read_file("inside", folder) == b"good"
    for name in ("none.png", "out", "fifo", ".", "good.png/x"):
        with pytest.raises(InvalidRequest, match="there is no file"):
            read_file(name, folder)
    with pytest.raises(InvalidRequest, match="--media-path"):
        read_file("good.png", None)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with open(tmp_path / "large", "wb") as file:
        file.truncate(64 * 2**20 + 1)
    with pytest.raises(InvalidRequest, match="larger than 64 MiB"):
        read_file("large", tmp_path)
