"""Keys are planted in every possible source and searched for in every possible sink. None is found."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from engine.server import serving
from interop.collected import Collected
from thread_tools import drawn

import agentlab as lab
from agentlab._internal import secrets as known_keys
from agentlab.limits.combinators import Custom
from agentlab.notebook.page.data import page_data
from agentlab.notebook.page.steps import Shown
from agentlab.notebook.panel.feed import Feed
from agentlab.records.frames import FRAMES

from .planted_keys import ALL, IN_ENVIRONMENT, KEYS, SENT, SOURCES, Source, found_in
from .table import show

QUICK = lab.RetryPolicy(attempts=2, first_wait_s=0.0, longest_wait_s=0.0)
Sinks = dict[str, str]
"""The output of each sink, as text."""


@pytest.fixture(autouse=True)
def _planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in IN_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    known_keys.read_environment()
    yield
    monkeypatch.undo()
    known_keys.read_environment()


class Everything(logging.Handler):
    """All log records of any logger, as in a log file."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.text = io.StringIO()
        self.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=self.text)


def agent_of(source: Source, base: str) -> lab.Agent:
    def look(q: str = "") -> Any:
        if source.tool_raises:
            raise RuntimeError(source.tool)
        return lab.Stop(source.tool, output=source.tool) if source.tool_stops else source.tool

    provider = lab.Provider("openai", model="some-model", base_url=base, api_key=SENT, headers={"x-gateway-token": SENT})
    return lab.Agent(
        provider,
        tools=[lab.tool(inline=True, name=source.tool_name, description=source.tool_description)(look)],
        instructions=source.instructions,
        options=source.options or {},
        stream=source.streamed,
        retry=QUICK,
        name=source.name,
    )


def settings_of(source: Source) -> dict[str, Any]:
    stop = {"stop": Custom(_raises)} if source.stop_raises else {}
    return {"budget": lab.Budget(max_turns=3)} | source.settings() | stop


def _raises(history: lab.RunHistory) -> bool:
    raise RuntimeError(f"this condition says {ALL}")


def went_through(source: Source, folder: Path, store: lab.Store) -> tuple[Sinks, lab.Run]:
    """A run from this source, with every recorder and display turned on, and its own outputs."""
    logged, collected, observed = Everything(), Collected(content=True), []
    root = logging.getLogger()
    level = root.level
    root.addHandler(logged)
    root.setLevel(logging.DEBUG)
    sinks: Sinks = {}
    try:
        with serving(script=source.says) as server, warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            agent = agent_of(source, server.base)
            settings = settings_of(source)
            for kind in ("yaml", "json"):
                path = folder / f"recorded.{kind}"
                with lab.record(path):
                    run = agent.run(source.prompt, observers=[store, collected.telemetry, observed.append], **settings)
                    asyncio.run(_finished(run))
                sinks[f"fixture ({kind})"] = path.read_text("utf-8") if path.exists() else ""
            chat = lab.Chat(agent, folder / "chat.sqlite")
            try:
                reply = repr(asyncio.run(chat.chat("anna", source.prompt)))
            except Exception as error:
                reply = "".join(traceback.format_exception(error))
            chat.close()
    finally:
        root.removeHandler(logged)
        root.setLevel(level)
    result = run.result
    assert result is not None
    sinks["provenance"] = json.dumps(run.provenance.to_dict())
    sinks["log (DEBUG)"] = logged.text.getvalue()
    values: list[Any] = [result, run, agent, agent.model, *result.history, *result.events, *result.messages, *observed]
    values += [step.calls for step in result.history] + [step.tool_results for step in result.history] + [result.conditions_met]
    values += [
        run.limits,
        run.limits.snapshot(),
        run.limits.conditions,
        settings,
        run.next_actions,
        *agent.tools.values(),
        agent.tool_specs,
        run.provenance,
    ]
    sinks["repr"] = "\n".join([*map(repr, values), result.detail, *(step.decision.reason for step in result.history)])
    sinks["traceback"] = _traceback(result) + "".join(str(one.message) for one in warned)
    sinks["telemetry"] = "\n".join(span.to_json() for span in collected.spans)
    shown = [
        value for value in (*values, *run.limits.conditions.values(), *run.next_actions) if hasattr(value, "_repr_mimebundle_")
    ]
    sinks["page"] = json.dumps([value._repr_mimebundle_() for value in shown]) + _panel(run)
    sinks["chat"] = reply + _bytes_of(folder, "chat.sqlite")
    loaded = store.load(run.id)
    sinks["loaded again"] = "\n".join([repr(loaded), repr(loaded.result), *(message.text for message in loaded.messages)])
    return sinks, run


