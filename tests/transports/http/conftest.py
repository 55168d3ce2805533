from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.transports.http.served import Served, served


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    async with served("--metrics") as running:
        yield running


@pytest.fixture
async def client(server: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with server.client() as client:
        yield client
