"""Tools of MCP servers: real servers over stdio and over streamable HTTP, called, cancelled, killed, recorded and replayed."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import agentlab as lab
from agentlab import tools
from agentlab.errors import AgentlabWarning, ConfigurationError, McpError, ReplayMissError
from agentlab.interop.mcp_tools import value_of
from agentlab.model.messages import ToolCall, ToolResult
from agentlab.testing import ScriptedProvider, call, say
from tests.engine.server import serving, status

from .mcp_media import PNG, WAV

pytestmark = pytest.mark.skipif(find_spec("mcp") is None, reason="the official client is a development dependency")

SERVER = str(Path(__file__).with_name("mcp_server.py"))
STARTS = str(Path(__file__).with_name("mcp_start.py"))
NAMES = ["find_station", "departures", "buy", "map_of", "announcement", "timetable", "crawl", "die", "meet", "extend", "renew"]

Start = Callable[..., tools.McpServer]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "server").mkdir()
    monkeypatch.setenv("STATIONS_FOLDER", str(tmp_path / "server"))
    return tmp_path / "server"


@pytest.fixture(scope="module")
def command() -> Iterator[list[str]]:
    """A command that starts a server in its own process, forked from one that has imported what servers import."""
    with tempfile.TemporaryDirectory() as short:  # the path of a socket is at most a hundred characters long
        address = f"{short}/socket"
        process = subprocess.Popen([sys.executable, SERVER, "fork", address])
        until = time.monotonic() + 60
        while not Path(address).exists() and time.monotonic() < until and process.poll() is None:
            time.sleep(0.05)
        yield [sys.executable, "-I", "-S", STARTS, address]
        process.kill()
        process.wait()


@pytest.fixture
def stdio(command: list[str], folder: Path) -> Start:
    return lambda **more: lab.tools.from_mcp(command, name="stations", **{"env": {"STATIONS_FOLDER": str(folder)}, **more})


@pytest.fixture
def program(folder: Path) -> Start:
    """A server that is started as a program, as users do it."""
    return lambda: lab.tools.from_mcp([sys.executable, SERVER], name="stations", env={"STATIONS_FOLDER": str(folder)})


@pytest.fixture
def port(command: list[str], folder: Path) -> Iterator[int]:
    """Start a server over HTTP on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free: int = probe.getsockname()[1]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([*command, str(free)], stderr=log, stdout=log)
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", free)) == 0:
                break
        time.sleep(0.01)
    yield free
    if process.poll() is None:
        with suppress(ProcessLookupError):  # a test has killed it, and its starter has not noticed yet
            os.kill(int((folder / "pid").read_text()), signal.SIGKILL)
    process.wait()


@pytest.fixture
def http(port: int) -> Start:
    return lambda **more: lab.tools.from_mcp(f"http://127.0.0.1:{port}/mcp", name="stations", **more)


@pytest.fixture(params=["stdio", "http"])
def start(request: pytest.FixtureRequest) -> Start:
    made: Start = request.getfixturevalue(request.param)
    return made


def agent_of(server: Any, *script: Any) -> lab.Agent:
    return lab.Agent(ScriptedProvider([*script, "Done."]), tools=[*server])


def results_of(result: lab.RunResult) -> list[ToolResult]:
    return [one for step in result.history for one in step.tool_results]


async def until(true: Callable[[], object]) -> None:
    for _ in range(1200):
        if true():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not happen within a minute")