def of_all(runs: list[lab.Run], store: lab.Store, folder: Path) -> Sinks:
    """The outputs that take many runs at once."""
    results = [run.result for run in runs if run.result is not None]
    store.export(folder / "parquet")
    frames = [frame for what in FRAMES for frame in (lab.frame(results, what), store.frame(what))]
    return {
        "Parquet": _bytes_of(folder / "parquet", "") + lab.importers.parquet(folder / "parquet").steps.to_json(),
        "frames": "\n".join(map(_cells, frames)),
        "provenance": _cells(lab.provenance(runs)) + _cells(lab.provenance(store)),
        "what-if": _what_if(store),
        "store": repr(store) + _bytes_of(folder, "runs.sqlite"),
    }


async def _finished(run: lab.Run) -> None:
    try:
        await run
    except lab.AgentlabError:
        assert run.result is not None


def _cells(frame: Any) -> str:
    """All cells in full. A plain frame's HTML and its repr are pandas' own, and have the beginnings of the same texts."""
    assert type(frame) is pd.DataFrame
    return frame.to_csv()


def _bytes_of(folder: Path, beginning: str) -> str:
    """The bytes of a database, including its journal, or of all files of a folder."""
    return "".join(path.read_bytes().decode("latin-1") for path in sorted(folder.glob(f"{beginning}*")) if path.is_file())


def _traceback(result: lab.RunResult) -> str:
    """The printed traceback: plain, and by IPython with the values of variables. The error that ended the run is mostly the cause
    of the one that is raised, and printed with it."""
    every = (result.error, *(step.error for step in result.history))  # the last one is in both
    errors = {id(error): error for error in every if isinstance(error, lab.AgentlabError)}
    shown = [*map(repr, errors.values())]
    try:
        result.raise_for_stop()
    except lab.AgentlabError as stopped:
        errors[id(stopped)] = stopped
        errors.pop(id(stopped.__cause__), None)
    for error in errors.values():
        shown += [*traceback.format_exception(error), _verbose(error)]
    return "".join(shown)


def _verbose(error: BaseException) -> str:
    from IPython.core.ultratb import VerboseTB

    return "\n".join(map(str, VerboseTB(theme_name="nocolor").structured_traceback(type(error), error, error.__traceback__, 1)))


def _panel(run: lab.Run) -> str:
    """What a page is sent of the panel, with the details of each step, and the texts of its widget."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTLAB_FRONTEND", "widgets")
        panel = run.panel()
        drawn(panel)
        shown = [page_data([run], "Run", Shown(raw=True)), Feed((run,)).news(), panel.widget.get_state()]
    return "\n".join(map(str, shown))


def _what_if(store: lab.Store) -> str:
    parts = []
    for call in (lambda: lab.backtest(store, lab.StepCountIs([1, 2])), lambda: lab.suggest(store, lab.StepCountIs([1, 2]))):
        try:
            returned = call()
            parts.append(repr(returned) + (_cells(returned) if hasattr(returned, "to_csv") else ""))
        except lab.AgentlabError as error:
            parts += traceback.format_exception(error)
    return "\n".join(parts)


@pytest.mark.timeout(300)
def test_no_planted_key_is_found(tmp_path: Path) -> None:
    everything: dict[str, Sinks] = {}
    runs = []
    with lab.Store(tmp_path / "runs.sqlite") as store:
        for number, (name, source) in enumerate(SOURCES.items()):
            folder = tmp_path / str(number)
            folder.mkdir()
            everything[name], run = went_through(source, folder, store)
            runs.append(run)
        everything["all of these, in one store"] = of_all(runs, store, tmp_path)
    columns = list(dict.fromkeys(sink for sinks in everything.values() for sink in sinks))
    rows, found = [], []
    for name, sinks in everything.items():
        empty = [sink for sink, text in sinks.items() if not text]  # if nothing went wrong or nothing arrived
        assert not {*empty} - {"traceback", "fixture (yaml)", "fixture (json)"}, (name, empty)
        leaks = {sink: found_in(text) for sink, text in sinks.items()}
        found += [(name, sink, keys) for sink, keys in leaks.items() if keys]
        cells = {sink: f"{len(keys)} FOUND" if keys else "none" if sinks[sink] else "" for sink, keys in leaks.items()}
        rows.append([name, *(cells.get(sink, "") for sink in columns)])
    summed = f"{len(KEYS)} keys x {len(SOURCES)} sources x {len(columns)} sinks: {len(found)} found"
    show("secrets", ["planted in \\ looked for in", *columns], [*rows, [summed, *[""] * len(columns)]])
    assert not found, "\n".join(map(str, found))


NOTEBOOK = [
    "%xmode Verbose\n%load_ext autoreload\nimport logging\nlogging.basicConfig(level=logging.DEBUG)\nimport agentlab as lab",
    """
def look(q: str = "") -> str:
    "Look something up."
    return open({secret!r}).read()
