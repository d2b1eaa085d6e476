"""The messages of the conversation that a step added."""

from __future__ import annotations

import pytest

import agentlab as lab
from agentlab.errors import ConfigurationError
from agentlab.model.messages import Message
from agentlab.testing import call, say

from .builders import agent, go


async def _walked(**more: object) -> lab.Run:
    run = agent([call("look", {"q": "a"}), call("look", {"q": "b"}), say("done")]).run("go", **more)  # type: ignore[arg-type]
    await run
    return run


def test_the_messages_of_all_steps_form_the_whole_conversation() -> None:
    run = go(_walked(messages=[Message("user", "hello"), Message("assistant", "hi")]))
    parts = [list(run.timeline.messages_of(step)) for step in range(4)]
    assert [[message.role for message in part] for part in parts] == [
        ["user", "assistant", "user"],
        ["assistant", "tool"],
        ["assistant", "tool"],
        ["assistant"],
    ]
    assert [message for part in parts for message in part] == list(run.messages)


def test_a_branch_has_the_messages_of_its_kept_and_its_new_steps() -> None:
    async def main() -> tuple[lab.Run, lab.Run]:
        run = await _walked()
        branch = run.fork(at=2, message="one more thing")
        await branch.step()
        return run, branch

    run, branch = go(main())
    assert branch.timeline.messages_of(1) == run.timeline.messages_of(1)
    assert [message.text for message in branch.timeline.messages_of(2)][-1] == "one more thing"
    assert branch.timeline.messages_of(3)[0].role == "assistant"


@pytest.mark.parametrize("step", [-1, 4, 1.0, True, "1"])
def test_an_unknown_step_is_refused(step: object) -> None:
    run = go(_walked())
    with pytest.raises(ConfigurationError, match="give the number of a step, 0 to 3"):
        run.timeline.messages_of(step)  # type: ignore[arg-type]