# Listing and calling ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["program", "http"], indirect=True)
def test_the_tools_of_a_server_are_listed_and_called(start: Start, folder: Path) -> None:
    async def main() -> None:
        async with start() as server:
            assert [one.name for one in server] == NAMES  # `map.of` is no name for every provider
            assert (len(server), server[1].name, repr(server)) == (11, "departures", f"McpServer('stations', {NAMES})")
            spec = server[0].spec
            assert (spec.description, spec.parameters["required"]) == ("Find a station.", ["name"])
            assert spec.parameters["properties"]["name"]["description"] == "the name, or its beginning"
            script = (
                call("find_station", {"name": "Graz"}),
                call("departures", {"station": "Graz"}),
                call("map_of", {"station": "Graz"}),
                call("departures", {"station": 5}),
                call("buy", {"station": "Graz"}),
            )
            found = results_of(await agent_of(server, *script).run("?"))
        assert [one.error for one in found] == [None, None, None, "invalid_arguments", "exception"]
        assert found[0].content == "Graz Hbf"
        assert found[1].value == {"station": "Graz", "trains": [{"to": "Linz", "at": "10:02"}]}
        assert json.loads(found[1].content) == found[1].value
        assert found[2].content == "The map of Graz:\n[image png 2x3, 68 B]\n[image/png, 10 bytes]"
        assert found[3].content.endswith("station: 5 is not of type 'string'")
        assert found[4].content == "buy raised McpError: Error executing tool buy"
        assert (folder / "calls").read_text() == "Graz\n"  # what does not fit the schema is not sent
        after = results_of(await agent_of(server, call("departures", {"station": "Graz"})).run("?"))[0]
        assert "The MCP server 'stations' is closed" in after.content

    asyncio.run(main())


def test_runs_on_several_event_loops_call_one_server(stdio: Start) -> None:
    server = asyncio.run(stdio().open())
    for _ in range(2):
        agent = agent_of(server, call("find_station", {"name": "Graz"}))
        assert results_of(asyncio.run(to_the_end(agent.run("?"))))[0].content == "Graz Hbf"
    asyncio.run(server.close())


async def to_the_end(run: Any) -> lab.RunResult:
    result: lab.RunResult = await run
    return result


def test_names_get_a_prefix_and_two_servers_do_not_clash(stdio: Start) -> None:
    async def main() -> None:
        async with stdio() as one, stdio(prefix="other.") as other:
            with pytest.raises(lab.errors.ToolDefinitionError, match="Two tools have the name 'find_station'"):
                agent_of([*one, *one])
            agent = agent_of([*one, *other], call("other_find_station", {"name": "Graz"}))
            assert results_of(await agent.run("?"))[0].content == "Graz Hbf"

    asyncio.run(main())


def test_another_process_connects_when_it_first_calls(stdio: Start) -> None:
    async def main() -> None:
        async with stdio() as server:
            copied = pickle.loads(pickle.dumps(server[0]))
        agent = agent_of([copied], call("find_station", {"name": "Graz"}))
        assert results_of(await agent.run("?"))[0].content == "Graz Hbf"
        await copied.function.server.close()

    asyncio.run(main())


# Images, audio and files ----------------------------------------------------------------------------------------------------------


def test_images_audio_and_pdfs_of_a_server_are_parts_and_replay(start: Start, tmp_path: Path) -> None:
    script = call("map_of", {"station": "Graz"}), call("announcement", {}), call("timetable", {})

    async def go(server: tools.McpServer) -> list[ToolResult]:
        async with server:
            return results_of(await agent_of(server, *script).run("?"))

    with lab.record(tmp_path / "recorded"):
        live = asyncio.run(go(start()))
    seen = [[piece if isinstance(piece, str) else (type(piece), piece.data) for piece in one.pieces] for one in live]
    assert seen == [
        ["The map of Graz:", (lab.Image, PNG), "[image/png, 10 bytes]"],  # the second image is none
        [(lab.Audio, WAV)],
        [(lab.Document, b"%PDF-1.7\n1 0 obj\n")],
    ]
    assert live[2].parts[0].name == "May 2026.pdf"
    with lab.replay(tmp_path / "recorded"):
        again = asyncio.run(go(tools.from_mcp("no-such-command", name="stations")))
    assert [(one.content, one.parts, one.parts[0].data) for one in again] == [
        (one.content, one.parts, one.parts[0].data) for one in live
    ]


