"""Unneeded objects are released."""

from __future__ import annotations

import asyncio
from pathlib import Path

import agentlab as lab
from agentlab.testing import ScriptedProvider, call

FIXTURES = Path(__file__).parents[2] / "fixtures"


def test_a_replay_forgets_the_position_of_an_ended_run() -> None:
    with lab.replay(FIXTURES / "question", match="order") as recorded:
        run = lab.Agent("openai:gpt-5.4-mini").run("go")
        asyncio.run(run.step())
        assert list(recorded.index._progress) == [run.stepper.context.replay_key]
        run.stop()
        assert not recorded.index._progress


def test_the_steps_of_a_loaded_run_share_unchanged_settings() -> None:
    store = lab.Store()
    agent = lab.Agent(ScriptedProvider([call("none")] * 4 + ["done"]), observers=[store])

    async def changed_on_the_way() -> lab.Run:
        run = agent.run("go", stop=lab.StepCountIs(9))
        await run.step()
        await run.step()
        run.limits.max_tokens = 10_000
        await run
        return run

    run = asyncio.run(changed_on_the_way())
    loaded = store.load(run.id)
    settings = [step.settings for step in loaded.history]
    assert settings == [step.settings for step in run.history]
    assert settings[0] is settings[1]
    assert settings[2] is settings[3]
    assert settings[1] != settings[2]
