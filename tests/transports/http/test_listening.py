from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest
import trio
from lsm_http import serve
from lsm_http.listening import listen, url_of

from lsm.errors import ConfigError
from tests.transports.http.served import served, settings_of
from tests.transports.scripted_host import open_scripted_host


def test_a_port_in_use_is_one_clear_sentence() -> None:
    """Bad input: port in use."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"^cannot listen on 127.0.0.1 port {port}: Address already in use; choose another"):
            listen("127.0.0.1", port, 60)


async def test_a_port_in_use_is_known_before_anything_is_loaded() -> None:
    """HTTP listens before the models are loaded."""

    def no_host(settings: object) -> object:
        raise AssertionError("nothing may be opened")

    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError):
        await serve(settings_of("--port", str(taken.getsockname()[1])), open_host=no_host)  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["256.1.1.1", "no.such.host.invalid", ",", "a" * 300])
def test_a_host_that_does_not_exist_is_named(host: str) -> None:
    """Bad input: --host."""
    with pytest.raises(ConfigError, match="--host"):
        listen(host, 0, 60)


def test_sockets_cut_off_clients_that_take_nothing() -> None:
    """Design 8 (4): TCP_USER_TIMEOUT, inherited by accepted connections."""
    (sock,) = listen("127.0.0.1", 0, 7)
    with sock, socket.create_connection(sock.getsockname()), sock.accept()[0] as accepted:
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 7000
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


def test_a_port_can_be_taken_again_at_once() -> None:
    """SO_REUSEADDR: a restart does not wait for old connections to time out."""
    (sock,) = listen("127.0.0.1", 0, 60)
    port = sock.getsockname()[1]
    with sock, socket.create_connection(sock.getsockname()) as client:
        sock.accept()[0].close()
        assert client.recv(1) == b""
    (again,) = listen("127.0.0.1", port, 60)
    again.close()


def test_port_0_is_one_port_for_all_hosts() -> None:
    """B.0: port 0 = any free port, all hosts reuse it."""
    sockets = listen("127.0.0.1, 127.0.0.2", 0, 60)
    ports = {sock.getsockname()[1] for sock in sockets}
    for sock in sockets:
        sock.close()
    assert len(sockets) == 2 and len(ports) == 1


@pytest.mark.parametrize(("host", "url"), [("127.0.0.1", "http://127.0.0.1:"), ("0.0.0.0", "http://127.0.0.1:"), ("::1", "http://[::1]:")])
def test_the_url_is_one_that_can_be_called(host: str, url: str) -> None:
    """The bound URL is reported; a wildcard is nothing to connect to."""
    (sock,) = listen(host, 0, 60)
    with sock:
        assert url_of(sock) == f"{url}{sock.getsockname()[1]}"


async def test_unix_socket(tmp_path: Path) -> None:
    """B.0: `*.sock` = Unix socket; one that a dead server left behind is replaced, one in use is not."""
    path = tmp_path / "lsm.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with served("--host", str(path)) as server:
        assert server.url == f"unix:{path}"
        async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=str(path))) as client:
            assert (await client.get("http://here/health")).status_code == 200
        with pytest.raises(ConfigError, match="Address already in use"):
            listen(str(path), 0, 60)


async def test_the_server_ends_when_it_is_cancelled() -> None:
    """Shutdown: idle connections are no reason to wait."""
    with trio.fail_after(2):
        async with served() as server:
            idle = await server.connect()
    assert await idle.receive_some() == b""
    await idle.aclose()


async def test_the_url_is_told_to_whoever_started_it() -> None:
    """task_status gets the URL."""
    async with trio.open_nursery() as nursery:

        async def run(task_status: trio.TaskStatus[str]) -> None:
            await serve(settings_of(), open_host=open_scripted_host, task_status=task_status)

        assert (await nursery.start(run)).startswith("http://127.0.0.1:")
        nursery.cancel_scope.cancel()