def test_a_recording_has_the_bytes_of_results_once(stdio: Start, tmp_path: Path) -> None:
    async def go(server: tools.McpServer) -> list[ToolResult]:
        async with server:
            return results_of(await agent_of(server, *[call("map_of", {"station": name}) for name in ("Graz", "Linz")]).run("?"))

    with lab.record(tmp_path / "recorded"):
        live = asyncio.run(go(stdio()))
    (kept,) = (tmp_path / "recorded" / "media").iterdir()
    assert (kept.suffix, kept.read_bytes()) == (".png", PNG)
    assert live[0].parts[0].base64 not in (tmp_path / "recorded" / "stations.yaml").read_text()
    with lab.record(tmp_path / "recorded"):  # a further recording keeps the others as they are
        asyncio.run(go(stdio()))
    assert (tmp_path / "recorded" / "stations.yaml").read_text().count(f"sha256:{live[0].parts[0].sha256}") == 2
    with lab.replay(tmp_path / "recorded"):
        again = asyncio.run(go(tools.from_mcp("no-such-command", name="stations")))
    assert [one.pieces for one in again] == [one.pieces for one in live]
    kept.unlink()
    with pytest.raises(
        lab.errors.MalformedCassetteError, match=r"interaction \d: the file media/\w+….* of a tool's result is missing"
    ):
        lab.replay(tmp_path / "recorded").__enter__()


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("openai:m", ""),
        ("openai-responses:m", "the Responses wire takes no audio"),
        ("anthropic:m", "Anthropic takes no audio"),
        ("gemini:m", "Gemini takes only images and documents in the result of a tool"),
        ("bedrock:m", "Bedrock takes only images and documents in the result of a tool"),
    ],
)
def test_what_the_model_does_not_take_is_left_out_and_named(model: str, says: str) -> None:
    """The user cannot change what a server returns: the run continues."""
    refuses = lab.Agent(model).model.refuses_in_result  # type: ignore[attr-defined]
    image, audio = lab.Image(PNG), lab.Audio(WAV)
    content = [
        {"type": "image", "data": image.base64, "mimeType": "image/png"},
        {"type": "audio", "data": audio.base64, "mimeType": "audio/wav"},
    ]
    first, second = value_of({"content": content}, refuses)
    assert first == image
    assert second == audio if not says else second.startswith(f"{audio.text} cannot be sent: {says}")


# Progress and cancel ------------------------------------------------------------------------------------------------------------


def test_progress_is_seen_as_events(start: Start) -> None:
    async def main() -> None:
        async with start() as server:
            result = await agent_of(server, call("crawl", {"pages": 3})).run("?")
        seen = [event for event in result.events if isinstance(event, lab.events.ToolProgress)]
        assert [(event.step, event.tool, event.progress, event.total) for event in seen] == [
            (1, "crawl", float(page), 3.0) for page in (1, 2, 3)
        ]
        details = result.to_frame("events").set_index("event")["detail"]
        assert list(details["ToolProgress"]) == ["crawl: 1 of 3, page 1", "crawl: 2 of 3, page 2", "crawl: 3 of 3, page 3"]
        assert results_of(result)[0].content == "3 pages"

    asyncio.run(main())


def test_a_cancelled_run_cancels_the_call_at_the_server(start: Start, folder: Path) -> None:
    async def main() -> None:
        async with start() as server:
            run = agent_of(server, call("crawl", {"pages": 9})).run("?")
            going = asyncio.ensure_future(to_the_end(run))
            await until(lambda: any(isinstance(event, lab.events.ToolProgress) and event.progress == 3 for event in run.events))
            run.cancel()
            result = await going
            assert (result.stop_reason, results_of(result)[0].error) == (lab.StopReason.CANCELLED, "interrupted")
            await until((folder / "cancelled").exists)
            again = await agent_of(server, call("find_station", {"name": "Graz"})).run("?")
            assert results_of(again)[0].content == "Graz Hbf"

    asyncio.run(main())


def test_a_call_beyond_its_time_limit_is_cancelled_at_the_server(stdio: Start, folder: Path) -> None:
    async def main() -> None:
        async with stdio(timeout_s=1) as server:
            found = results_of(await agent_of(server, call("crawl", {"pages": 9})).run("?"))[0]
            assert found.content == "crawl did not finish within its limit of 1 s."
            await until((folder / "cancelled").exists)

    asyncio.run(main())


# A server that dies, and a list that changes --------------------------------------------------------------------------------------

ENDED = "it ended while die was under way; what the call did is not known. The next call starts it again."


def test_a_server_that_is_killed_fails_the_call_and_the_run_continues(program: Start, folder: Path) -> None:
    async def main() -> None:
        async with program() as server:
            first = (folder / "pid").read_text()
            script = call("die", {}), call("find_station", {"name": "Graz"})
            result = await agent_of(server, *script).run("?")
            died, after = results_of(result)
            assert (died.error, died.content) == ("exception", f"die raised McpError: The MCP server 'stations': {ENDED}")
            assert (after.content, result.stop_reason) == ("Graz Hbf", lab.StopReason.COMPLETED)
            assert (folder / "pid").read_text() != first

    asyncio.run(main())


