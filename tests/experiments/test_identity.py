"""An experiment that resumes with a store: changes under the same names are refused or reported, and nothing else is."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import agentlab as lab
from agentlab import AgentlabWarning
from agentlab.errors import ConfigurationError
from agentlab.experiments.identity import MADE_BY, code_of
from agentlab.storage.store import Store
from agentlab.testing import ScriptedProvider, say

from .parts import Slow, look, looking, script
from .test_experiment import serving_numbers


def go(study: lab.Experiment, **more: Any) -> lab.ExperimentResults:
    return asyncio.run(study.run(progress=False, **more))


# Refused changes --------------------------------------------------------------------------------------------------------------------


def test_another_address_or_model_under_the_same_name_is_refused(tmp_path: Path) -> None:
    def study(base: str, model: str = "m", **more: Any) -> lab.Experiment:
        agent = lab.Agent(lab.Provider("compatible", model=model, base_url=base, api_key="none"), name="a", **more)
        return lab.Experiment([agent], ["x"], store=tmp_path / "r.db")

    with serving_numbers(iter(range(100))) as one, serving_numbers(iter(range(100))) as other:
        first = go(study(one))
        with pytest.raises(ConfigurationError, match=rf"with other base_url \('{one}' then, '{other}' now\).*another name=…"):
            go(study(other))
        with pytest.raises(ConfigurationError, match=r"with other stream \(False then, True now\)"):
            study(one, stream=True).results()
        with pytest.raises(ConfigurationError, match="with other model:"):
            study(one, "another").results()
        assert go(study(one)).runs["text"].to_list() == first.runs["text"].to_list()


def test_a_custom_model_is_identified_by_its_code_and_its_address(tmp_path: Path) -> None:
    class Own(Slow):
        def __init__(self, base_url: str) -> None:
            super().__init__(0)
            self.base_url = base_url

    class Other(Own):
        async def respond(self, request: Any, context: Any) -> Any:
            return say("end")

    def study(model: Any) -> lab.Experiment:
        return lab.Experiment([lab.Agent(model, tools=[look], name="a")], ["x"], store=tmp_path / "r.db")

    go(study(Own("http://one")))
    go(study(Own("http://one")))
    with pytest.raises(ConfigurationError, match="with other base_url"):
        study(Own("http://two")).results()
    assert study(Other("http://one")).results().runs["changed"].to_list() == ["model slow"]


def test_a_changed_tool_description_is_refused(tmp_path: Path) -> None:
    def study(described: str) -> lab.Experiment:
        def look(q: str = "") -> str:
            return f"saw {q}"

        look.__doc__ = described
        return lab.Experiment([lab.Agent(ScriptedProvider(script), tools=[look], name="a")], ["x"], store=tmp_path / "r.db")

    go(study("Look something up."))
    go(study("Look something up."))
    with pytest.raises(ConfigurationError, match="with other schema of tool look"):
        go(study("Look nothing up."))


# Reported changes -------------------------------------------------------------------------------------------------------------------


def test_a_tool_with_another_body_is_reported_and_its_rows_can_be_distinguished(tmp_path: Path) -> None:
    def study(body: Any, **more: Any) -> lab.Experiment:
        tool = lab.tool(name="look", description="Look.")(body)
        return lab.Experiment(
            [lab.Agent(ScriptedProvider(script), tools=[tool], name="a")], ["x", "y"], store=tmp_path / "r.db", **more
        )

    def one(q: str = "") -> str:
        return f"saw {q}"

    def other(q: str = "") -> str:
        return f"SAW {q}"

    go(study(one, where=lambda cell: cell.prompt == "x"))
    with pytest.warns(AgentlabWarning, match=r"1 run of the store was made with other code of tool look than now.*`changed`"):
        results = go(study(other))
    assert results.runs["changed"].to_list() == ["tool look", pd.NA]
    assert results.runs["state"].to_list() == ["ended", "ended"]
    with pytest.warns(AgentlabWarning, match="1 run of the store"):
        assert go(study(one)).runs["changed"].to_list() == [pd.NA, "tool look"]


def test_conditions_middleware_and_sub_agents_are_compared_too(tmp_path: Path) -> None:
    def study(most: int, *, instructions: str = "", twice: bool = False) -> lab.Experiment:
        async def passing(request: Any, ask: Any) -> Any:
            return await ask(request)

        async def other(request: Any, ask: Any) -> Any:
            await asyncio.sleep(0)
            return await ask(request)

        other.__name__ = "passing"
        scout = lab.Agent(ScriptedProvider(["Yes."]), instructions=instructions).as_tool("scout", "Asks.")
        agent = lab.Agent(
            ScriptedProvider(script), tools=[look, scout], middleware=[other if twice else passing],
            stop=lab.Custom(lambda history: len(history) >= most, "enough"), name="a",
        )  # fmt: skip
        return lab.Experiment([agent], ["x"], store=tmp_path / "r.db")

    go(study(2))
    assert study(2).results().runs["changed"].isna().all()
    assert study(3).results().runs["changed"].to_list() == ["stop condition enough"]
    assert study(2, twice=True).results().runs["changed"].to_list() == ["middleware passing"]
    assert study(2, instructions="Be brief.").results().runs["changed"].to_list() == ["tool scout"]


def test_a_run_resumed_with_changed_code_is_marked(tmp_path: Path) -> None:
    def study(word: str, delay_s: float) -> lab.Experiment:
        return lab.Experiment([lab.Agent(Slow(delay_s), tools=[made(word)], name="a")], ["x"], store=tmp_path / "r.db")

    def made(word: str) -> lab.Tool:
        @lab.tool(name="look", inline=True)
        def look(q: str = "") -> str:
            """Look."""
            return f"{word} {q}"

        return look

    async def cut_off() -> None:
        running = asyncio.ensure_future(study("saw", 0.05).run(progress=False))
        while not study("saw", 0).results().steps.shape[0]:
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(cut_off())
    with pytest.warns(AgentlabWarning, match="made with other code of tool look"):
        assert go(study("SAW", 0)).runs["changed"].to_list() == ["tool look"]


def test_a_store_of_an_earlier_version_resumes(tmp_path: Path) -> None:
    go(lab.Experiment([looking()], ["x"], store=tmp_path / "r.db"))
    with Store(tmp_path / "r.db") as store:
        store.storage._database.execute("DELETE FROM notes WHERE name = ?", (MADE_BY,))  # type: ignore[attr-defined]
        assert store.storage.notes(MADE_BY) == {}
    assert go(lab.Experiment([looking()], ["x", "y"], store=tmp_path / "r.db")).runs["changed"].isna().all()


# Identity of functions --------------------------------------------------------------------------------------------------------------

CODES = """
import functools, sys
from agentlab.experiments.identity import code_of
import agentlab as lab

