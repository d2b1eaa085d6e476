"""A user's own client of httpx or httpx2: used as it is, never closed, recorded, and nowhere shown."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import ssl
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest

import agentlab as lab
from agentlab import StopReason
from agentlab.engine.client import LONGEST_SILENCE_S
from agentlab.errors import ConfigurationError
from tests.engine.server import cut, raw, serving, status, whole

from .conftest import KEY
from .test_live import Proxy, write_certificate

LIBRARIES = [pytest.param(httpx, id="httpx"), pytest.param(httpx2, id="httpx2")]

CHAT = {
    "id": "c1",
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Graz."}, "finish_reason": "stop"}],
}
BASE = "http://llm.example/v1"


def answering(library: Any, seen: list[Any], **answer: Any) -> Any:
    """A mock transport that keeps the requests and always gives the same answer."""

    def handle(request: Any) -> Any:
        seen.append(request)
        return library.Response(**({"status_code": 200, "json": CHAT} | answer))

    return library.MockTransport(handle)


def agent(client: Any, base: str = BASE, **more: Any) -> lab.Agent:
    return lab.Agent(lab.Provider("compatible", base_url=base, model="m", api_key=KEY, http_client=client), **more)


def ended(one: lab.Agent) -> lab.RunResult:
    async def main() -> lab.RunResult:
        return await one.run("Where?")

    return asyncio.run(main())


def ended_then_closed(one: lab.Agent) -> lab.RunResult:
    """The result of a run over real connections, which the user closes."""

    async def main() -> lab.RunResult:
        async with one.model.http_client:
            return await one.run("Where?")

    return asyncio.run(main())


# As it is -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_with_headers_hooks_and_a_mock_transport(library: Any, stream: bool) -> None:
    seen: list[Any] = []
    hooked: list[str] = []

    async def on_request(request: Any) -> None:
        hooked.append(f"asks {request.url.host}")

    async def on_response(response: Any) -> None:
        await response.aread()
        hooked.append(f"got {response.status_code}")

    body = (
        {"content": b"data: " + json.dumps(CHAT).replace('"message"', '"delta"').encode() + b"\n\ndata: [DONE]\n\n"}
        if stream
        else {}
    )
    answer = {"json": None, "headers": {"content-type": "text/event-stream"}, **body} if stream else {}
    client = library.AsyncClient(
        transport=answering(library, seen, **answer),
        headers={"x-team": "maps"},
        event_hooks={"request": [on_request], "response": [on_response]},
    )
    result = ended(agent(client, stream=stream))
    assert (result.text, result.stop_reason) == ("Graz.", StopReason.COMPLETED)
    assert not client.is_closed
    assert hooked == ["asks llm.example", "got 200"]
    (request,) = seen
    assert str(request.url) == f"{BASE}/chat/completions"
    assert (request.headers["x-team"], request.headers["authorization"]) == ("maps", f"Bearer {KEY}")
    assert json.loads(request.content)["messages"] == [{"role": "user", "content": "Where?"}]


def test_an_agent_takes_a_client_for_a_string_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("XAI_API_KEY", KEY)
    seen: list[Any] = []
    asker = lab.Agent("openai:gpt-5.4-mini", http_client=httpx.AsyncClient(transport=answering(httpx, seen)))
    assert ended(asker).text == ended(asker.with_model("xai:grok-4.3")).text == "Graz."
    assert [request.url.host for request in seen] == ["api.openai.com", "api.x.ai"]
    with pytest.raises(ConfigurationError, match=r"pass it to lab\.Provider"):
        lab.Agent(asker.model.provider, http_client=httpx.AsyncClient())


def test_a_client_with_a_proxy() -> None:
    with HTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        client = httpx.AsyncClient(proxy=f"http://me:{KEY}@127.0.0.1:{proxy.server_port}")
        result = ended_then_closed(agent(client, retry=lab.RetryPolicy(attempts=1)))
        proxy.shutdown()
    assert f"{BASE}/chat/completions Basic" in result.detail, "the proxy's own answer, which is no chat completion"
    assert KEY not in result.detail


def test_a_client_with_a_certificate(tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    with serving(whole(CHAT)) as server:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        trusting = httpx.AsyncClient(verify=ssl.create_default_context(cafile=str(certificate)))
        assert ended_then_closed(agent(trusting, server.base.replace("http:", "https:"))).text == "Graz."


@pytest.mark.parametrize("library", LIBRARIES)
def test_timeouts_are_the_clients_but_for_its_default(library: Any) -> None:
    seen: list[Any] = []
    for client in (
        library.AsyncClient(transport=answering(library, seen)),
        library.AsyncClient(transport=answering(library, seen), timeout=7.0),
        library.AsyncClient(transport=answering(library, seen), timeout=None),
    ):
        ended(agent(client))
    reads = [request.extensions["timeout"]["read"] for request in seen]
    assert reads == [LONGEST_SILENCE_S, 7.0, None]


def test_a_time_out_of_the_client_is_reported() -> None:
    def hang(to: Any) -> None:
        to.wait_until_left()

    with serving(hang) as server:
        client = httpx.AsyncClient(timeout=httpx.Timeout(5.0, read=0.05))
        result = ended_then_closed(agent(client, server.base, retry=lab.RetryPolicy(attempts=1)))
    assert result.stop_reason is StopReason.ERROR
    assert "sent nothing within the time that the http_client allows" in result.detail


def test_no_redirect_is_followed_with_a_key() -> None:
    with serving(status(307, None, ("location", "http://127.0.0.1:9/elsewhere"))) as server:
        result = ended_then_closed(agent(httpx.AsyncClient(follow_redirects=True), server.base))
    assert "Redirects are not followed" in result.detail


def test_more_runs_than_the_client_has_connections() -> None:
    async def main(base: str) -> list[lab.RunResult]:
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=3)) as client:
            asker = agent(client, base, retry=lab.RetryPolicy(attempts=1))

            async def one() -> lab.RunResult:
                return await asker.run("Where?")

            return await asyncio.gather(*[one() for _ in range(300)])

    with serving(script=lambda asked: whole(CHAT)) as server:
        results = asyncio.run(main(server.base))
        assert len({asked.connection for asked in server.asked}) == 3
    assert {result.text for result in results} == {"Graz."}


# Recording ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_recording_has_the_answers_of_the_client(tmp_path: Path, library: Any) -> None:
    seen: list[Any] = []
    client = library.AsyncClient(transport=answering(library, seen), headers={"x-gateway-key": "gw-5Lm2Qx81RtZ0aa"})
    with lab.record(tmp_path):
        assert ended(agent(client)).text == "Graz."
    with lab.replay(tmp_path):
        assert ended(agent(client)).text == "Graz."
    assert len(seen) == 1, "a replay sends nothing"
    written = "".join(file.read_text() for file in tmp_path.iterdir())
    assert KEY not in written
    assert "gw-5Lm2Qx81RtZ0aa" not in written


def test_a_client_may_be_that_of_a_recording(tmp_path: Path) -> None:
    with serving(whole(CHAT)) as server:
        assert (
            ended_then_closed(agent(httpx.AsyncClient(transport=lab.record(tmp_path).transport()), server.base)).text == "Graz."
        )
        base = server.base
    assert ended_then_closed(agent(httpx.AsyncClient(transport=lab.replay(tmp_path).transport()), base)).text == "Graz."


# Errors ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_client_that_cannot_be_used_is_refused(library: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"a sync client.*pass {library.__name__}\.AsyncClient"):
        agent(library.Client())
    closed = library.AsyncClient()
    asyncio.run(closed.aclose())
    with pytest.raises(ConfigurationError, match="http_client is closed"):
        agent(closed)
    for other in (library.AsyncHTTPTransport(), object(), "http://proxy.example"):
        with pytest.raises(ConfigurationError, match=rf"of the type {type(other).__name__}: pass httpx\.AsyncClient"):
            agent(other)


def test_a_client_that_is_closed_before_the_run_ends() -> None:
    client = httpx.AsyncClient(transport=answering(httpx, []))
    asker = agent(client)
    asyncio.run(client.aclose())
    with pytest.raises(ConfigurationError, match="http_client is closed: pass a new one"):
        ended(asker)


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_error_of_a_client_says_what_to_do(library: Any) -> None:
    with serving(cut(b'{"a": "long"}', "reset"), script=None) as server:
        result = ended_then_closed(agent(library.AsyncClient(), server.base, retry=lab.RetryPolicy(attempts=1)))
    assert "the connection broke off" in result.detail
    assert "Try again" in result.detail


def test_a_hook_that_raises_for_a_status() -> None:
    async def check(response: httpx.Response) -> None:
        response.raise_for_status()

    client = httpx.AsyncClient(transport=answering(httpx, [], status_code=429), event_hooks={"response": [check]})
    with pytest.raises(ConfigurationError, match=r"Leave raise_for_status\(\) out of the hook"):
        ended(agent(client))


def test_an_error_of_a_hook_is_its_own() -> None:
    async def fail(request: httpx.Request) -> None:
        raise RuntimeError("the retry loop of my hook") from KeyError("cause")

    client = httpx.AsyncClient(transport=answering(httpx, []), event_hooks={"request": [fail]})
    with pytest.raises(RuntimeError, match="the retry loop of my hook") as caught:
        ended(agent(client))
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_hook_that_takes_the_body() -> None:
    async def take(response: httpx.Response) -> None:
        async for _ in response.aiter_raw():
            pass

    with serving(whole(CHAT)) as server:
        client = httpx.AsyncClient(event_hooks={"response": [take]})
        with pytest.raises(ConfigurationError, match=r"an event hook .* took the body .*response\.aread"):
            ended_then_closed(agent(client, server.base))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_connect_timeout_of_a_client_without_limits(library: Any) -> None:
    def late(request: Any) -> Any:
        raise library.ConnectTimeout("")

    client = library.AsyncClient(transport=library.MockTransport(late), timeout=None)
    result = ended(agent(client, retry=lab.RetryPolicy(attempts=1)))
    assert "no connection in time" in result.detail


def test_the_parameters_of_a_client_are_added_to_the_address() -> None:
    seen: list[httpx.Request] = []
    client = httpx.AsyncClient(transport=answering(httpx, seen), params={"team": "maps"})
    ended(agent(client))
    gemini = lab.Provider("gemini", model="gemini-3.5-flash", api_key=KEY, http_client=client)
    ended(lab.Agent(gemini, stream=True, retry=lab.RetryPolicy(attempts=1)))
    assert [dict(request.url.params) for request in seen] == [{"team": "maps"}, {"alt": "sse", "team": "maps"}]


def test_a_wait_for_a_connection_has_the_clients_limit() -> None:
    def slow(to: Any) -> None:
        time.sleep(0.5)
        whole(CHAT)(to)

    async def main(base: str) -> list[lab.RunResult]:
        async with httpx.AsyncClient(timeout=httpx.Timeout(60, pool=0.1), limits=httpx.Limits(max_connections=1)) as client:
            asker = agent(client, base, retry=lab.RetryPolicy(attempts=1))

            async def one() -> lab.RunResult:
                return await asker.run("Where?")

            return await asyncio.gather(one(), one())

    with serving(script=lambda asked: slow) as server:
        results = asyncio.run(main(server.base))
    assert [result.text for result in results if result.text] == ["Graz."]
    assert "no connection of the http_client was free in time" in "".join(result.detail for result in results)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini", "azure", "bedrock", "xai", "compatible-responses", "groq"])
def test_every_provider_checks_the_client(provider: str) -> None:
    base = "https://llm.example/v1"
    for wrong in (
        "http://proxy:3128",
        httpx.MockTransport(lambda request: httpx.Response(200)),
        httpx.AsyncClient,
        httpx.Client(),
    ):
        with pytest.raises(ConfigurationError, match=r"http_client is (of the type|a sync client)"):
            lab.Provider(provider, model="m", base_url=base, http_client=wrong)
    seen: list[httpx.Request] = []
    client = httpx.AsyncClient(transport=answering(httpx, seen))
    made = lab.Provider(provider, model="m", base_url=base, api_key=KEY, http_client=client)
    ended(lab.Agent(made, retry=lab.RetryPolicy(attempts=1), tools=[]))
    assert [request.url.host for request in seen] == ["llm.example"]


@pytest.mark.parametrize("whose", ["agentlab's", "the user's"])
def test_a_run_cancelled_by_the_last_piece_of_text_leaves_a_free_connection(whose: str) -> None:
    delta = json.dumps(CHAT).replace('"message"', '"delta"').encode()
    packet = b"data: " + delta + b"\n\ndata: [DONE]\n\n"

    async def main(base: str) -> tuple[StopReason, str]:
        limits = httpx.Limits(max_connections=1)
        client = httpx.AsyncClient(limits=limits) if whose == "the user's" else None
        asker = agent(client, base, stream=True, retry=lab.RetryPolicy(attempts=1))
        run = asker.run("Where?")

        def cancel(event: lab.events.Event) -> None:
            if isinstance(event, lab.events.TextReceived):
                run.cancel()

        run.observe(cancel)
        first = await run
        async with asyncio.timeout(20):
            again = await asker.run("Where?")
        if client is not None:
            await client.aclose()
        return first.stop_reason, again.text

    with serving(
        script=lambda asked: raw(packet, ("content-type", "text/event-stream"), ("content-length", str(len(packet))))
    ) as server:
        assert asyncio.run(main(server.base)) == (StopReason.CANCELLED, "Graz.")


def test_a_client_with_connections_of_another_loop() -> None:
    with serving(script=lambda asked: whole(CHAT)) as server:
        asker = agent(httpx.AsyncClient(), server.base, retry=lab.RetryPolicy(attempts=1))
        held = asyncio.new_event_loop()

        async def first() -> lab.RunResult:
            return await asker.run("Where?")

        assert held.run_until_complete(first()).text == "Graz."
        with pytest.raises(ConfigurationError, match="connections of another event loop, and a client belongs to one"):
            ended(asker)
        held.run_until_complete(asker.model.http_client.aclose())
        held.close()


# Nowhere else ---------------------------------------------------------------------------------------------------------------------


def test_a_client_is_not_sent_to_another_process() -> None:
    asker = agent(httpx.AsyncClient(transport=answering(httpx, [])))
    with pytest.raises(ConfigurationError, match="http_client of compatible:m cannot be sent to another process"):
        pickle.dumps(asker.model)
    study = lab.Experiment([asker], ["Where?"])

    async def main() -> None:
        with ProcessPoolExecutor(1) as executor:
            await study.run(executor=executor, progress=False)

    with pytest.raises(ConfigurationError, match="cannot be sent to another process"):
        asyncio.run(main())


def test_the_headers_of_a_client_are_not_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = "gw-7Hq3Zk90PwYb44cc"
    caplog.set_level(logging.DEBUG)

    def echo(request: httpx.Request) -> httpx.Response:
        said = request.headers["x-gateway-key"]
        return httpx.Response(
            200,
            json={
                "id": "c1",
                "model": "m",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}],
            },
        )

    client = httpx.AsyncClient(transport=httpx.MockTransport(echo), headers={"x-gateway-key": secret})
    store = lab.Store(tmp_path / "runs.db")
    asker = agent(client)

    async def main() -> lab.RunResult:
        run = asker.run("Where?")
        store.keep(run)
        return await run

    result = asyncio.run(main())
    store.close()
    shown = [repr(asker), repr(asker.model), repr(asker.model.provider), repr(result), result.to_frame().to_csv(), caplog.text]
    assert [text for text in shown if secret in text] == []
    assert secret.encode() not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


def test_respx_like_libraries_patch_the_transports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries such as respx replace the transport's method; agentlab's own client is sent through it too."""

    async def handle(self: object, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=CHAT)

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", handle)
    assert ended(agent(None)).text == "Graz."
