"""Real requests over loopback, and the errors of failed ones."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import gc
import ipaddress
import os
import socket
import ssl
import subprocess
import sys
import threading
import traceback
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

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
    with pytest.raises(
        ProviderConnectionError, match=r"http://127\.0\.0\.1:\d+/v1: no connection \(Connection refused\)\. Check the address"
    ) as caught:
        asked(current(), f"http://127.0.0.1:{free_port()}/v1?key={KEY}", {})
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
    with pytest.raises(ProviderConnectionError, match=r"/v1/break: the connection broke off"):
        asked(current(), f"{base}/break", {}, whole=whole)


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


@pytest.mark.parametrize(
    "url",
    ["llm.example/v1", "ftp://llm.example", "http://", "http://h:port/", "https://\u0000/", "http://[::1/v1", "http://[abc]/v1"],
)
def test_invalid_addresses_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is not an address"):
        asked(current(), url, {})


@pytest.mark.parametrize("key", [f"{KEY}\n", f"{KEY} ", f"{KEY}\u2013x", f"{KEY}\r\nX-Other: 1"])
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


@pytest.mark.parametrize("again_after", [None, 0, 1, 2])
def test_a_cancel_at_any_moment_leaves_no_connection_that_hangs(base: str, again_after: int | None) -> None:
    async def cancelled_after(turns: int) -> bool:
        """Cancel a request after so many turns of the loop, perhaps twice, then send another. False if it had ended by then."""
        live = LiveTransport()
        task = asyncio.create_task(ask(live, f"{base}/chat", {}))
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.done():
            return False
        task.cancel()
        if again_after is not None:
            for _ in range(again_after + 1):
                await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait([task])
        async with asyncio.timeout(10):
            assert (await ask(live, f"{base}/chat", {})).status == 200
        return True

    async def sweep() -> int:
        return sum([await cancelled_after(turns) for turns in range(40)])

    assert asyncio.run(sweep()) > 5


def test_an_error_tells_nothing_of_the_errors_around_it() -> None:
    def refused(url: str) -> str:
        with pytest.raises(ProviderConnectionError) as caught:
            asked(current(), url, {})
        return str(caught.value)

    try:
        raise OSError(5, "the caller's own trouble")
    except OSError:
        assert "no connection (Connection refused)" in refused(f"http://127.0.0.1:{free_port()}/v1")
        assert "no connection (Connection refused)" in refused(f"http://localhost:{free_port()}/v1")


def test_many_concurrent_requests(base: str) -> None:
    async def many() -> list[Any]:
        return await asyncio.gather(*(ask(current(), f"{base}/chat", {"n": n}) for n in range(60)))

    assert [answer.json()["sent"] for answer in asyncio.run(many())] == [f'{{"n": {n}}}' for n in range(60)]


def connections_to(provider: Server) -> set[int]:
    """The local ports of this process's open connections to the server."""
    found = psutil.Process().net_connections("tcp")
    return {
        one.laddr.port for one in found if one.raddr and one.raddr.port == provider.server_port and one.status == "ESTABLISHED"
    }


def test_each_loop_has_its_own_connections_which_are_closed_with_it(
    base: str, provider: Server, recwarn: pytest.WarningsRecorder
) -> None:
    live = LiveTransport()
    seen: list[set[int]] = []

    async def once() -> None:
        await ask(live, f"{base}/chat", {})
        seen.append(connections_to(provider))
        await ask(live, f"{base}/chat", {})
        assert connections_to(provider) == seen[-1], "the connection is used again"

    for _ in range(3):
        asyncio.run(once())
        assert not connections_to(provider)
    assert [len(ports) for ports in seen] == [1, 1, 1]
    assert not live._loops
    gc.collect()
    assert [str(warning.message) for warning in recwarn if issubclass(warning.category, ResourceWarning)] == []


def test_concurrent_loops_in_threads(base: str) -> None:
    live = LiveTransport()
    failures: list[BaseException] = []

    async def several() -> None:
        await asyncio.gather(*(ask(live, f"{base}/chat", {}) for _ in range(5)))
        assert len(live._loops) >= 1

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
    assert not live._loops


