"""Real requests over loopback, and the errors of failed ones."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import traceback
from typing import Any

import httpx
import pytest

from agentlab.errors import ConfigurationError, ProviderConnectionError
from agentlab.transport import current
from agentlab.transport.http import HttpRequest
from agentlab.transport.live import LiveTransport

from .conftest import KEY, ask, asked
from .server import EVENTS, Server


def test_json_responses(base: str, provider: Server) -> None:
    answer = asked(current(), f"{base}/chat", {"q": "é"}, auth={"Authorization": f"Bearer {KEY}"})
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"count": 1, "sent": '{"q": "\\u00e9"}'}
    path, headers, _ = provider.seen[0]
    assert path == "/v1/chat"
    assert headers["authorization" if "authorization" in headers else "Authorization"] == f"Bearer {KEY}"


def test_other_methods_and_statuses(base: str) -> None:
    assert asked(current(), f"{base}/models", method="GET").json() == {"path": "/v1/models"}
    busy = asked(current(), f"{base}/busy", {})
    assert (busy.status, busy.headers["retry-after"], busy.json()) == (429, "2", {"error": "busy"})


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("route", ["sse", "gzip-sse"])
def test_streamed_responses(base: str, route: str, whole: bool) -> None:
    answer = asked(current(), f"{base}/{route}", {}, whole=whole)
    assert answer.body == b"".join(EVENTS)
    if route == "sse" and not whole:
        assert answer.chunks == EVENTS


def test_gzip_responses(base: str) -> None:
    assert asked(current(), f"{base}/gzip", {}).json() == {"count": 1}


def test_chunks_arrive_as_they_are_sent(base: str) -> None:
    async def first_chunk_before_the_last_is_sent() -> None:
        seen = []
        async with current().open(HttpRequest("POST", f"{base}/sse", {}, b"{}"), auth={}, replay_key="", timeout_s=60) as answer:
            started = asyncio.get_running_loop().time()
            async for chunk in answer.chunks():
                seen.append((chunk, asyncio.get_running_loop().time() - started))
        assert seen[-1][1] - seen[0][1] > 0.04

    asyncio.run(first_chunk_before_the_last_is_sent())


def test_a_stream_can_be_left_early(base: str) -> None:
    async def leave() -> None:
        for _ in range(3):
            async with current().open(
                HttpRequest("POST", f"{base}/sse", {}, b"{}"), auth={}, replay_key="", timeout_s=60
            ) as answer:
                async for chunk in answer.chunks():
                    assert chunk == EVENTS[0]
                    break
        assert (await ask(current(), f"{base}/chat", {})).status == 200

    asyncio.run(leave())


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_a_refused_connection_is_reported() -> None:
    with pytest.raises(ProviderConnectionError, match=r"http://127\.0\.0\.1:\d+/v1: no connection .*Check the address") as caught:
        asked(current(), f"http://127.0.0.1:{free_port()}/v1?key={KEY}", {})
    assert isinstance(caught.value.__cause__, httpx.ConnectError)
    assert KEY not in str(caught.value)


def test_a_body_that_cannot_be_decoded(base: str) -> None:
    with pytest.raises(ProviderConnectionError, match="not in the encoding that its header names"):
        asked(current(), f"{base}/bad-gzip", {})


def test_a_provider_that_does_not_connect(monkeypatch: pytest.MonkeyPatch, base: str) -> None:
    monkeypatch.setattr("agentlab.transport.live.CONNECT_TIMEOUT_S", 1e-9)
    with pytest.raises(ProviderConnectionError, match="no connection within 1e-09 s"):
        asked(LiveTransport(), f"{base}/chat", {})


@pytest.mark.parametrize("whole", [True, False])
def test_a_broken_stream_is_an_error(base: str, whole: bool) -> None:
    with pytest.raises(ProviderConnectionError, match=r"/v1/break: the connection broke off") as caught:
        asked(current(), f"{base}/break", {}, whole=whole)
    assert isinstance(caught.value.__cause__, httpx.TransportError)


def test_a_broken_stream_gives_the_received_chunks(base: str) -> None:
    seen = []

    async def read() -> None:
        async with current().open(
            HttpRequest("POST", f"{base}/break", {}, b"{}"), auth={}, replay_key="", timeout_s=60
        ) as answer:
            async for chunk in answer.chunks():
                seen.append(chunk)

    with pytest.raises(ProviderConnectionError):
        asyncio.run(read())
    assert b"".join(seen) == b"".join(EVENTS[:2])


def test_a_silent_provider_times_out(base: str) -> None:
    with pytest.raises(ProviderConnectionError, match="sent nothing within the time allowed"):
        asked(current(), f"{base}/silent", {}, timeout_s=0.05)
    assert asked(current(), f"{base}/slow", {}, timeout_s=None).status == 200


def test_a_server_that_does_not_speak_http() -> None:
    server = socket.create_server(("127.0.0.1", 0))

    def reply() -> None:
        connection, _ = server.accept()
        connection.recv(65536)
        connection.sendall(b"nonsense\r\n\r\n")
        connection.close()

    thread = threading.Thread(target=reply)
    thread.start()
    with server, pytest.raises(ProviderConnectionError, match="broke off"):
        asked(current(), f"http://127.0.0.1:{server.getsockname()[1]}/", {})
    thread.join()


@pytest.mark.parametrize("url", ["llm.example/v1", "ftp://llm.example", "http://", "http://h:port/", "https://\u0000/"])
def test_invalid_addresses_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is not an address"):
        asked(current(), url, {})


@pytest.mark.parametrize("key", [f"{KEY}\n", f"{KEY}\u2013x", f"{KEY}\r\nX-Other: 1"])
def test_a_key_that_cannot_be_sent_is_not_shown(base: str, key: str) -> None:
    with pytest.raises(ConfigurationError, match="set the key again") as caught:
        asked(current(), f"{base}/chat", {}, auth={"authorization": f"Bearer {key}"})
    shown = "".join(traceback.format_exception(caught.value))
    assert KEY not in shown


def test_exceptions_of_the_caller_propagate_unchanged(base: str) -> None:
    async def fail() -> None:
        async with current().open(HttpRequest("POST", f"{base}/sse", {}, b"{}"), auth={}, replay_key="", timeout_s=60) as answer:
            async for _ in answer.chunks():
                raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(fail())


def test_cancellation_propagates(base: str, provider: Server) -> None:
    async def cancelled() -> None:
        task = asyncio.create_task(ask(current(), f"{base}/silent", {}, timeout_s=None))
        while not provider.seen:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await ask(current(), f"{base}/chat", {})).status == 200

    asyncio.run(cancelled())


def test_many_concurrent_requests(base: str) -> None:
    async def many() -> list[Any]:
        return await asyncio.gather(*(ask(current(), f"{base}/chat", {"n": n}) for n in range(60)))

    assert [answer.json()["sent"] for answer in asyncio.run(many())] == [f'{{"n": {n}}}' for n in range(60)]


def test_each_loop_has_its_own_client_which_is_closed_with_it(base: str, recwarn: pytest.WarningsRecorder) -> None:
    live = LiveTransport()
    clients: list[httpx.AsyncClient] = []

    async def once() -> None:
        await ask(live, f"{base}/chat", {})
        await ask(live, f"{base}/chat", {})
        (hosts, _), *others = live._hosts.values()
        assert not others
        (connections,) = hosts.values()
        clients.extend([client for _, client in connections._idle])

    for _ in range(3):
        asyncio.run(once())
    assert len(set(map(id, clients))) == 3
    assert all(client.is_closed for client in clients)
    assert not live._hosts
    clients.clear()
    gc.collect()
    assert [str(warning.message) for warning in recwarn if issubclass(warning.category, ResourceWarning)] == []


def test_concurrent_loops_in_threads(base: str) -> None:
    live = LiveTransport()
    failures: list[BaseException] = []

    async def several() -> None:
        await asyncio.gather(*(ask(live, f"{base}/chat", {}) for _ in range(5)))
        assert len(live._hosts) >= 1

    def work() -> None:
        try:
            asyncio.run(several())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert not live._hosts


def test_an_abandoned_closed_loop_is_forgotten(base: str) -> None:
    live = LiveTransport()

    async def once() -> None:
        async with live.open(
            HttpRequest("POST", f"{base}/chat", {"connection": "close"}, b"{}"), auth={}, replay_key="", timeout_s=60
        ) as answer:
            await answer.read()

    abandoned = asyncio.new_event_loop()
    abandoned.run_until_complete(once())
    abandoned.close()
    asyncio.run(once())
    assert abandoned not in live._hosts
