"""A real browser, driven over its debugging pipe: file descriptors 3 and 4, JSON messages that end with a NUL byte."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

import trio

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-extensions", "--remote-debugging-pipe",
)  # fmt: skip


def find_browser() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@dataclass
class Page:
    to_browser: trio.lowlevel.FdStream
    from_browser: trio.lowlevel.FdStream
    session: str = ""
    number: int = 0
    unread: bytes = b""

    async def command(self, method: str, **params: Any) -> dict[str, Any]:
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        await self.to_browser.send_all(json.dumps(message).encode() + b"\0")
        while True:
            answer = await self._next()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]  # type: ignore[no-any-return]

    async def evaluate(self, expression: str) -> Any:
        result = await self.command("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    async def until(self, condition: str, limit_s: float = 10.0) -> Any:
        """Wait inside the page, frame by frame, until the expression is true; its value."""
        code = f"new Promise((done) => {{ const look = () => {{ const v = {condition}; v ? done(v) : setTimeout(look, 20); }}; look(); }})"
        with trio.move_on_after(limit_s):
            return await self.evaluate(code)
        raise AssertionError(f"not within {limit_s} s: {condition}")

    async def screenshot(self, path: Path, width: int, height: int, dark: bool = False) -> None:
        await self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.command("Emulation.setEmulatedMedia", features=features)
        data = (await self.command("Page.captureScreenshot", format="png", captureBeyondViewport=False))["data"]
        path.write_bytes(base64.b64decode(data))

    async def _next(self) -> dict[str, Any]:
        while b"\0" not in self.unread:
            data = await self.from_browser.receive_some()
            if not data:
                raise RuntimeError("the browser ended")
            self.unread += data
        message, _, self.unread = self.unread.partition(b"\0")
        return json.loads(message)  # type: ignore[no-any-return]


@asynccontextmanager
async def open_page(url: str, profile: Path) -> AsyncIterator[Page]:
    """A fresh profile each time; the browser is gone on leaving."""
    browser = find_browser()
    assert browser is not None
    command_read, command_write = os.pipe()
    answer_read, answer_write = os.pipe()
    # The shell moves the pipes to where the browser expects them (bash, because dash knows one-digit descriptors only).
    script = f'exec "$0" "$@" 3<&{command_read} 4>&{answer_write}'
    process = await trio.lowlevel.open_process(
        ["bash", "-c", script, browser, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(command_read, answer_write), stdin=PIPE, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    os.close(command_read)
    os.close(answer_write)
    async with trio.lowlevel.FdStream(command_write) as to_browser, trio.lowlevel.FdStream(answer_read) as from_browser:
        try:
            yield await _attached(Page(to_browser, from_browser), url)
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with trio.CancelScope(shield=True):
                        await stream.aclose()


async def _attached(page: Page, url: str) -> Page:
    with trio.fail_after(60):
        target = (await page.command("Target.createTarget", url="about:blank"))["targetId"]
        page.session = (await page.command("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        await page.command("Page.enable")
        await page.command("Page.navigate", url=url)
        await page.until("document.readyState === 'complete'")
    return page