def test_an_abandoned_closed_loop_is_forgotten(base: str) -> None:
    live = LiveTransport()

    async def once() -> None:
        await ask(live, f"{base}/chat", {})

    abandoned = asyncio.new_event_loop()
    abandoned.run_until_complete(once())
    abandoned.run_until_complete(live._loops[abandoned][0].aclose())  # asyncio would complain about its sockets
    abandoned.close()
    asyncio.run(once())
    assert abandoned not in live._loops
    del abandoned
    gc.collect()


LEFT_OPEN = """
import asyncio, sys
import agentlab as lab

run = lab.Agent(lab.Provider("compatible", base_url=sys.argv[1], model="m")).run("Where?")

async def ended():
    return await run

if sys.argv[2] == "in the background":
    run.start()
else:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(ended())
    if sys.argv[2] == "closed":
        loop.close()
print(run.result.stop_reason)
"""


@pytest.mark.parametrize("how", ["in the background", "open", "closed"])
def test_an_exit_with_open_connections_prints_nothing(base: str, how: str) -> None:
    command = [sys.executable, *(["-W", "default"] if how == "in the background" else []), "-c", LEFT_OPEN, base, how]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("error\n", "")  # the server's answer is no chat completion


def test_an_address_is_sent_as_it_is(base: str, provider: Server) -> None:
    for path in ("model/a%3A0/invoke", "m:go?alt=sse&q=a%2Bb", "a b/ü"):
        asked(current(), f"{base}/{path}", {})
    assert [path for path, _, _ in provider.seen] == ["/v1/model/a%3A0/invoke", "/v1/m:go?alt=sse&q=a%2Bb", "/v1/a%20b/%C3%BC"]


def test_a_user_name_in_an_address_takes_the_place_of_a_key(base: str, provider: Server) -> None:
    asked(current(), f"{base}/chat".replace("//", "//me:secret@"), {}, auth={"authorization": f"Bearer {KEY}"})
    sent = {name.lower(): value for name, value in provider.seen[0][1].items()}
    assert sent["authorization"] == "Basic " + base64.b64encode(b"me:secret").decode()


def test_a_large_request_arrives_whole(base: str, provider: Server) -> None:
    asked(current(), f"{base}/chat", b"x" * 5_000_000)
    assert len(provider.seen[0][2]) == 5_000_000


# Proxies and TLS ---------------------------------------------------------------------------------------------------------------