def test_the_list_is_read_again_from_a_server_that_was_started_again(stdio: Start) -> None:
    async def main() -> None:
        async with stdio() as server:
            await agent_of(server, call("extend", {})).run("?")
            assert [one.name for one in server] == [*NAMES, "extra"]
            with pytest.warns(AgentlabWarning, match=r"changed its list of tools \(removed extra\)"):
                await agent_of(server, call("die", {}), call("find_station", {"name": "Graz"})).run("?")
            assert [one.name for one in server] == NAMES

    with pytest.warns(AgentlabWarning, match=r"\(added extra\)"):
        asyncio.run(main())


def test_a_server_over_http_that_is_killed_fails_the_call_and_those_after_it(http: Start) -> None:
    async def main() -> None:
        async with http() as server:
            script = call("die", {}), call("find_station", {"name": "Graz"})
            result = await agent_of(server, *script).run("?")
            died, after = results_of(result)
            assert died.content.endswith(ENDED.replace("starts it", "connects"))
            assert "The MCP server 'stations' cannot be used" in after.content
            assert result.stop_reason is lab.StopReason.COMPLETED

    asyncio.run(main())


def test_a_list_that_changes_is_read_again_and_a_run_warns(start: Start) -> None:
    async def main() -> None:
        async with start() as server:
            await asyncio.sleep(0.5)  # until the server knows that changes are listened to
            agent = agent_of(server, call("extend", {}))
            await agent.run("?")
            await until(lambda: len(server) == 12)
            assert server[11].name == "extra"
            with pytest.warns(AgentlabWarning, match=r"'stations' changed its list of tools \(added extra\)\. An agent keeps"):
                await agent.run("?")
            assert results_of(await agent_of(server, call("extra", {})).run("?"))[0].content == "new"  # without a warning

    asyncio.run(main())


def test_a_run_keeps_its_tools_and_a_fork_takes_the_new_ones(start: Start) -> None:
    """A tool that was removed under way is refused by the server, and the model reads that."""

    async def main() -> None:
        async with start() as server:
            await asyncio.sleep(0.5)  # until the server knows that changes are listened to

            async def wait() -> str:
                """Wait until the list was read again."""
                await until(lambda: "departures" not in {one.name for one in server})
                return "now"

            script = call("renew", {}), call("wait", {}), call("departures", {"station": "Graz"}), "Done."
            run = lab.Agent(ScriptedProvider(script), tools=[server, wait]).run("?")
            with pytest.warns(
                AgentlabWarning, match=r"\(removed departures, changed find_station\)\. An agent keeps .* run\.fork"
            ):
                result = await run
            refused = results_of(result)[-1]
            assert (refused.error, refused.content) == (
                "exception",
                "departures raised McpError: Unknown tool: departures",
            )
            assert result.stop_reason is lab.StopReason.COMPLETED
            new = agent_of(server, *script[:2], call("find_station", {"city": "Graz"}))
            branch = await run.fork(at=2, agent=new)
            assert results_of(branch)[-1].content == "Graz Hbf"

    asyncio.run(main())


# Recording and replay ---------------------------------------------------------------------------------------------------------------


def test_a_list_that_changed_during_a_call_replays(stdio: Start, tmp_path: Path) -> None:
    async def go() -> tuple[list[str], str]:
        async with stdio() as server:
            with pytest.warns(AgentlabWarning, match=r"\(added extra\)\. An agent keeps"):
                result = await agent_of(server, call("extend", {})).run("?")
            return [one.name for one in server], results_of(result)[0].content

    with lab.record(tmp_path / "kept"):
        live = asyncio.run(go())
    with lab.replay(tmp_path / "kept"):
        assert asyncio.run(go()) == live == ([*NAMES, "extra"], "extended")


