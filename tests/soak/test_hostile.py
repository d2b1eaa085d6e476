"""Malicious files, answers and arguments: the attempts and their results; none may do harm."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import re
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import agentlab as lab
from agentlab.model.messages import ToolCall
from agentlab.testing import ScriptedProvider
from agentlab.tools import execute_call

from .table import show

PATIENCE = 1_000
"""Time limit for hostile input, as a multiple of counting to a million: unbounded work takes forever."""

OWNED = "owned-by-a-file"


@functools.cache
def count_s() -> float:
    """The time in which this machine counts to a million: the least of several."""
    taken = []
    for _ in range(5):
        began_s = time.process_time()
        sum(range(1_000_000))
        taken.append(time.process_time() - began_s)
    return min(taken)


def outcome_of(what: Callable[[], object], longest: int = 150) -> str:
    """The outcome: refused with an error of ours, or accepted. Anything else is our bug and is raised."""
    began_s = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gave = what()
    except lab.AgentlabError as error:
        outcome = f"{type(error).__name__}: {' '.join(str(error).split())}"
    else:
        outcome = f"taken: {gave}" if isinstance(gave, str) else "taken"
    assert time.process_time() - began_s < PATIENCE * count_s(), "it took too long"
    return re.sub(r"(?:/[^/' ]+)+/pytest-\d+/[^/' ]+/", "…/", outcome)[:longest]


def refused_as(expected: Mapping[str, str], rows: Iterable[Sequence[object]]) -> None:
    """Assert that each row ended as designed: `taken`, or refused with one of our errors whose message contains such a word."""
    outcome = {str(row[0]): str(row[1]) for row in rows}
    usual = "MalformedCassetteError" if expected is CASSETTES_END else "StorageError"
    kinds = {name: (usual, word) for name, word in expected.items()}
    kinds |= {name: (word.partition(": ")[0], word.partition(": ")[2]) for name, word in expected.items() if "Error: " in word}
    kinds |= {name: (word, word) for name, word in expected.items() if word.startswith("taken")}
    assert {name: text for name, text in outcome.items() if name not in kinds} == {}
    wrong = {name: (text, kinds[name]) for name, text in outcome.items() if not _is(text, *kinds[name])}
    assert wrong == {}


def _is(text: str, kind: str, word: str) -> bool:
    return text.startswith(kind) and word in text


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
    "a body that is a mapping of mappings": ("json", _entry(body={"string": {"string": {}}})),
    "an address with a path that escapes": ("json", _entry()),
}


CASSETTES_END = {
    "a tag that calls os.system": "not safe YAML: could not determine a constructor",
    "a tag that makes an object": "not safe YAML: could not determine a constructor",
    "a bomb of aliases (9^10)": "its aliases expand to far more",
    "an alias of itself": "its aliases expand to far more",
    "merge keys": "merge keys (<<) are refused",
    "100,000 brackets": "nested too deeply",
    "100,000 brackets in JSON": "nested too deeply",
    "a number of 1,000,000 digits": "Exceeds the limit",
    "NUL bytes": "control characters are not allowed",
    "NUL bytes in JSON": "not JSON",
    "bytes that are no UTF-8": "not UTF-8 text",
    "a status of 10^400": "response.status: expected",
    "chunks larger than the body, and below 0": "response.chunks: expected a list of numbers of at least 0",
    "a delay of 10^300 s": "taken: error",  # its body is {}, which is no answer; without pace= delays are ignored
    "a delay that is NaN": "response.delays_s: expected a list of numbers",
    "a header with a line break": "taken: error",
    "a body that is a mapping of mappings": "response.body: expected text",
    "an address with a path that escapes": "taken: error",
    "a folder with links to itself, /proc and /dev/zero": "secret.yaml",
}


def test_hostile_cassettes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    provider = lab.Provider("compatible", model="m", base_url="http://h/v1")

    def use(path: Path) -> str:
        with lab.replay(path, match="order"):
            run = lab.Agent(provider, retry=lab.RetryPolicy(attempts=1)).run("go", budget=lab.Budget(max_turns=1))
            return f"{asyncio.run(_finished(run)).stop_reason}"

    rows = []
    for number, (name, (kind, text)) in enumerate(CASSETTES.items()):
        folder = tmp_path / f"c{number}"
        folder.mkdir()
        (folder / f"h.{kind}").write_bytes(text)
        rows.append([name, outcome_of(lambda folder=folder: use(folder))])
    loop = tmp_path / "loop"
    loop.mkdir()
    (loop / "again").symlink_to(loop)
    (loop / "secret.yaml").symlink_to("/proc/self/environ")
    (loop / "endless.yaml").symlink_to("/dev/zero")
    rows.append(["a folder with links to itself, /proc and /dev/zero", outcome_of(lambda: use(loop))])
    show("hostile-cassettes", ["a cassette with", "what happened"], rows)
    refused_as(CASSETTES_END, rows)
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
    "no table": lambda db: db.execute("DROP TABLE steps"),
    "another application's number": lambda db: db.execute("PRAGMA application_id = 7"),
    "a version from the future": lambda db: db.execute("PRAGMA user_version = 999"),
}


DAMAGED = " damaged"
STORES_END = dict.fromkeys(STORES, DAMAGED) | {
    "a head that names a class to make": "taken",
    "a step number of 10^15": "taken",
    "no table": "no such table",
    "another application's number": "a database of another program",
    "a version from the future": "written by a newer agentlab",
    "noise": "not a database",
    "the head of a database and noise": "cannot be",
    "a link to /dev/zero": "cannot be",
}


def test_hostile_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = []
    for number, (name, spoil) in enumerate(STORES.items()):
        path = tmp_path / f"{number}.sqlite"
        _kept(path)
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            spoil(database)
        database.close()
        rows.append([name, outcome_of(lambda path=path: _all_of(path))])
    for name, data in {
        "noise": b"\x93" * 5000,
        "the head of a database and noise": b"SQLite format 3\0" + b"\x93" * 5000,
    }.items():
        path = tmp_path / f"{name}.sqlite"
        path.write_bytes(data)
        rows.append([name, outcome_of(lambda path=path: _all_of(path))])
    (tmp_path / "link.sqlite").symlink_to("/dev/zero")
    rows.append(["a link to /dev/zero", outcome_of(lambda: _all_of(tmp_path / "link.sqlite"))])
    show("hostile-stores", ["a store with", "what happened"], rows)
    refused_as(STORES_END, rows)
    assert not (tmp_path / OWNED).exists()
    assert not (tmp_path / "owned").exists()


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
                new.frame("steps")

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


NO_PARQUET = "cannot be read as Parquet"
PARQUET_END = {
    "noise": NO_PARQUET,
    "cut in half": NO_PARQUET,
    "empty": NO_PARQUET,
    "a footer of 2 GB declared": NO_PARQUET,
    "body as numbers": DAMAGED,
    "body nested 100,000 deep": DAMAGED,
    "row that is no JSON": DAMAGED,
    "step as text": "the column 'step' is",
    "tokens as dates": "the column 'input_tokens' is",
    "a link to /dev/zero": "ConfigurationError: the folder has no steps.parquet",
}


def test_hostile_parquet_files(tmp_path: Path) -> None:
    rows = [[name, outcome_of(read)] for name, read in _parquet(tmp_path)]
    show("hostile-parquet", ["a Parquet file", "what happened"], rows)
    refused_as(PARQUET_END, rows)


OTEL_END = {
    "noise": "1 broken piece",
    "nested 100,000 deep": "1 broken piece",
    "a span that is its own parent": "taken: 1 run, 1 step, input tokens unknown",
    "times of 10^400": "taken: 1 run, 1 step, input tokens unknown, time unknown",
    "a count of 5,000 digits": "taken: 1 run, 1 step, input tokens unknown",
    "attributes that are a number": "No run can be read",
    "NaN": "taken: 1 run, 1 step, input tokens unknown",
}


def _read(path: Path) -> str:
    """The result as plain data."""
    found = lab.importers.otel(path)
    tokens, time_s = found.steps["input_tokens"].iloc[0], found.runs["elapsed_s"].iloc[0]
    reported = ["unknown" if value is pd.NA or value != value else str(value) for value in (tokens, time_s)]
    return f"{len(found.runs)} run, {len(found.steps)} step, input tokens {reported[0]}, time {reported[1]}"


def test_hostile_otel_spans(tmp_path: Path) -> None:
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
        rows.append([name, outcome_of(lambda path=path: _read(path))])
    show("hostile-otel", ["spans", "what happened"], rows)
    refused_as(OTEL_END, rows)


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
    "the same key twice": ('{"count": 3, "count": 4, "ratio": 1, "name": "x"}', True),  # the last one counts, as everywhere
    "a list for an object": ('[3, 1, "x"]', False),
    "no JSON behind it": ('{"count": 3, "ratio": 1, "name": "x"} rm -rf', False),
    "half a character": ('{"count": 3, "ratio": 1, "name": "\\ud800"}', False),
    "NUL in a text": ('{"count": 3, "ratio": 1, "name": "a\\u0000b"}', True),
    "null": ('{"count": null, "ratio": 1, "name": "x"}', False),
    "a field too few": ('{"count": 3}', False),
}


def test_hostile_tool_arguments() -> None:
    got: list[tuple[int, float, str]] = []

    @lab.tool(inline=True)
    def work(count: int, ratio: float, name: str) -> str:
        """Work."""
        got.append((count, ratio, name))
        return "done"

    rows, wrong = [], []
    for name, (arguments, is_taken) in ARGUMENTS.items():
        got.clear()
        result = asyncio.run(execute_call(ToolCall("1", "work", arguments), {"work": work})).result
        outcome = "taken: " + ascii(got[0])[:60] if got else f"{result.error}: {' '.join(result.content.split())}"[:110]
        rows.append([name, ascii(outcome)[1:-1]])
        wrong += [(name, outcome)] if bool(got) is not is_taken else []
    show("hostile-arguments", ["arguments", "what happened"], rows)
    assert wrong == []