class Proxy(BaseHTTPRequestHandler):
    """Answers itself, and refuses tunnels."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = f"{self.path} {self.headers['proxy-authorization']}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_CONNECT(self) -> None:
        self.send_error(403, "Not here")

    def log_message(self, *_: object) -> None:
        pass


def test_a_proxy_of_the_environment(base: str, provider: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with HTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        for name in ("HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://me:{KEY}@127.0.0.1:{proxy.server_port}")
        through = asked(LiveTransport(), "http://llm.example/v1/chat", {})
        assert through.body.startswith(b"http://llm.example/v1/chat Basic ")
        with pytest.raises(ProviderConnectionError, match=r"the proxy refused \(403 .*Check HTTPS_PROXY and NO_PROXY"):
            asked(LiveTransport(), "https://llm.example/v1/chat", {})
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert asked(LiveTransport(), f"{base}/chat", {}).json()["count"] == 1
        proxy.shutdown()
    with pytest.raises(ProviderConnectionError, match="no connection to the proxy") as caught:
        asked(LiveTransport(), "https://llm.example/v1/chat", {})
    assert KEY not in "".join(traceback.format_exception(caught.value))
    assert len(provider.seen) == 1


@pytest.mark.parametrize(
    "proxy",
    [
        "ftp://me:secret@127.0.0.1:9",
        "http://127.0.0.1:port",
        *(f"http://me:p{sign}secret@127.0.0.1:port" for sign in "/#?"),  # which a password has to escape
    ],
)
def test_a_proxy_of_another_kind_is_refused(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(
        ConfigurationError,
        match=r"127\.0\.0\.1:\w+': it is not an address of a proxy, .* set HTTPS_PROXY .* NO_PROXY=llm\.example",
    ) as caught:
        asked(LiveTransport(), "https://llm.example/v1/chat", {})
    assert "secret" not in str(caught.value)


def serve_socks(server: socket.socket, seen: list[bytes]) -> None:
    """Connect one client through SOCKS 5 with a user name and a password (RFC 1928 and 1929), and pass its bytes on."""
    client, _ = server.accept()
    with client:
        client.recv(16)
        client.sendall(b"\x05\x02")
        seen.append(client.recv(64))
        client.sendall(b"\x01\x00")
        asked_for = client.recv(64)
        seen.append(asked_for)
        host = asked_for[5 : 5 + asked_for[4]].decode()
        with socket.create_connection((host, int.from_bytes(asked_for[-2:], "big"))) as target:
            client.sendall(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
            back = threading.Thread(target=pump, args=(target, client))
            back.start()
            pump(client, target)
            back.join()


def pump(source: socket.socket, to: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)


def test_a_socks_proxy(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        thread = threading.Thread(target=serve_socks, args=(proxy, seen))
        thread.start()
        monkeypatch.setenv("ALL_PROXY", f"socks5://me:secret@127.0.0.1:{proxy.getsockname()[1]}")
        address = base.replace("127.0.0.1", "localhost")
        assert asked(LiveTransport(), f"{address}/chat", {}).json()["count"] == 1
        thread.join()
    assert seen[0] == b"\x01\x02me\x06secret"
    assert b"localhost" in seen[1]


def test_a_socks_proxy_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://me:secret@127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "socksio", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'httpx\[socks\]'.*NO_PROXY=llm\.example") as caught:
        asked(LiveTransport(), "https://llm.example/v1/chat", {})
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(ProviderConnectionError, match="no connection"):
        asked(LiveTransport(), f"http://127.0.0.1:{free_port()}/v1", {})


def write_certificate(folder: Path) -> Path:
    """Write a key and a certificate for 127.0.0.1 that it signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "agentlab test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file = folder / "server.pem"
    file.write_bytes(private + certificate.public_bytes(pem))
    return file


ASK_ONCE = """
import asyncio, sys
from agentlab.transport.http import HttpRequest
from agentlab.transport.live import live

async def main():
    async with live().open(HttpRequest("GET", sys.argv[1], {}, b""), auth={}, replay_key="", timeout_s=10) as answer:
        print((await answer.read()).decode())

try:
    asyncio.run(main())
except Exception as error:
    print(error)
"""


def test_certificates_are_checked(tmp_path: Path, provider: Server) -> None:
    certificate = write_certificate(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    provider.socket = tls.wrap_socket(provider.socket, server_side=True)
    command = [sys.executable, "-c", ASK_ONCE, f"https://127.0.0.1:{provider.server_port}/v1/models"]
    (tmp_path / "authorities").mkdir()
    hashed = subprocess.run(
        ["openssl", "x509", "-hash", "-noout", "-in", str(certificate)], capture_output=True, text=True, check=True
    )
    (tmp_path / "authorities" / f"{hashed.stdout.strip()}.0").write_bytes(certificate.read_bytes())
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SSL_CERT_")}
    given = ({}, {"SSL_CERT_FILE": str(certificate)}, {"SSL_CERT_DIR": str(tmp_path / "authorities")})
    outputs = [subprocess.run(command, env=clean | more, capture_output=True, text=True, check=True).stdout for more in given]
    assert "no connection" in outputs[0]
    assert "self-signed certificate" in outputs[0]
    assert outputs[1:] == ['{"path": "/v1/models"}\n'] * 2
    missing = clean | {"SSL_CERT_FILE": str(tmp_path / "missing.pem")}
    said = subprocess.run(command, env=missing, capture_output=True, text=True, check=True).stdout
    assert said.startswith("The certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read")