def test_a_recorded_run_replays_without_the_server(start: Start, folder: Path, tmp_path: Path) -> None:
    """The list of tools, results, errors and progress come from the recording; the command would fail."""
    script = (
        call("departures", {"station": "Graz"}),
        call("buy", {"station": "Graz"}),
        call("crawl", {"pages": 2}),
        call("departures", {"station": "Graz"}),
        call("die", {}),
    )

    async def go(server: tools.McpServer) -> tuple[list[Any], list[Any], Any]:
        async with server:
            result = await agent_of(server, *script).run("?")
            told = [event.message for event in result.events if isinstance(event, lab.events.ToolProgress)]
            found = [(one.content, one.value if one.error is None else str(one.value), one.error) for one in results_of(result)]
            return found, told, [one.spec for one in server]

    with lab.record(tmp_path / "recorded"):
        live = asyncio.run(go(start()))
    (folder / "calls").unlink()
    with lab.replay(tmp_path / "recorded"):
        for _ in range(2):  # each run starts at the first recording
            assert asyncio.run(go(tools.from_mcp("no-such-command", name="stations"))) == live
    assert live[1] == ["page 1", "page 2"]
    assert not (folder / "calls").exists()
    text = (tmp_path / "recorded" / "stations.yaml").read_text()
    assert "uri: mcp://stations/tools/call" in text
    vcr = pytest.importorskip("vcr.serialize")
    assert len(vcr.deserialize(text, pytest.importorskip("vcr.serializers.yamlserializer"))[0]) == 6


def test_calls_of_one_answer_are_at_the_server_at_the_same_time_and_replay(start: Start, tmp_path: Path) -> None:
    calls = [ToolCall(name, "meet", json.dumps({"name": name})) for name in ("first", "second", "last")]
    asked = say(finish=lab.FinishReason.TOOL_CALLS, calls=calls)

    async def go(server: tools.McpServer) -> list[str]:
        async with server, asyncio.timeout(60):
            return [one.content for one in results_of(await agent_of(server, asked).run("?"))]

    with lab.record(tmp_path / "recorded"):
        live = asyncio.run(go(start(parallel=True)))
    assert live == ["first met", "second met", "last met"]
    for parallel in (True, False):
        with lab.replay(tmp_path / "recorded"):
            assert asyncio.run(go(tools.from_mcp("no-such-command", name="stations", parallel=parallel))) == live
    assert pickle.loads(pickle.dumps(tools.from_mcp("server", parallel=True))).parallel


def test_a_whole_run_with_model_and_server_replays(stdio: Start, tmp_path: Path, folder: Path) -> None:
    """A model over a wire too: the requests of the second step contain what the server gave."""
    answers = [
        {"id": "t1", "type": "function", "function": {"name": "find_station", "arguments": '{"name": "Graz"}'}},
        {"id": "t2", "type": "function", "function": {"name": "map_of", "arguments": '{"station": "Graz"}'}},
    ]
    asked: list[bytes] = []
    bodies = [
        {"choices": [{"message": {"role": "assistant", "tool_calls": answers}, "finish_reason": "tool_calls"}]},
        {"choices": [{"message": {"role": "assistant", "content": "At Graz Hbf."}, "finish_reason": "stop"}]},
    ]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        asked.append(await reader.readexactly(length))
        body = json.dumps(bodies.pop(0)).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        )
        writer.write(body)
        await writer.drain()
        writer.close()

    async def go(server: tools.McpServer, port: int) -> lab.RunResult:
        model = lab.Provider("compatible", base_url=f"http://127.0.0.1:{port}/v1", model="m", api_key="k")
        async with server:
            return await lab.Agent(model, tools=[*server]).run("Where?")

    async def live() -> tuple[str, int]:
        listening = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        async with listening:
            return (await go(stdio(), port)).text, port

    with lab.record(tmp_path / "whole"):
        text, port = asyncio.run(live())
    assert b'{"url":"data:image/png;base64,' in asked[1]
    with lab.replay(tmp_path / "whole"):
        again = asyncio.run(go(tools.from_mcp("no-such-command", name="stations"), port))
    assert results_of(again)[1].parts[0].data == PNG
    assert (text, again.text, results_of(again)[0].content) == ("At Graz Hbf.", "At Graz Hbf.", "Graz Hbf")


