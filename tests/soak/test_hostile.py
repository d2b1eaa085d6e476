"""Files, answers, arguments and requests that mean harm. What was tried and what happened; nothing of it may do any."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from serve.made import parrot, serving

import agentlab as lab
from agentlab.testing import ScriptedProvider
from agentlab.tools import execute
from agentlab.types import ToolCall

from .table import show

PATIENCE_S = 20.0
OWNED = "owned-by-a-file"


def told(what: Callable[[], object]) -> str:
    """What came of it: refused by an error of ours, or taken. Anything else is a fault of ours, and is raised."""
    began = time.monotonic()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            what()
    except lab.AgentlabError as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
    else:
        said = "taken"
    assert time.monotonic() - began < PATIENCE_S, "it took too long"
    return said[:110]


# Cassettes ---------------------------------------------------------------------------------------------------------------------

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)
)
ENTRY: dict[str, Any] = {
    "request": {"method": "POST", "uri": "http://h/v1/chat/completions", "body": "{}", "headers": {}},
    "response": {"status": {"code": 200}, "headers": {}, "body": {"string": "{}"}},
}


def _entry(**response: Any) -> bytes:
    return json.dumps({"version": 1, "interactions": [ENTRY | {"response": ENTRY["response"] | response}]}).encode()


CASSETTES: dict[str, tuple[str, bytes]] = {
    "a tag that calls os.system": ("yaml", f'!!python/object/apply:os.system ["touch {OWNED}"]\n'.encode()),
    "a tag that makes an object": ("yaml", b"interactions: [!!python/object:subprocess.Popen {args: [touch, owned]}]\n"),
    "a bomb of aliases (9^10)": ("yaml", BOMB.encode()),
    "an alias of itself": ("yaml", b"interactions: &x [*x]\n"),
    "merge keys": ("yaml", b"a: &a {x: 1}\ninteractions: [{<<: *a}]\n"),
    "100,000 brackets": ("yaml", b"[" * 100_000),
    "100,000 brackets in JSON": ("json", b"[" * 100_000),
    "a number of 1,000,000 digits": ("json", b'{"version": ' + b"9" * 1_000_000 + b', "interactions": []}'),
    "NUL bytes": ("yaml", b"interactions: \0\0\0\n"),
    "NUL bytes in JSON": ("json", b'{"interactions": [\0]}'),
    "bytes that are no UTF-8": ("yaml", b"interactions: \xff\xfe\xfd\n"),
    "a status of 10^400": ("json", _entry(status={"code": 10**300})),
    "chunks larger than the body, and below 0": ("json", _entry(chunks=[10**12, -5])),
    "a delay of 10^300 s": ("json", _entry(chunks=[1, 1], delays_s=[1e300, 1e300, 1e300])),
    "a delay that is NaN": ("json", _entry(delays_s=[float("nan")])),
    "a header with a line break": ("json", _entry(headers={"x": ["a\r\nset-cookie: b"]})),
    "a gzip bomb": ("json", b""),
    "a body that is a mapping of mappings": ("json", _entry(body={"string": {"string": {}}})),
    "an address with a path that escapes": ("json", _entry()),
}


def _gzip_bomb() -> bytes:
    import base64
    import zlib

    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join(packer.compress(b"\0" * 2**20) for _ in range(600)) + packer.flush()
    return _entry(headers={"content-encoding": ["gzip"]}, body={"base64_string": base64.b64encode(packed).decode()})


def test_cassettes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    provider = lab.Provider("compatible", model="m", base_url="http://h/v1")

    def use(path: Path) -> None:
        with lab.replay(path, match="order"):
            run = lab.Agent(provider, retry=lab.RetryPolicy(attempts=1)).run("go", budget=lab.Budget(max_turns=1))
            asyncio.run(_finished(run))

    rows = []
    for number, (name, (kind, text)) in enumerate(CASSETTES.items()):
        folder = tmp_path / f"c{number}"
        folder.mkdir()
        (folder / f"h.{kind}").write_bytes(text or _gzip_bomb())
        rows.append([name, told(lambda folder=folder: use(folder))])
    loop = tmp_path / "loop"
    loop.mkdir()
    (loop / "again").symlink_to(loop)
    (loop / "secret.yaml").symlink_to("/proc/self/environ")
    (loop / "endless.yaml").symlink_to("/dev/zero")
    rows.append(["a folder with links to itself, /proc and /dev/zero", told(lambda: use(loop))])
    show("hostile-cassettes", ["a cassette with", "what happened"], rows)
    assert not (tmp_path / OWNED).exists()
    assert "root" not in str(rows)


async def _finished(run: lab.Run) -> lab.RunResult:
    return await run


# Stores and Parquet ------------------------------------------------------------------------------------------------------------


def _kept(path: Path) -> str:
    with lab.Store(path) as store:
        run = lab.Agent(ScriptedProvider(["done"])).run("go", observers=[store])
        asyncio.run(_finished(run))
    return run.id


def _all_of(path: Path) -> None:
    with lab.Store(path) as store:
        for run_id in store.run_ids():
            store.load(run_id)
        for what in ("runs", "steps", "calls", "tools", "events"):
            store.frame(what)
        repr(store)


STORES: dict[str, Callable[[sqlite3.Connection], object]] = {
    "a body that is no JSON": lambda db: db.execute("UPDATE steps SET body = '{'"),
    "a body nested 100,000 deep": lambda db: db.execute("UPDATE steps SET body = ?", ["[" * 100_000]),
    "a body of another shape": lambda db: db.execute('UPDATE steps SET body = \'{"step": [], "messages": 3}\''),
    "a row that is a list": lambda db: db.execute("UPDATE steps SET row = '[1, 2]'"),
    "a row of wrong types": lambda db: db.execute('UPDATE steps SET row = \'{"step": "x", "input_tokens": {}, "text": 3}\''),
    "a head that is NULL bytes": lambda db: db.execute("UPDATE runs SET head = ?", [b"\0\0"]),
    "a head that names a class to make": lambda db: db.execute(
        'UPDATE runs SET head = json_set(head, \'$.settings.stop\', json(\'{"type": "os.system", "args": ["touch owned"]}\'))'
    ),
    "a blob where text is": lambda db: db.execute("UPDATE steps SET body = ?", [b"\xff" * 1000]),
    "a body of 100 MB": lambda db: db.execute("UPDATE steps SET body = ?", ["x" * 100_000_000]),
    "a step number of 10^15": lambda db: db.execute("UPDATE steps SET id = id + 1000000000000000"),
    "a trigger that deletes": lambda db: db.execute("CREATE TRIGGER t AFTER INSERT ON steps BEGIN DELETE FROM steps; END"),
    "a view in the place of a table": lambda db: db.executescript(
        "ALTER TABLE steps RENAME TO other; CREATE VIEW steps AS SELECT * FROM other"
    ),
    "an endless view": lambda db: db.executescript(
        "ALTER TABLE steps RENAME TO other; CREATE VIEW steps AS WITH RECURSIVE c(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM c) "
        "SELECT id, '{}' AS row, '{}' AS body FROM c"
    ),
    "no table": lambda db: db.execute("DROP TABLE steps"),
    "another application's number": lambda db: db.execute("PRAGMA application_id = 7"),
    "a version from the future": lambda db: db.execute("PRAGMA user_version = 999"),
}


def test_stores(tmp_path: Path) -> None:
    rows = []
    for number, (name, spoil) in enumerate(STORES.items()):
        path = tmp_path / f"{number}.sqlite"
        _kept(path)
        with sqlite3.connect(path) as database:
            spoil(database)
        database.close()
        rows.append([name, told(lambda path=path: _all_of(path))])
    for name, data in {
        "noise": b"\x93" * 5000,
        "the head of a database and noise": b"SQLite format 3\0" + b"\x93" * 5000,
    }.items():
        path = tmp_path / f"{name}.sqlite"
        path.write_bytes(data)
        rows.append([name, told(lambda path=path: _all_of(path))])
    (tmp_path / "link.sqlite").symlink_to("/dev/zero")
    rows.append(["a link to /dev/zero", told(lambda: _all_of(tmp_path / "link.sqlite"))])
    show("hostile-stores", ["a store with", "what happened"], rows)


def _parquet(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def spoiled(name: str, spoil: Callable[[Path], object]) -> tuple[str, Callable[[], object]]:
        place = folder / name.replace(" ", "-").replace("/", "")
        _kept(folder / "good.sqlite") if not (folder / "good.sqlite").exists() else None
        with lab.Store(folder / "good.sqlite") as store:
            store.export(place)
        spoil(place)

        def read() -> None:
            lab.importers.parquet(place)
            with lab.Store(place / "new.sqlite") as new:
                new.import_from(place)
                for run_id in new.run_ids():
                    new.load(run_id)

        return name, read

    def change(column: str, values: Any) -> Callable[[Path], object]:
        def spoil(place: Path) -> None:
            table = pq.read_table(place / "steps.parquet")
            at = table.column_names.index(column)
            pq.write_table(table.set_column(at, column, values), place / "steps.parquet")

        return spoil

    yield spoiled("noise", lambda place: (place / "steps.parquet").write_bytes(b"PAR1" + b"\x93" * 5000 + b"PAR1"))
    yield spoiled(
        "cut in half", lambda place: (place / "steps.parquet").write_bytes((place / "steps.parquet").read_bytes()[:900])
    )
    yield spoiled("empty", lambda place: (place / "steps.parquet").write_bytes(b""))
    yield spoiled(
        "a footer of 2 GB declared",
        lambda place: (place / "steps.parquet").write_bytes(
            (place / "steps.parquet").read_bytes()[:-8] + b"\xff\xff\xff\x7fPAR1"
        ),
    )
    yield spoiled("body as numbers", change("body", pa.array([7])))
    yield spoiled("body nested 100,000 deep", change("body", pa.array(["[" * 100_000])))
    yield spoiled("row that is no JSON", change("row", pa.array(["{"])))
    yield spoiled("step as text", change("step", pa.array(["one"])))
    yield spoiled("tokens as dates", change("input_tokens", pa.array([0], pa.timestamp("s"))))
    yield spoiled(
        "a link to /dev/zero",
        lambda place: ((place / "steps.parquet").unlink(), (place / "steps.parquet").symlink_to("/dev/zero")),
    )


def test_parquet(tmp_path: Path) -> None:
    rows = [[name, told(read)] for name, read in _parquet(tmp_path)]
    show("hostile-parquet", ["a Parquet file", "what happened"], rows)


def test_otel(tmp_path: Path) -> None:
    span = {"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "name": "chat m", "startTimeUnixNano": "1", "endTimeUnixNano": "2"}  # fmt: skip  # noqa: E501
    usual = {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}

    def line(**more: Any) -> str:
        return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{**span, "attributes": [usual], **more}]}]}]})

    tokens = {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "9" * 5000}}
    tried = {
        "noise": "\x93" * 100,
        "nested 100,000 deep": "[" * 100_000,
        "a span that is its own parent": line(parentSpanId=span["spanId"]),
        "times of 10^400": line(startTimeUnixNano="9" * 400, endTimeUnixNano="-" + "9" * 400),
        "a count of 5,000 digits": line(attributes=[usual, tokens]),
        "attributes that are a number": line(attributes=3),
        "NaN": line(startTimeUnixNano=float("nan")),
    }
    rows = []
    for number, (name, text) in enumerate(tried.items()):
        path = tmp_path / f"{number}.jsonl"
        path.write_text(text + "\n", encoding="utf-8")
        rows.append([name, told(lambda path=path: lab.importers.otel(path))])
    show("hostile-otel", ["spans", "what happened"], rows)


# Arguments ---------------------------------------------------------------------------------------------------------------------

ARGUMENTS: dict[str, tuple[str, bool]] = {
    "as asked for": ('{"count": 3, "ratio": 0.5, "name": "x"}', True),
    "NaN": ('{"count": 3, "ratio": NaN, "name": "x"}', False),
    "Infinity": ('{"count": 3, "ratio": Infinity, "name": "x"}', False),
    "1e999": ('{"count": 3, "ratio": 1e999, "name": "x"}', False),
    "an integer of 5,000 digits": ('{"count": ' + "9" * 5000 + ', "ratio": 1, "name": "x"}', False),
    "a number with a fraction for an integer": ('{"count": 1.5, "ratio": 1, "name": "x"}', False),
    "100,000 brackets": ('{"count": 1, "ratio": 1, "name": ' + "[" * 100_000, False),
    "a field too many": ('{"count": 3, "ratio": 1, "name": "x", "admin": true}', False),
    "__proto__": ('{"count": 3, "ratio": 1, "name": "x", "__proto__": {"admin": true}}', False),
    "__class__": ('{"count": 3, "ratio": 1, "name": "x", "__class__": "os"}', False),
    "the same key twice": ('{"count": 3, "count": 4, "ratio": 1, "name": "x"}', True),  # the last one holds, as everywhere
    "a list for an object": ('[3, 1, "x"]', False),
    "no JSON behind it": ('{"count": 3, "ratio": 1, "name": "x"} rm -rf', False),
    "half a character": ('{"count": 3, "ratio": 1, "name": "\\ud800"}', False),
    "NUL in a text": ('{"count": 3, "ratio": 1, "name": "a\\u0000b"}', True),
    "null": ('{"count": null, "ratio": 1, "name": "x"}', False),
    "a field too few": ('{"count": 3}', False),
}


def test_arguments() -> None:
    got: list[tuple[int, float, str]] = []

    @lab.tool(inline=True)
    def work(count: int, ratio: float, name: str) -> str:
        """Work."""
        got.append((count, ratio, name))
        return "done"

    rows, wrong = [], []
    for name, (arguments, is_taken) in ARGUMENTS.items():
        got.clear()
        result = asyncio.run(execute(ToolCall("1", "work", arguments), {"work": work}))
        said = "taken: " + ascii(got[0])[:60] if got else f"{result.error}: {' '.join(result.content.split())}"[:110]
        rows.append([name, ascii(said)[1:-1]])
        wrong += [(name, said)] if bool(got) is not is_taken else []
    show("hostile-arguments", ["arguments", "what happened"], rows)
    assert wrong == []


# The server --------------------------------------------------------------------------------------------------------------------

BODY = b'{"context_id": "a", "message": "hello"}'


def _ask(port: int, *lines: str, body: bytes = BODY, method: str = "POST", path: str = "/chat", wait_s: float = 3.0) -> str:
    """The status line that the server answers to these bytes with."""
    headers = [f"{method} {path} HTTP/1.1", *lines]
    if not any(line.lower().startswith(("content-length", "transfer-encoding")) for line in lines):
        headers.append(f"content-length: {len(body)}")
    with socket.create_connection(("127.0.0.1", port), timeout=wait_s) as wire:
        try:
            wire.sendall("\r\n".join(headers).encode("latin-1") + b"\r\n\r\n" + body)
            answer = wire.recv(4096)
        except TimeoutError:
            return "no answer, waits"
        except ConnectionError:
            return "connection closed"
    head, _, rest = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n")[0].decode("latin-1").removeprefix("HTTP/1.1 ")
    try:
        return f"{status}: {json.loads(rest)['error']['type']}"
    except (ValueError, KeyError, TypeError):
        return status


def test_server() -> None:
    rows: list[list[object]] = []
    for token in (None, "a-token-of-the-server-1"):
        chat = lab.Chat(parrot())
        with serving(chat, token=token) as client:
            client.headers["authorization"] = f"Bearer {token}"
            port = client.base_url.port
            assert port is not None
            host = f"host: 127.0.0.1:{port}"
            kind = "content-type: application/json"
            usual = [host, kind, *([f"authorization: Bearer {token}"] if token else [])]
            deep = b'{"context_id": "a", "message": ' + b"[" * 400_000
            tried: dict[str, tuple[str, str]] = {
                "as it should be": (_ask(port, *usual), "200"),
                "another host name (DNS rebinding)": (_ask(port, "host: evil.example", *usual[1:]), "200" if token else "403"),
                "no host": (_ask(port, *usual[1:]), "400"),
                "two hosts": (_ask(port, host, "host: evil.example", *usual[1:]), "400"),
                "a page of another origin": (_ask(port, *usual, "origin: https://evil.example"), "403"),
                "origin null": (_ask(port, *usual, "origin: null"), "403"),
                "origin with this server's name in it": (_ask(port, *usual, f"origin: http://127.0.0.1:{port}.evil.example"), "403"),
                "asked beforehand (OPTIONS) by another origin": (
                    _ask(port, *usual, "origin: https://evil.example", "access-control-request-method: POST", method="OPTIONS"),
                    "403",
                ),
                "text/plain, as a form of a page sends it": (_ask(port, usual[0], "content-type: text/plain", *usual[2:]), "4"),
                "a form": (_ask(port, usual[0], "content-type: application/x-www-form-urlencoded", *usual[2:]), "4"),
                "no content type": (_ask(port, usual[0], *usual[2:]), "4"),
                "2 GB announced": (_ask(port, *usual, "content-length: 2147483648", body=b"x" * 1_100_000), "413"),
                "a length below 0": (_ask(port, *usual, "content-length: -1"), "400"),
                "length and chunks at once": (_ask(port, *usual, "content-length: 5", "transfer-encoding: chunked", body=b"0\r\n\r\n"), "4"),  # noqa: E501
                "JSON nested 400,000 deep": (_ask(port, *usual, body=deep), "400"),
                "NaN": (_ask(port, *usual, body=b'{"context_id": "a", "message": NaN}'), "4"),
                "the same key twice": (_ask(port, *usual, body=b'{"context_id": "a", "context_id": "b", "message": "x"}'), ""),
                "bytes that are no UTF-8": (_ask(port, *usual, body=b'{"context_id": "a", "message": "\xff"}'), "4"),
                "a context id with ../": (_ask(port, *usual, body=b'{"context_id": "../../etc", "message": "x"}'), "200"),
                "a path that escapes": (_ask(port, *usual, method="GET", path="/../../etc/passwd"), "404"),
                "the same, encoded": (_ask(port, *usual, method="GET", path="/%2e%2e/%2e%2e/etc/passwd"), "404"),
                "a header line of 100 KB": (_ask(port, *usual, "x: " + "y" * 100_000), "4"),
                "10,000 header lines": (_ask(port, *usual, *["x: y"] * 10_000), "4"),
                "no HTTP": (_ask(port, "\0\0\0", method="\x16\x03\x01"), "400"),
                "a WebSocket": (_ask(port, *usual, "connection: upgrade", "upgrade: websocket", "sec-websocket-key: x", "sec-websocket-version: 13", method="GET", body=b""), "4"),  # noqa: E501
            }  # fmt: skip
            if token:
                tried |= {
                    "no token": (_ask(port, *usual[:2]), "401"),
                    "a wrong token": (_ask(port, *usual[:2], "authorization: Bearer wrong"), "401"),
                    "the token in the query": (_ask(port, *usual[:2], path=f"/chat?token={token}"), "401"),
                    "the token as Basic": (_ask(port, *usual[:2], f"authorization: Basic {token}"), "401"),
                    "an empty token": (_ask(port, *usual[:2], "authorization: Bearer "), "401"),
                    "no token, the document": (_ask(port, host, method="GET", path="/openapi.json"), "401"),
                }
            slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
            for wire in slow:
                wire.sendall(b"POST /chat HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 10\r\n\r\n{")
            tried["beside 200 senders that never come to an end"] = _ask(port, *usual), "200"
            for wire in slow:
                wire.close()
            tried["after all of this"] = _ask(port, *usual), "200"
            rows += [["token" if token else "no token", name, *outcome] for name, outcome in tried.items()]
    show("hostile-requests", ["server", "request", "what happened", "wanted"], rows)
    assert [row for row in rows if not str(row[2]).startswith(str(row[3]))] == []
