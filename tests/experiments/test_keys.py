"""An experiment resumes with a store whose keys were redacted, and a different experiment under its name is refused."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import agentlab as lab
from agentlab._internal.redaction import Redactor
from agentlab.storage.codec import equal_when_redacted
from agentlab.testing import ScriptedProvider, call, say

KEY = "planted/Opaque+0123456789"
"""A key of no known form: it is known only if it is in the environment."""

SCRIPT = '''
import asyncio, json, os, sys
import agentlab as lab
from agentlab.testing import ScriptedProvider, call, say

path, prompt, more = json.loads(sys.argv[1])

@lab.tool(name=prompt.split()[1].replace("/", "_").replace("+", "-"), inline=True)
def look(q: str = "") -> str:
    """Look something up."""
    if more == "die" and q == "2":
        os._exit(9)
    return q

def answer(request, index):
    asked = len(request.messages) // 2 + 1
    return say("end") if asked == 4 else call(look.name, {"q": str(asked)}, id=f"c{asked}")

model = ScriptedProvider(answer)
agent = lab.Agent(model, tools=[look], name="a", instructions=prompt, options={prompt: [prompt]})
stop = lab.Custom(lambda history: False, prompt) | lab.HasToolCall(prompt)
settings = {"stop": stop, "continuation": lab.ContinuationPolicy(hint=prompt)}
study = lab.Experiment([agent], [prompt], [settings], repeats=2, store=path)
try:
    results = asyncio.run(study.run(concurrency=1, progress=False))
except lab.errors.ConfigurationError as error:
    print(json.dumps(str(error)))
else:
    ids = study.store.run_ids()  # without a frame: pandas takes longer to import than all of this
    print(json.dumps([results.states, [len(study.store.load(one).history) for one in ids]]))
'''


def in_a_process(path: Path, prompt: str, key: str, *, more: str = "") -> Any:
    """The experiment's output in a process that knows this key; None if the process was killed."""
    environment = {name: value for name, value in os.environ.items() if "KEY" not in name and "TOKEN" not in name}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path)} | ({"PLANTED_API_KEY": key} if key else {})
    given = json.dumps([str(path), prompt, more])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, given], env=environment, timeout=60, capture_output=True, text=True, check=False
    )
    assert done.returncode == (9 if more else 0), done.stderr
    return None if more else json.loads(done.stdout)


@pytest.mark.parametrize(("then", "now"), [(KEY, KEY), ("", KEY)], ids=["known both times", "known since"])
def test_an_experiment_resumes_if_the_key_is_known(then: str, now: str, tmp_path: Path) -> None:
    """The key is in the prompt, the instructions, an option and its name, the reprs of conditions and settings, the name of a tool."""
    path, prompt = tmp_path / "runs.db", f"Use {KEY} now"
    in_a_process(path, prompt, then, more="die")
    written = b"".join(one.read_bytes() for one in tmp_path.iterdir())
    assert not then or KEY.encode() not in written
    assert in_a_process(path, prompt, now) == [{"ended": 2}, [4, 4]]
    assert "with other instructions and options and settings and prompt:" in in_a_process(path, f"Use {KEY} then", now)


@pytest.mark.parametrize(
    ("kept", "meant", "same"),
    [
        pytest.param("Use REDACTED now", f"Use {KEY} now", True, id="known"),
        pytest.param(f"Use {KEY} now", f"Use {KEY} now", True, id="not known then"),
        pytest.param("Use REDACTED now", "Use some other thing now", False, id="words"),
        pytest.param("Use REDACTED now", f"Use {KEY} then", False, id="other text after it"),
        pytest.param("Use it now", f"Use {KEY} now", False, id="no key"),
        pytest.param(["REDACTED", 1], [KEY, 1], True, id="in a list"),
        pytest.param(["REDACTED", 1], [KEY, 2], False, id="another number"),
        pytest.param(["REDACTED"], [KEY, KEY], False, id="another length"),
        pytest.param({"REDACTED": {"x": 1}}, {"x": {"x": 1}}, False, id="another name"),
        pytest.param("sk-REDACTED-abcdef", f"sk-{KEY}-abcdef", True, id="in what looks like one then"),
        pytest.param(None, KEY, False, id="nothing"),
    ],
)
def test_stored_values_are_compared_without_keys(kept: Any, meant: Any, same: bool) -> None:
    assert equal_when_redacted(kept, meant, Redactor([KEY]).text) is same


@pytest.mark.parametrize("key", ["123456", "prompt", "messages"])
def test_a_key_that_is_a_number_or_a_field_name_damages_nothing(key: str, tmp_path: Path) -> None:
    provider = lab.Provider("openai", model="m", base_url="http://127.0.0.1:9", api_key=key)
    with lab.Store(tmp_path / "runs.db") as store:
        agent = lab.Agent(provider, options={"seed": 123456}, observers=[store], retry=lab.RetryPolicy(attempts=1))
        result = asyncio.run(_ended(agent.run(f"Say {key}.")))
        assert store.frame("runs")["prompt"].to_list() == ["Say REDACTED."]
        assert len(store.load(result.run_id, agent).history) == 1
        assert f'"Say {key}.' not in store.storage.runs()[0].head.body


def test_no_key_is_shown_by_tasks_scores_and_judgements() -> None:
    key = "sk-ant-api03-" + "A" * 40
    tasks = lab.Tasks([{"prompt": "?", "target": key}, {"prompt": "?", "target": [1, {"x": key}]}, {"prompt": "?", "target": 3}])
    budget = lab.Budget(max_calls=2)
    values = [*tasks, lab.scorers.Score(True, why=key), lab.scorers.PairJudgement("left", True, key)]
    values += [lab.scorers.Judge("openai:m", key, budget=budget), lab.scorers.Pairwise("openai:m", key, budget=budget)]
    for value in values:
        assert key not in repr(value)
    assert tasks.to_frame()["target"].to_list() == ["REDACTED", [1, {"x": "REDACTED"}], 3]
    assert tasks[0].target == key
    verdict = call("final_answer", {"reason": f"It has {key}.", "better": "first"})
    judge = lab.scorers.Pairwise(ScriptedProvider(lambda request, index: verdict), "short", budget=budget)
    agents = [lab.Agent(ScriptedProvider([say("Paris.")]), name=name) for name in "ab"]

    async def judged() -> Any:
        results = await lab.Experiment(agents, ["?"]).run(progress=False)
        return await lab.scorers.judge_pairs(results, judge, progress=False)

    assert asyncio.run(judged())["why"].to_list() == ["It has REDACTED."]


async def _ended(run: lab.Run) -> lab.RunResult:
    return await run