def test_a_call_that_was_not_recorded_ends_the_run(stdio: Start, tmp_path: Path) -> None:
    async def go(server: tools.McpServer, station: str) -> lab.RunResult:
        async with server:
            return await agent_of(server, call("departures", {"station": station})).run("?")

    with lab.record(tmp_path / "recorded"):
        asyncio.run(go(stdio(), "Graz"))
    with (
        lab.replay(tmp_path / "recorded"),
        pytest.raises(ReplayMissError, match="No recording matches this request to POST stations"),
    ):
        asyncio.run(go(stdio(), "Linz"))


def test_a_timeout_replays_as_a_timeout(stdio: Start, tmp_path: Path) -> None:
    async def go(server: tools.McpServer) -> str:
        async with server:
            return results_of(await agent_of(server, call("crawl", {"pages": 9})).run("?"))[0].content

    with lab.record(tmp_path / "recorded"):
        live = asyncio.run(go(stdio(timeout_s=1)))
    with lab.replay(tmp_path / "recorded"):
        assert asyncio.run(go(stdio(timeout_s=1))) == live == "crawl did not finish within its limit of 1 s."


def test_keys_of_the_server_are_not_recorded(stdio: Start, folder: Path, tmp_path: Path) -> None:
    key = "tok-Zq81mN4pXw77"

    async def main() -> None:
        more = {"STATIONS_FOLDER": str(folder), "STATIONS_KEY": key}
        async with stdio(env=more) as server:
            await agent_of(server, call("find_station", {"name": key})).run("?")

    with lab.record(tmp_path / "recorded"):
        asyncio.run(main())
    assert key not in (tmp_path / "recorded" / "stations.yaml").read_text()


# What can go wrong ------------------------------------------------------------------------------------------------------------------

BOO = [sys.executable, "-c", "import sys; print('no licence', file=sys.stderr); sys.exit(3)"]
WAITS = [sys.executable, "-c", "import sys; sys.stdin.read()"]

UNUSABLE: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no command": (
        "no-such-command",
        {},
        "cannot be used: [Errno 2] No such file or directory: 'no-such-command'. Check that no-such",
    ),
    "it ends at once": (BOO, {}, "Connection closed. It wrote to stderr: no licence. Check that"),
    "nobody listens": (
        "http://127.0.0.1:9/mcp",
        {},
        "All connection attempts failed. Check that http://127.0.0.1:9/mcp is the URL",
    ),
    "no answer": (WAITS, {"start_timeout_s": 1}, "it did not answer within start_timeout_s=1"),
}