def helper(text):
    return text in {"one", "two", "three", "four"}

def score(result, limit=3, *, words=("a", "b")):
    '''A score.'''
    inner = [word for word in words if helper(word)]
    return len(inner) + (lambda x: x * 2)(limit) + sum({1.5: "x", "y": 2}.keys() == result)

def closing(limit):
    def inside(result):
        return limit
    return inside

class Called:
    def __init__(self):
        self.count = 0
    def __call__(self, result):
        return 5

agent = lab.Agent("openai:gpt-5.4-mini", tools=[], instructions="x")
async def judge(result):
    return await agent.run("x")

print(*map(code_of, [score, closing(3), closing("x"), functools.partial(score, limit=4), Called(), judge, len, Called().__call__]))
"""


def test_the_identity_of_code_is_the_same_in_every_process_and_after_use() -> None:
    printed = set()
    for seed in ("0", "1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        made = subprocess.run([sys.executable, "-c", CODES], env=environment, check=True, capture_output=True, text=True)
        printed.add(made.stdout)
    assert len(printed) == 1
    codes = printed.pop().split()
    assert len(set(codes)) == len(codes) == 8

    def hot(number: int) -> int:
        total = 0
        for one in range(number):
            total += one * len(str(one))
        return total

    before = code_of(hot)
    hot(100_000)  # Python rewrites frequently executed bytecode
    assert code_of(hot) == before


FROZEN = """
from dataclasses import dataclass
@dataclass(frozen=True, slots=True)
class At:
    limit: int
    def __call__(self, x): return x > self.limit
    def read(self, x): return x
"""
COUNTING = """
def make(count):
    def f(x):
        nonlocal count
        count += 1
        return x
    return f