provider = lab.Provider("openai", model="some-model", base_url={base!r}, headers={{}})
agent = lab.Agent(provider, tools=[look], retry=lab.RetryPolicy(attempts=1))
run = agent.run(open({secret!r}).read(), budget=lab.Budget(max_turns=2))
result = await run
run.panel()
""",
    "display(result, result.to_frame(), run, list(result.events), result.messages, [step.tool_results for step in result.history])",
    "print(result, result.detail)\ndisplay(*(lab.frame([result], what) for what in ('runs', 'calls', 'tools', 'events', 'termination')))",  # noqa: E501
    "result.raise_for_stop()",
    "lab.plots.timeline(result)",
]


@pytest.mark.kernel
@pytest.mark.timeout(180)
def test_no_planted_key_is_in_an_executed_and_saved_notebook(tmp_path: Path) -> None:
    import os

    import nbformat
    from nbclient import NotebookClient

    names = ("answer", "header line that is none")
    secret = tmp_path / "secret.txt"
    secret.write_text(ALL)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(NOTEBOOK[0])])
    with contextlib.ExitStack() as servers:
        for name in names:
            base = servers.enter_context(serving(script=SOURCES[name].says)).base
            notebook.cells += [
                nbformat.v4.new_code_cell(source.format(secret=str(secret), base=base) if "{base" in source else source)
                for source in NOTEBOOK[1:]
            ]
        env = {**os.environ, "OPENAI_API_KEY": SENT, "PYTHONPATH": str(Path(lab.__file__).parents[1]), "PYTHONWARNINGS": "ignore"}
        client = NotebookClient(notebook, timeout=100, allow_errors=True, resources={"metadata": {"path": str(tmp_path)}})
        client.execute(env=env)
    saved_all, rows = [], []
    for number, name in enumerate(names):
        cells = notebook.cells[1 + number * len(NOTEBOOK[1:]) :][: len(NOTEBOOK[1:])]
        saved = nbformat.writes(nbformat.v4.new_notebook(cells=cells))
        found = found_in(saved)
        assert "REDACTED" in saved, name
        outputs = [output for cell in cells for output in cell.get("outputs", ())]
        failed = [output["ename"] for output in outputs if output["output_type"] == "error"]
        saved_all += [(name, json.dumps(output)) for output in outputs]
        rows.append([name, len(outputs), len(saved), ", ".join(failed) or "no error", ", ".join(found) or "none"])
    show("secrets-notebook", ["planted in", "outputs", "characters", "errors shown (verbose)", "found"], rows)
    assert all(row[-1] == "none" for row in rows), _around(saved_all)
    assert found_in(nbformat.writes(notebook)) == []


def test_data_sent_to_other_processes_and_back_contain_no_key(tmp_path: Path) -> None:
    import pickle

    source = SOURCES["tool result"]
    with serving(script=source.says) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", SENT)
        agent = lab.Agent(lab.Provider("openai", model="some-model", base_url=server.base), tools=[verbose], retry=QUICK)
        sent = pickle.dumps(agent)
        study = lab.Experiment([agent], ["go"], [{"budget": lab.Budget(max_turns=5)}], store=tmp_path / "study.sqlite")
        results = asyncio.run(study.run(progress=False))
    shown = {
        "an agent, pickled (key in the environment)": sent.decode("latin-1"),
        "the experiment's store": _bytes_of(tmp_path, "study.sqlite"),
        "its frames": _cells(results.runs) + _cells(results.steps) + repr(results),
    }
    show(
        "secrets-experiment",
        ["looked for in", "found"],
        [[what, ", ".join(found_in(text)) or "none"] for what, text in shown.items()],
    )
    assert {what: found_in(text) for what, text in shown.items() if found_in(text)} == {}


@lab.tool(inline=True)
def look(q: str = "") -> str:
    """Look something up."""
    return ALL


verbose = look


def test_importers_redact_foreign_records(tmp_path: Path) -> None:
    line = {
        "resourceSpans": [{"scopeSpans": [{"spans": [{
            "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "name": "chat some-model",
            "startTimeUnixNano": "1544712660000000000", "endTimeUnixNano": "1544712661000000000",
            "status": {"code": 2, "message": ALL},
            "attributes": [
                {"key": name, "value": {"stringValue": value}}
                for name, value in {
                    "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "some-model",
                    "error.type": ALL, "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": ALL}]}]),  # noqa: E501
                }.items()
            ],
        }]}]}]
    }  # fmt: skip
    path = tmp_path / "spans.jsonl"
    path.write_text(json.dumps(line) + "\n")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        imported = lab.importers.otel(path)
    text = _cells(imported.runs) + _cells(imported.steps) + repr(imported) + "".join(str(one.message) for one in warned)
    assert found_in(text) == []


def _around(outputs: list[tuple[str, str]]) -> list[str]:
    """The positions of keys in a notebook's outputs."""
    return [f"{name}: …{text[max(text.find('lanted') - 300, 0) :][:400]}…" for name, text in outputs if found_in(text)]
