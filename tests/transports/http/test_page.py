"""The page, in a real browser, over two servers without models."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from lsm_http.routes.page import FILES

from tests.transports.http.browser import Page, find_browser, open_page
from tests.transports.http.served import Served, served

PAGE = Path(__file__).parents[3] / "transports" / "lsm_http" / "page"

in_a_browser = pytest.mark.skipif(find_browser() is None, reason="no chromium here; apt-get install chromium")

BOTH_ARE_THERE = "document.querySelectorAll('.model').length === 2"
ANSWERS = "[...document.querySelectorAll('.talk')].map((talk) => talk.querySelector('p:nth-of-type(2)')?.textContent).join()"


def status(alias: str) -> str:
    """JavaScript for the word on a model's card."""
    return (
        f"[...document.querySelectorAll('.model')].find((m) => m.querySelector('[data-is=alias]').textContent === '{alias}')"
        ".querySelector('[data-is=status]').textContent"
    )


def click(text: str, nth: int = 0) -> str:
    return f"[...document.querySelectorAll('button')].filter((b) => b.textContent === '{text}')[{nth}].click()"


@asynccontextmanager
async def two_servers_in_a_browser(profile: Path) -> AsyncIterator[tuple[Served, Served, Page]]:
    async with served(models=("one.gguf",)) as first, served(models=("two.gguf",)) as second:
        async with open_page(f"{first.url}/?peer={second.url}", profile) as page:
            await page.until(BOTH_ARE_THERE)
            yield first, second, page


def test_the_page_needs_nothing_from_elsewhere() -> None:
    """B.10, D.5 (6): no build step, no external resources; every file that the page names is served."""
    named: set[str] = set()
    for name, _ in FILES.values():
        text = (PAGE / name).read_text(encoding="utf-8")
        assert not re.search(r"""(?:src|href)=["'](?:https?:)?//|@import|url\((?!data:)""", text), name
        named |= set(re.findall(r"""(?:src="|href="|from "\./)([\w.]+\.(?:js|css))""", text))
    assert named == {path[1:] for path in FILES if path.endswith((".js", ".css"))}
    assert {path.name for path in PAGE.iterdir()} == {name for name, _ in FILES.values()}


@pytest.mark.parametrize("flags", [(), ("--metrics",)])
async def test_every_link_of_the_page_answers(flags: tuple[str, ...]) -> None:
    """D.5: a link to a route that this server does not have is not shown."""
    async with served(*flags) as server, server.client() as client:
        links = re.findall(r'<a href="([^"]+)"', (await client.get("/")).text)
        assert {"lsm/state", "v1/models"} <= set(links) and ("metrics" in links) == ("--metrics" in flags)
        for link in links:
            assert (await client.get(f"/{link}")).status_code == 200, link


@in_a_browser
@pytest.mark.slow
async def test_two_servers_are_shown_and_asked(tmp_path: Path) -> None:
    """The page: who is in device memory, and a box to send each model a prompt with streamed answer and timings."""
    async with two_servers_in_a_browser(tmp_path) as (_, _, page):
        assert await page.evaluate(status("one")) == "in device memory"
        assert "has the device" in await page.evaluate("document.getElementById('holder').textContent")
        assert await page.evaluate("document.querySelectorAll('#bar div').length") == 2
        await page.evaluate("document.getElementById('prompt').value = 'sea lion'")
        await page.evaluate(click("Ask both"))
        assert await page.until(f"document.querySelectorAll('.talk .busy').length === 0 && {ANSWERS}") == "sea lion,sea lion"
        facts = await page.evaluate("document.querySelector('.talk .facts').textContent")
        assert re.fullmatch(r"first text after .*s · prompt: 0 tokens from the cache, \d+ computed · answer: 8 tokens at .*", facts)
        await page.screenshot(tmp_path / "page.png", 1200, 1000)
        assert (tmp_path / "page.png").stat().st_size > 20_000  # an empty page has about 5 kB


@in_a_browser
@pytest.mark.slow
async def test_changes_are_seen_and_made(tmp_path: Path) -> None:
    """The page: live, and states can be changed."""
    async with two_servers_in_a_browser(tmp_path) as (first, _, page):
        await page.evaluate(click("Sleep", 0))
        await page.until(f"{status('one')} === 'asleep'")
        assert first.host.models()[0].sleep_state == "asleep"
        await first.host.wake("one")
        await page.until(f"{status('one')} === 'in device memory'")


@in_a_browser
@pytest.mark.slow
async def test_a_server_that_goes_and_comes_back(tmp_path: Path) -> None:
    """The page: a clear "server gone" state, and the page finds the server again."""
    async with served(models=("one.gguf",)) as first:
        async with served(models=("two.gguf",)) as second:
            page_cm = open_page(f"{first.url}/?peer={second.url}", tmp_path)
            page = await page_cm.__aenter__()
            await page.until(BOTH_ARE_THERE)
        try:
            await page.until(f"{status('two')} === 'server gone'")
            assert "is gone" in await page.evaluate("document.querySelector('#servers .gone').textContent")
            assert await page.evaluate(status("one")) == "in device memory"
            async with served("--port", str(second.port), models=("two.gguf",)):
                await page.until(f"{status('two')} === 'in device memory'")
        finally:
            await page_cm.__aexit__(None, None, None)


@in_a_browser
@pytest.mark.slow
async def test_a_key_is_asked_for(tmp_path: Path) -> None:
    """B.0: the page is public, the state is not."""
    async with served("--api-key", "secret") as server, open_page(f"{server.url}/", tmp_path) as page:
        await page.until("!document.getElementById('key').hidden")
        await page.evaluate("document.getElementById('key-value').value = 'secret'")
        await page.evaluate("document.getElementById('key').requestSubmit()")
        await page.until("document.querySelectorAll('.model').length === 1 && document.getElementById('key').hidden")


@in_a_browser
@pytest.mark.slow
async def test_it_fits_a_phone_and_names_its_controls(tmp_path: Path) -> None:
    """The page: narrow screens, accessible."""
    async with two_servers_in_a_browser(tmp_path) as (_, _, page):
        await page.screenshot(tmp_path / "phone.png", 360, 700, dark=True)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        controls = "[...document.querySelectorAll('button, input, textarea')]"
        assert await page.evaluate(f"{controls}.every((c) => c.textContent || c.labels?.length)")
        assert await page.evaluate("document.querySelectorAll('h1').length") == 1
        assert await page.evaluate("[...document.querySelectorAll('[role=img]')].every((i) => i.getAttribute('aria-label'))")


async def test_peers_of_the_settings_are_in_the_address() -> None:
    """`/` alone shows every server that --page-peers names."""
    async with served("--page-peers", "http://127.0.0.1:8081,http://127.0.0.1:8082") as server, server.client() as client:
        response = await client.get("/")
        assert response.headers["location"] == "?peer=http%3A%2F%2F127.0.0.1%3A8081&peer=http%3A%2F%2F127.0.0.1%3A8082"
        assert (await client.get("/?peer=http%3A%2F%2F127.0.0.1%3A8081")).status_code == 200
