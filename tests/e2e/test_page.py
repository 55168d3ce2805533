"""The page of a real server, in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.transports.http.browser import find_browser, open_page

from .servers import Server, text

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_browser() is None, reason="no chromium here; apt-get install chromium")]

SAYS = "document.querySelector('.model [data-is={}]').textContent"
ASK = "[...document.querySelectorAll('#targets button')][0].click()"
ANSWER = "document.querySelector('.talk p:nth-of-type(2)').textContent"


@pytest.fixture
def server(tmp_path: Path, real_model: Callable[[str], Path]) -> Iterator[Server]:
    with Server(tmp_path / "arena", real_model("smollm2"), "smollm2", "--temp", "0") as server:
        yield server


async def test_the_page_shows_the_model_wakes_it_and_asks_it(server: Server, tmp_path: Path) -> None:
    """B.10, D.5: the model, its states as they are, and the answer that the model gives everybody.

    The KV cache leaves too: a card calls whoever has anything left in device memory "in device memory".
    """
    expected = text(server.ask("Say hello.", max_tokens=12))
    async with open_page(server.url, tmp_path / "profile") as page:
        await page.until(f"document.querySelector('.model') && {SAYS.format('status')} === 'in device memory'")
        assert await page.evaluate(SAYS.format("alias")) == "smollm2"
        machines = await page.evaluate(SAYS.format("machines"))
        for name, machine in server.state()["models"][0]["machines"].items():
            assert f"{name} {machine['state'].replace('_', ' ')}" in machines
        server.post("/lsm/sleep", {"model": "smollm2"})
        await page.until(f"{SAYS.format('status')} === 'asleep'")
        await page.evaluate("document.getElementById('prompt').value = 'Say hello.'")
        await page.evaluate("document.getElementById('length').value = 12")
        await page.evaluate(ASK)
        await page.until("document.querySelector('.talk p') && !document.querySelector('.talk .busy')", limit_s=60)
        assert await page.evaluate(ANSWER) == expected
        assert await page.evaluate(SAYS.format("status")) == "in device memory"
