"""Real servers: `lsm-server` processes with real models, seen from outside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

# One thread: the tests share their cores with other tests, and threads that spin for each other would crawl.
COMMON = ("--port", "0", "--threads", "1", "--ctx-size", "4096", "--parallel", "2", "--kv-unified")
PROGRAM = ("-m", "lsm_cli.server")
START_S, REQUEST_S = 120.0, 120.0


class Server:
    """One process.  `with Server(...) as server:` waits until it serves; leaving ends it in order and checks that it went well.

    `wait=False`: only until it listens.  `environ`: added to our own environment.  `program`: what Python runs.
    """

    def __init__(
        self,
        arena: Path,
        model: Path,
        alias: str,
        *flags: str,
        wait: bool = True,
        environ: Mapping[str, str] | None = None,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        command = [sys.executable, *program, "-m", str(model), "-a", alias, "--arena", str(arena), *COMMON, *flags]
        self.alias = alias
        self.lines: list[str] = []
        self._wait = wait
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environ or {})}
        )
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"listening on (http://\S+)", line):
                self.url = found[1]
                self._listening.set()
        self._listening.set()

    def __enter__(self) -> Server:
        assert self._listening.wait(START_S) and hasattr(self, "url"), "".join(self.lines)
        self.client = httpx.Client(base_url=self.url, timeout=REQUEST_S)
        if self._wait:
            self.until(lambda: self.get("/health").status_code == 200)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            code = self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"{self.alias} did not end within 30 s:\n" + "".join(self.lines)) from error
        self._close()
        if kind is None:
            assert code in (0, -signal.SIGKILL), f"{self.alias} ended with {code}:\n" + "".join(self.lines)

    def _close(self) -> None:
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def get(self, path: str) -> httpx.Response:
        return self.client.get(path)

    def post(self, path: str, body: Any) -> httpx.Response:
        return self.client.post(path, json=body)

    def ask(self, content: str, max_tokens: int = 8, **more: Any) -> dict[str, Any]:
        """A whole chat answer at temperature 0; the body of the response, which must be a good one."""
        return self.converse([{"role": "user", "content": content}], max_tokens, **more)

    def converse(self, messages: list[dict[str, str]], max_tokens: int = 8, **more: Any) -> dict[str, Any]:
        response = self.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": max_tokens, **more})
        assert response.status_code == 200, response.text
        return response.json()  # type: ignore[no-any-return]

    def generate_for_long(self, tokens: int = 3000) -> Stream:
        """A streamed generation that will not end by itself soon; open until closed."""
        return Stream(self, {"prompt": "Count: one two three", "max_tokens": tokens, "ignore_eos": True, "temperature": 0, "stream": True})

    def state(self) -> dict[str, Any]:
        return self.get("/lsm/state").json()  # type: ignore[no-any-return]

    def machine(self, name: str) -> str:
        return str(self.state()["models"][0]["machines"][name]["state"])

    def until(self, condition: Callable[[], bool], seconds: float = START_S) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"{self.alias}: {seconds} s were not enough\n" + "".join(self.lines)
            assert self.process.poll() is None, f"{self.alias} ended\n" + "".join(self.lines)
            threading.Event().wait(0.01)

    def until_state(self, machine: str, *states: str) -> None:
        self.until(lambda: self.machine(machine) in states)


class Stream:
    """A streamed completion; `first` has come when it is entered."""

    def __init__(self, server: Server, body: dict[str, Any]) -> None:
        self._open = server.client.stream("POST", "/v1/completions", json=body)

    def __enter__(self) -> Stream:
        self._response = self._open.__enter__()
        assert self._response.status_code == 200, self._response.read()
        self.lines = self._response.iter_lines()
        self.first = next(self.lines)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._open.__exit__(*exception)


def text(answer: dict[str, Any]) -> str:
    return str(answer["choices"][0]["message"]["content"])
