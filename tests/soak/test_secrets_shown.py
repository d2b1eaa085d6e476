"""Keys are planted in runs and searched for in all displays of runs: plots, the explorer, several panels, messages of live pages, other
frames, figures. None is found.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import io
import json
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from engine.server import serving
from rich.console import Console
from rich.traceback import Traceback
from thread_tools import drawn

import agentlab as lab
from agentlab._internal import secrets as known_keys
from agentlab.interop.import_inspect import from_lines
from agentlab.providers import registry
from agentlab.testing import ScriptedProvider, call, say

from .displays import displays_of, of_frame, of_html, plots
from .planted_keys import ALL, IN_ENVIRONMENT, KEYS, SENT, SOURCES, found_in
from .table import show
from .test_secrets import _finished, agent_of, settings_of

# conditions that name hostile tools are intended here
pytestmark = pytest.mark.filterwarnings("ignore:[\\s\\S]*can never be met:agentlab.errors.AgentlabWarning")

INSPECT_LINES = Path(__file__).parents[1] / "interop" / "inspect_lines.jsonl"


@pytest.fixture(autouse=True)
def _planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in IN_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AGENTLAB_FRONTEND", "none")
    known_keys.read_environment()
    known_keys.remember([SENT])
    yield
    monkeypatch.undo()
    known_keys.read_environment()


def runs_from_everywhere() -> list[lab.Run]:
    """A run from each of the sources, and one with keys in all names."""
    runs = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for source in SOURCES.values():
            with serving(script=source.says) as server:
                runs.append(agent_of(source, server.base).run(source.prompt, budget=lab.Budget(max_turns=3)))
                asyncio.run(_finished(runs[-1]))
        runs += named_after_keys()
    return runs


def named_after_keys() -> list[lab.Run]:
    """Runs in which a key is the name of the tool, of the model, of the provider, of the agent."""

    def look(q: str = "") -> str:
        """Look."""
        return ALL

    runs = []
    for name in KEYS.values():
        model = ScriptedProvider([call(name, {"q": name}, id=name), say(name)], name=name, model=name)
        runs.append(lab.Agent(model, tools=[look], name=name).run(name, stop=lab.HasToolCall("nothing") | lab.StepCountIs(9)))
        asyncio.run(_finished(runs[-1]))
    return runs


def report(name: str, columns: list[str], texts: Iterator[tuple[str, str]]) -> list[tuple[str, list[str], str]]:
    """A row for each place with its number of keys; the found keys with the surrounding text."""
    rows: dict[str, list[int]] = {}
    found = []
    for where, text in texts:
        keys = found_in(text)
        row = rows.setdefault(where, [0, 0, 0])
        row[0], row[1], row[2] = row[0] + 1, row[1] + len(text), row[2] + len(keys)
        if keys:
            found.append((where, keys, _around(text)))
    show(name, columns, [(where, *row[:2], f"{row[2]} FOUND" if row[2] else "none") for where, row in rows.items()])
    return found


def _around(text: str) -> str:
    at = next((text.find(word) for word in ("lanted", "PLANTED", *KEYS.values()) if word in text), 0)
    return ascii(text[max(0, at - 90) : at + 60])


COLUMNS = ["looked for in", "texts", "characters", "found"]


@pytest.mark.timeout(300)
def test_no_planted_key_is_in_displays_of_runs() -> None:
    runs = runs_from_everywhere()
    shown = ((one.where.partition(",")[0].partition(" by ")[0], one.text) for one in displays_of(runs))
    assert report("secrets-shown", COLUMNS, shown) == []


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_no_planted_key_is_in_a_plot() -> None:
    shown = ((one.where.partition(":")[0], one.text) for one in plots(named_after_keys(), by=("provider",)))
    assert report("secrets-plots", COLUMNS, shown) == []


def test_no_planted_key_is_in_an_experiment(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")  # the bars are shown

    def texts() -> Iterator[tuple[str, str]]:
        with serving(script=SOURCES["tool result"].says) as server, warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            agent = agent_of(SOURCES["tool result"], server.base)
            broken = agent_of(SOURCES["401 body"], "http://127.0.0.1:9/" + SENT)
            called = lab.Agent(ScriptedProvider([say(ALL)]), name=KEYS["AKIA"])
            with pytest.raises(lab.errors.ConfigurationError, match=r"REDACTED.* contains a key"):
                lab.Experiment({KEYS["sk-"]: agent}, ["go"])
            for named in ({"settings": {KEYS["AKIA"]: {}}}, {"name": KEYS["AIza"]}):
                with pytest.raises(lab.errors.ConfigurationError, match=r"REDACTED.* contains a key"):
                    lab.Experiment([agent], ["go"], **named)
            for names in ({"run_id": SENT}, {"run_id": "a", "label": KEYS["ghp_"]}):
                with pytest.raises(lab.errors.ConfigurationError, match=r"REDACTED.* contains a key"):
                    agent.run("go").with_id(**names)
            study = lab.Experiment(
                {"a": agent, "broken": broken, "c": called},
                {"p": f"Use {ALL}"},
                {"s": {"budget": lab.Budget(max_turns=2), "stop": lab.Custom(len, ALL)}},
                score=lambda result: {"words": 1.0, f"words of {ALL}": 2.0} if result.text else 1 / 0,
            )
            yield "dry_run", f"{study.dry_run()!r} {study.dry_run()}"
            yield from ((one.where, one.text) for one in of_frame("plan", study.plan()))
            results = asyncio.run(study.run())
            for what in ("runs", "steps", "calls", "tools", "events", "termination", "readings"):
                yield from (("frames", one.text) for one in of_frame(what, results.frame(what)))
            yield "repr", f"{results!r} {study!r} {results.loaded!r} {results.problems!r}"
            yield from ((one.where, one.text) for one in of_frame("summary", results.summary()))
            yield from ((one.where, one.text) for one in of_html("agreement", results.agreement()))
            yield "its picture: alt", results.plot().alt
            yield "warnings", " ".join(str(one.message) for one in warned)
        reported = capfd.readouterr()
        assert "100%" in reported.err or "1/1" in reported.err
        yield "bars", reported.out + reported.err

    assert report("secrets-experiment-shown", COLUMNS, texts()) == []


def test_no_planted_key_is_in_figures_or_reprs(tmp_path: Path) -> None:
    def texts() -> Iterator[tuple[str, str]]:
        yield "capabilities", repr(lab.capabilities())
        for name in ("openai", "anthropic", "gemini", "bedrock", "azure", "xai", "openrouter", "openai-responses", "compatible"):
            more = {"base_url": f"https://h.example/{KEYS['ghp_']}/v1"}
            with contextlib.suppress(lab.AgentlabError):
                provider = lab.Provider(name, model=KEYS["sk-"], api_key=SENT, **more)
                yield "providers", f"{provider!r} {lab.Agent(provider)!r} {lab.Agent(provider, name=ALL).run('go')!r}"
        provider = lab.Provider("openai", model="m", api_key=SENT, headers={"x-token": KEYS["AKIA"]})
        agent = lab.Agent(provider, instructions=ALL, options={"user": ALL})
        record = lab.record(tmp_path / "r")
        yield "transports", f"{record!r} {record.recorder!r} {lab.Lockstep([agent.run(ALL)])!r} {lab.Chat(agent)!r}"
        for run in runs_from_everywhere():
            yield "run.next_actions", repr(run.next_actions)
            yield "branches", repr(run.fork(at=0).next_actions) + repr(run.limits)
        stops = {key: lab.HasToolCall(key) | lab.Custom(len, key) for key in KEYS.values()}
        results = [run.result for run in named_after_keys() if run.result is not None]
        yield from ((one.where, one.text) for one in of_frame("backtest", lab.backtest(results, stops)))
        suggested = lab.suggest(results, stops)
        yield from ((one.where, one.text) for one in of_html("suggestion", suggested))
        yield from ((one.where, one.text) for one in of_frame("suggestion.frame", suggested.frame))
        yield "suggestion.why", " ".join(suggested.why)

    assert report("secrets-figures", COLUMNS, texts()) == []


def test_no_planted_key_is_in_imported_records(tmp_path: Path) -> None:
    def texts() -> Iterator[tuple[str, str]]:
        attributes = [
            {"key": name, "value": {"stringValue": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": ALL}]}]) if "messages" in name else ALL}}  # noqa: E501
            for name in (
                "gen_ai.request.model", "gen_ai.response.model", "gen_ai.provider.name", "gen_ai.response.finish_reasons",
                "gen_ai.agent.name", "gen_ai.conversation.id", "gen_ai.input.messages", "gen_ai.output.messages",
                "gen_ai.tool.name", "gen_ai.tool.call.id", "error.type", "gen_ai.usage.input_tokens", "gen_ai.response.id", ALL,
            )
        ]  # fmt: skip
        for kind in ("chat", "execute_tool", "invoke_agent"):
            operation = [{"key": "gen_ai.operation.name", "value": {"stringValue": kind}}]
            span = {
                "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "name": ALL,
                "startTimeUnixNano": "1544712660000000000", "endTimeUnixNano": "1544712661000000000",
                "status": {"code": 2, "message": ALL}, "attributes": [*operation, *attributes],
                "events": [{"name": ALL, "timeUnixNano": "1544712660000000000", "attributes": attributes}],
            }  # fmt: skip
            path = tmp_path / f"{kind}.jsonl"
            path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}) + "\n" + ALL + "\n")
            yield from _imported("OpenTelemetry", lambda path=path: lab.importers.otel(path))
        lines = [json.loads(line) for line in INSPECT_LINES.read_text().splitlines()]
        yield from _imported("Inspect", lambda: from_lines([_with_keys(line) for line in lines], f"/logs/{KEYS['sk-']}.eval"))
        yield from _imported("Inspect", lambda: from_lines([*lines, {"log": f"{ALL}.eval", "failed": ALL}], "logs"))
        with lab.Store(tmp_path / "s.sqlite") as store:
            model = ScriptedProvider([call(ALL, ALL), say(ALL)], name=KEYS["sk-"], model=KEYS["AKIA"])
            asyncio.run(_finished(lab.Agent(model).run(ALL, observers=[store])))
            yield from _imported("a store", lambda: lab.importers.store(store))
        steps = pd.DataFrame(
            {"run_id": [KEYS["sk-"]], "text": [ALL], "model": [ALL], "tools": [ALL], ALL: [ALL], "stop_reason": [ALL]}
        )
        steps.to_parquet(tmp_path / "steps.parquet")
        yield from _imported("Parquet of others", lambda: lab.importers.parquet(tmp_path / "steps.parquet"))

    assert report("secrets-imported", COLUMNS, texts()) == []


def _imported(name: str, read: Any) -> Iterator[tuple[str, str]]:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            imported = read()
        except lab.AgentlabError as error:
            yield f"{name}: errors", "".join(traceback.format_exception(error))
            return
    yield (
        f"{name}: notes",
        " ".join(imported.notes) + repr(imported) + imported._repr_html_() + str([str(one.message) for one in warned]),
    )
    for frame in (imported.runs, imported.steps):
        yield from ((f"{name}: frames", one.text) for one in of_frame("", frame))


def _with_keys(value: Any) -> Any:
    """The same with keys in every text that is neither a name of the format nor a time."""
    words = {
        "event",
        "role",
        "at",
        "until",
        "started_at",
        "completed_at",
        "type",
        "span",
        "id",
        "parent",
        "call_id",
        "uuid",
        "config",
    }
    if isinstance(value, dict):
        return {name: one if name in words else _with_keys(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_with_keys(one) for one in value]
    return f"{value} {ALL}" if isinstance(value, str) else value


# What a live page is sent ---------------------------------------------------------------------------------------------------


class Page:
    """A page that shows a panel or the grid of a store, and keeps everything that it is sent."""

    def __init__(self, view: Any) -> None:
        self.view, self.sent = view, list[str]()
        view.widget.send = lambda content, buffers=None: self.sent.append(json.dumps(content, ensure_ascii=False))
        self.ask("hello", page="1")

    def ask(self, do: str, **more: Any) -> Any:
        """Send a command, and return the answer, which may be an error."""
        self.view.widget.received({"do": do, "id": len(self.sent), **more})
        return json.loads(self.sent[-1])

    def texts(self) -> Iterator[tuple[str, str]]:
        """What was sent, by kind."""
        for one in self.sent:
            yield f"messages: {json.loads(one)['kind']}", one


async def attended(run: lab.Run, page: Page) -> None:
    """To the end, with a person who looks at each call and approves it."""
    under_way = asyncio.ensure_future(_finished(run))
    while not under_way.done():
        if run.pending:
            drawn(page.view)
            (asked, *_) = run.pending
            page.ask("decide", run=run.id, decision="approve", call=asked.call_id, of=asked.run_id, text="{")
            page.ask("decide", run=run.id, decision="all")
        await asyncio.sleep(0.002)
    await under_way


def ask_for_everything(page: Page, run: lab.Run) -> None:
    """What a person can unfold, search, fill in and save, and what is refused."""
    drawn(page.view)
    steps = [*range(1, len(run.history) + 1)]
    page.ask("steps", run=run.id, steps=steps)
    for number in steps:
        page.ask("details", run=run.id, step=number)
    for query in ("REDACTED", "a", SENT):
        page.ask("search", run=run.id, query=query, **{"from": 1})
    for number in (0, *steps):
        page.ask("branch_form", run=run.id, step=number)
        page.ask("branch", run=run.id, step=number)
    page.ask("branch", run=run.id, step=len(run.history), message="More.", model="nobody:nothing")
    page.ask("in_code", run=run.id)
    page.ask("save", run=run.id)
    for name in ("max_turns", *run.limits.conditions):
        page.ask("limit", run=run.id, name=name, value="much")
    drawn(page.view)


@pytest.mark.timeout(300)
def test_no_planted_key_is_in_what_a_live_page_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")
    # every branch on an unknown model searches all packages for it
    monkeypatch.setattr(registry, "_entry_points", functools.cache(registry._entry_points))

    def texts() -> Iterator[tuple[str, str]]:
        store = lab.Store(tmp_path / "runs.db")
        for source in SOURCES.values():
            with serving(script=source.says) as server:
                agent = agent_of(source, server.base)
                run = agent.run(source.prompt, approve=True, observers=[store], **settings_of(source))
                page = Page(run.panel())
                asyncio.run(attended(run, page))
                ask_for_everything(page, run)
                yield from page.texts()
                yield "the copy that is kept", json.dumps(page.view._kept_bundle())
                yield "run.to_html", str(run.to_html(raw=True))
        grid = Page(lab.browse(store))
        grid.ask("list")
        grid.ask("open", runs=store.run_ids())
        grid.ask("open", runs=[SENT])
        yield from ((f"lab.browse, {where}", text) for where, text in grid.texts())
        yield "lab.browse, the copy that is kept", json.dumps(grid.view._kept_bundle())
        yield "lab.browse, file", str(grid.view.to_html())
        store.close()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert report("secrets-live", COLUMNS, texts()) == []


def test_a_key_that_was_not_sent_yet_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")
    keys = ("Idle7Kq/plantedNever+Sent9", "Idle8Header/plantedNever3")
    provider = lab.Provider("openai", model="m", api_key=keys[0], headers={"x-gateway-token": keys[1]})
    run = lab.Agent(provider, instructions=f"Not {keys[1]}").run(f"Use {' and '.join(keys)}")
    page = Page(run.panel())
    drawn(page.view)
    page.ask("branch_form", run=run.id, step=0)
    for text in (*page.sent, json.dumps(page.view._kept_bundle()), str(run.to_html()), str(lab.browse(store_of(run)).to_html())):
        assert not [key for key in keys if key in text]


HALVED = "Hq7Zk9/Xv2Lm4+Tp8Rw3Yn6"
CUTS = ((60, 160, 200, 300, 400), (80,), (1_000, 2_000, 4_000))
"""Where the package cuts texts: those of one group have a key each in the same text."""
CUTS_OF_ARGUMENTS = ((20_000,), (99_993,))


def with_a_text(text: str, **settings: Any) -> lab.Run:
    """A run that has this text in most places that take one."""

    def look(query: str) -> str:
        """Look."""
        if query == "fail":
            raise ValueError(text)
        return text

    calls = [call("look", {"query": text}), call("look", {"query": "fail"}), call(text, {"query": text}, id="call_3")]
    said = [dataclasses.replace(one, text=text, reasoning=text, refusal=text, model=text) for one in (*calls, say(text))]
    stop = lab.Custom(lambda history: False, name=text)
    agent = lab.Agent(ScriptedProvider(said, model=text), tools=[look], name=text, instructions=text)
    run = agent.run(text, stop=stop, messages=[lab.Message("user", text), lab.Message("assistant", text)], **settings)
    asyncio.run(_finished(run))
    return run


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::agentlab.errors.AgentlabWarning")
def test_no_half_of_a_key_is_shown_where_a_text_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text is redacted before it is cut: nobody would recognise the first half of a key."""
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")
    known_keys.remember([HALVED])

    def texts(text: str, *, whole: bool) -> Iterator[tuple[str, str]]:
        waits = with_a_text(text, approve=True)
        page = Page(waits.panel())
        drawn(page.view)
        yield from page.texts()
        if whole:
            run = with_a_text(text)
            yield from ((one.where, one.text) for one in displays_of([run]))
            yield "lab.browse", str(lab.browse(store_of(run)).to_html())
            page = Page(run.panel())
            ask_for_everything(page, run)
            yield from page.texts()

    found = []
    for cuts in (*CUTS, *CUTS_OF_ARGUMENTS):
        words = "word " * (max(cuts) // 5 + 100)
        whole = ""
        for cut in cuts:
            whole += f"{words[: cut - 19 - len(whole)]}{HALVED} "
        for where, text in texts(whole + words, whole=cuts in CUTS):
            at = max(text.find(HALVED[:7]), text.find(HALVED[-7:]))
            if at >= 0:
                found.append((cuts, where, ascii(text[max(0, at - 60) : at + 30])))
    assert found == [], "\n".join(map(str, found))


def store_of(run: lab.Run) -> lab.Store:
    """A store with this run."""
    store = lab.Store()
    store.keep(run)
    return store


FAILING = (
    "401 body",
    "header line that is none",
    "redirect (query string)",
    "stream that breaks off",
    "error under 200",
    "answer",
)


def test_no_planted_key_is_in_a_traceback_with_the_values_of_variables() -> None:
    def texts() -> Iterator[tuple[str, str]]:
        for name in FAILING:
            for error in _errors(name):
                yield "capture_locals", "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
                out = Console(file=io.StringIO(), width=200)
                out.print(
                    Traceback.from_exception(type(error), error, error.__traceback__, show_locals=True, locals_max_string=10_000)
                )
                yield "rich, show_locals", out.file.getvalue()  # type: ignore[attr-defined]

    assert report("secrets-locals", COLUMNS, texts()) == []


def _errors(name: str) -> Iterator[BaseException]:
    """The exception of a run from this source, without the frames of this file."""
    source = SOURCES[name]
    with serving(script=source.says) as server, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = agent_of(source, server.base).run("go", budget=lab.Budget(max_turns=1))
        asyncio.run(_finished(run))
    assert run.result is not None
    every = (run.result.error, *(step.error for step in run.history))  # the last one is in both
    for error in {id(error): error for error in every if error is not None}.values():
        while error.__traceback__ and error.__traceback__.tb_frame.f_code.co_filename == __file__:
            error.__traceback__ = error.__traceback__.tb_next
        yield error