@pytest.mark.parametrize(("server", "more", "message"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_server_that_cannot_be_started_says_why(server: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(McpError) as caught:
        asyncio.run(tools.from_mcp(server, **more).open())
    assert message in str(caught.value)


LISTS = """
import json, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        answer = {"result": {"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}}
    elif asked["method"] == "tools/list":
        answer = json.loads(sys.argv[1])
        if answer == "end":
            sys.exit("out of memory")
        if answer == "wait":
            time.sleep(60)
    else:
        answer = {"error": {"code": -32601, "message": "Method not found"}}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""
GOOD, EMPTY = {"name": "a", "inputSchema": {"type": "object"}}, {"name": "b", "inputSchema": {}}

NO_LISTS: dict[str, tuple[Any, str]] = {
    "a bad tool": (
        {"result": {"tools": [GOOD, EMPTY]}},
        "its list of tools is not valid: tools.1.inputSchema.type: Field required. The MCP client refuses the whole list: correct",
    ),
    "no tools": (
        {"error": {"code": -32601, "message": "Method not found"}},
        "it did not list its tools: Method not found.",
    ),
    "it ends": ("end", "The next call starts it again. It wrote to stderr: out of memory."),
    "no answer": ("wait", "it did not list its tools within start_timeout_s=3."),
}


@pytest.mark.parametrize(("answer", "message"), NO_LISTS.values(), ids=NO_LISTS.keys())
def test_a_server_that_does_not_list_its_tools_says_why_and_is_ended(answer: Any, message: str) -> None:
    async def main() -> None:
        server = tools.from_mcp([sys.executable, "-c", LISTS, json.dumps(answer)], name="lists", start_timeout_s=3)
        try:
            with pytest.raises(McpError) as caught:
                await server.open()
            assert str(caught.value).startswith("The MCP server 'lists' cannot be used: ")
            assert message in str(caught.value)
            assert server.wire._connection.has_ended  # type: ignore[attr-defined]
        finally:
            await server.close()

    asyncio.run(main())


def test_a_server_that_refuses_the_client_says_so_with_its_status() -> None:
    with serving(script=lambda asked: status(401)) as served, pytest.raises(McpError, match=r"\(HTTP 401\)\. Check that http"):
        asyncio.run(tools.from_mcp(f"{served.base}/mcp").open())


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "nothing": ([], {}, r"pass a URL, or a command such as \[sys\.executable"),
    "headers of a command": ("x", {"headers": {"a": "b"}}, "headers cannot be set for a command"),
    "env of a URL": ("http://x.example/mcp", {"env": {"A": "b"}}, "env and cwd cannot be set for a URL"),
    "env as text": ("x", {"env": "KEY=1"}, r'env=…\): pass a dict, such as {"NAME": "value"}'),
    "no time": ("x", {"timeout_s": 0}, r"from_mcp\(timeout_s=0\): timeout_s must be above 0"),
    "no time to start": ("x", {"start_timeout_s": -1}, r"from_mcp\(start_timeout_s=-1\): start_timeout_s must be above 0"),
}


@pytest.mark.parametrize(("server", "more", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_settings_are_refused(server: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        tools.from_mcp(server, **more)


def test_the_client_is_an_extra_and_a_replay_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)  # as if it were not installed
    with pytest.raises(ConfigurationError, match=r"need the package mcp: pip install 'agentlab-jupyter\[mcp\]'"):
        asyncio.run(tools.from_mcp("python stations.py").open())
    with lab.replay("fixtures/mcp"):
        assert len(asyncio.run(tools.from_mcp("python stations.py").open())) == 2


def test_the_tools_of_a_server_that_is_not_open_are_not_known() -> None:
    server = tools.from_mcp("uvx mcp-server-time --local-timezone Europe/Vienna")
    assert repr(server) == "McpServer('mcp-server-time', not open)"
    with pytest.raises(ConfigurationError, match="are not known yet: write `async with lab"):
        agent_of(server)


def test_a_tool_whose_schema_cannot_be_used_is_left_out_with_a_warning(tmp_path: Path) -> None:
    listed = [{"name": "good", "inputSchema": {"type": "object"}}, {"name": "bad", "inputSchema": {"$ref": "http://x.example/a"}}]
    recorded = {
        "request": {"method": "POST", "uri": "mcp://x/tools/list", "body": "{}", "headers": {}},
        "response": {
            "status": {"code": 200, "message": ""},
            "headers": {},
            "body": {"string": json.dumps({"tools": listed}) + "\n"},
        },
    }
    (tmp_path / "x.json").write_text(json.dumps({"version": 1, "interactions": [recorded]}))
    with (
        lab.replay(tmp_path),
        pytest.warns(AgentlabWarning, match="has a tool that is left out. The tool 'bad' has a schema with"),
    ):
        assert [one.name for one in asyncio.run(tools.from_mcp("x").open())] == ["good"]


RESULTS: dict[str, tuple[dict[str, Any], Any]] = {
    "text": ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
    "structured": ({"content": [{"type": "text", "text": "{}"}], "structuredContent": {"a": [1]}}, {"a": [1]}),
    "wrapped": ({"content": [], "structuredContent": {"result": 5}}, 5),
    "file": ({"content": [{"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}]}, "inside"),
    "binary file": ({"content": [{"type": "resource", "resource": {"uri": "file:///a", "blob": "AAAA"}}]}, "[resource, 3 bytes]"),
    "link": ({"content": [{"type": "resource_link", "uri": "file:///a", "name": "a"}]}, "[resource_link: file:///a]"),
    "audio": ({"content": [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]}, "[audio/wav, 3 bytes]"),
    "nothing": ({"content": []}, ""),
}


@pytest.mark.parametrize(("result", "value"), RESULTS.values(), ids=RESULTS.keys())
def test_what_a_model_reads_of_a_result(result: dict[str, Any], value: Any) -> None:
    assert value_of(result) == value


def test_importing_agentlab_imports_no_mcp() -> None:
    code = "import sys, agentlab as lab; lab.Agent, lab.tools.from_mcp; print('mcp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert done.stdout.strip() == "False"