"""


def of(text: str, **more: Any) -> str:
    space: dict[str, Any] = {**more}
    exec(text, space)  # functions as a user writes them in a cell
    return code_of(space["f"])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def f(x): return x + 1", "def f(x): return x + 2"),
        ("def f(x): return x.a", "def f(x): return x.b"),
        ("def f(x, y=1): return y", "def f(x, y=2): return y"),
        ("def f(x, *, y=1): return y", "def f(x, *, y=2): return y"),
        ("def f(x): return (lambda z: z)(x)", "def f(x): return (lambda z: -z)(x)"),
        ("def g(x): return 1\ndef f(x): return g(x)", "def g(x): return 2\ndef f(x): return g(x)"),
        ("def f(x): return x in {1, 2}", "def f(x): return x in {1, 3}"),
        ("import functools\nf = functools.cache(lambda x: 1)", "import functools\nf = functools.cache(lambda x: 2)"),
        ("LIMIT = 5\ndef f(x): return x > LIMIT", "LIMIT = 6\ndef f(x): return x > LIMIT"),
        ("LIMIT = 5\ndef f(x): return [y for y in x if y > LIMIT]", "LIMIT = 6\ndef f(x): return [y for y in x if y > LIMIT]"),
        (FROZEN + "f = At(3)", FROZEN + "f = At(4)"),
        (FROZEN + "f = At(3).read", FROZEN + "f = At(4).read"),
        ("import functools\nf = functools.partial(max, 1)", "import functools\nf = functools.partial(max, 2)"),
    ],
)
def test_a_different_function_has_another_identity(one: str, other: str) -> None:
    assert of(one) != of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def f(x): return x + 1", "def f(x):\n    # a comment\n    return (x + 1)"),
        ("def f(x):\n    'Says.'\n    return x", "def f(x):\n    'Says more.'\n    return x"),
        ("def f(x): return x in {'a', 'b', 'c'}", "def f(x): return x in {'c', 'a', 'b'}"),
        ("def f(x):\n    if x: return f(x)", "def f(x):\n    if x:\n        return f(x)"),
        ("text = 'a'\ndef f(x): return x.text", "text = 'b'\ndef f(x): return x.text"),
        ("count = 0\ndef f(x):\n    global count\n    count += 1", "count = 5\ndef f(x):\n    global count\n    count += 1"),
        (COUNTING + "f = make(0)", COUNTING + "f = make(5)"),
        ("seen = []\ndef f(x): seen.append(x)", "seen = [1]\ndef f(x): seen.append(x)"),
    ],
)
def test_the_same_function_has_the_same_identity(one: str, other: str) -> None:
    assert of(one) == of(other)


def test_mutually_recursive_agents_have_a_finite_identity() -> None:
    agents: dict[str, lab.Agent] = {}

    def make() -> lab.Agent:
        @lab.tool
        async def ask(q: str) -> str:
            """Ask."""
            return (await agent.run(q)).text

        agent = lab.Agent(ScriptedProvider([say("x")]), tools=[ask])
        return agent

    agents["a"] = make()
    tool = agents["a"].tools["ask"].function
    assert code_of(tool) == code_of(make().tools["ask"].function)
    assert code_of(functools.partial(tool, "x")) != code_of(tool)


# Tables ---------------------------------------------------------------------------------------------------------------------------


def test_a_table_names_cells() -> None:
    runs = lab.Experiment([looking()], ["x", "y"], repeats=3).results().runs
    chosen = runs.loc[runs["repeat"] > 1, ["agent", "prompt_id", "settings", "repeat"]]
    study = lab.Experiment([looking()], ["x", "y"], repeats=3, cells=chosen)
    assert [one.label for one in study.grid.cells] == ["a/p1/default/2", "a/p1/default/3", "a/p2/default/2", "a/p2/default/3"]
    with pytest.raises(ConfigurationError, match=r"cells: \{'agent': 'a'\}: pass \(agent, prompt_id\)"):
        lab.Experiment([looking()], ["x"], cells=chosen[["agent"]])


def test_agents_and_settings_may_not_be_tables_or_sets() -> None:
    with pytest.raises(ConfigurationError, match=r"agents: 'agent' is not an agent"):
        lab.Experiment(pd.DataFrame({"agent": [looking()]}), ["x"])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"settings: 's1' is 'stop': pass a dict"):
        lab.Experiment([looking()], ["x"], pd.DataFrame({"stop": [None]}))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"agents=.*a set has none"):
        lab.Experiment({looking()}, ["x"])
