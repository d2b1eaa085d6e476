"""The end of a run in the panel: the message, and the effect of its buttons."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from agentlab.notebook.panel.run_view import MOST_OFFERS, Ending, Panel
from thread_tools import undisturbed, wait_until

import agentlab as lab
from agentlab import Budget
from agentlab.agent import Run
from agentlab.model.finish_reasons import FinishReason
from agentlab.notebook import markup
from agentlab.testing import ScriptedProvider, call, say


@pytest.fixture(autouse=True)
def _front_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")


async def search(query: str) -> str:
    """Search."""
    return "nothing"


def ended(run: Run) -> Panel:
    asyncio.run(_to_the_end(run))
    return Panel(run)


async def _to_the_end(run: Run) -> None:
    await run


def searching(turns: int) -> Run:
    model = ScriptedProvider(lambda request, index: call("search", {"query": str(index)}))
    return lab.Agent(model, tools=[search]).run("Find it.", budget=Budget(max_turns=turns))


def filtered() -> Run:
    model = ScriptedProvider(lambda request, index: say("", finish=FinishReason.CONTENT_FILTERED))
    return lab.Agent(model).run("Tell me <b>all</b>.")


def labels(ending: Ending) -> list[str]:
    return [button.description for button in ending.buttons]


def test_no_ending_is_shown_during_the_run() -> None:
    ending = Panel(searching(3)).run_view.ending
    assert (ending.text.value, ending.buttons, ending.offers.children) == ("", (), ())


def test_a_raised_limit_makes_a_branch_that_continues_in_the_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentlab.notebook.panel.run_view.time", SimpleNamespace(monotonic=lambda: 100.0))
    panel = ended(searching(2))
    run, ending = panel.run, panel.run_view.ending
    assert "truncated · turn_limit" in ending.text.value
    assert labels(ending) == ["Raise the turn limit to 4 and continue"]
    assert ending.buttons[0].tooltip == run.next_actions[0].why
    assert markup.escape(run.next_actions[0].why) in ending.offers.children[0].children[1].value, "a tooltip alone is not enough"
    ending.buttons[0].click()
    ending.buttons[0].click()  # a double click: no time has passed
    (branch,) = run.branches
    assert panel.run is branch
    assert branch.wait(60) is not None
    assert len(branch.history) == 4 and len(run.history) == 2
    wait_until(lambda: labels(panel.run_view.ending) == ["Raise the turn limit to 8 and continue"])


def test_proposals_follow_an_edit_after_the_end() -> None:
    panel = ended(searching(2))
    ending = panel.run_view.ending
    with undisturbed(panel):
        panel.run.limits.max_turns = 9
        assert ending.show(), "there are new controls"
        assert labels(ending) == ["Continue from step 2"]
        assert not ending.show()


def test_another_prompt_is_requested_and_started() -> None:
    panel = ended(filtered())
    run, ending = panel.run, panel.run_view.ending
    assert ending.editor.layout.display == "none"
    ending.buttons[0].click()
    assert ending.editor.layout.display == "" and ending.prompt.value == "Tell me <b>all</b>."
    ending.prompt.value = " "
    ending.start.click()
    assert "ConfigurationError" in panel.fault.value and not run.branches
    ending.prompt.value = "Tell me less."
    ending.start.click()
    (branch,) = run.branches
    assert (branch.prompt, run.prompt, panel.run) == ("Tell me less.", "Tell me <b>all</b>.", branch)
    assert branch.wait(60) is not None


def test_the_editor_can_be_closed() -> None:
    ending = ended(filtered()).run_view.ending
    ending.buttons[0].click()
    ending.buttons[0].click()
    assert ending.editor.layout.display == "none"


def test_an_error_says_what_went_wrong_and_what_to_do() -> None:
    def broken(request: object, index: int) -> object:
        raise RuntimeError("<i>off</i>")

    run = lab.Agent(ScriptedProvider(broken)).run("go")
    with pytest.raises(RuntimeError):
        asyncio.run(_to_the_end(run))
    ending = Panel(run).run_view.ending
    assert "truncated · error" in ending.text.value and "RuntimeError: &lt;i&gt;off&lt;/i&gt;" in ending.text.value
    assert ending.buttons or "run.fork" in ending.text.value


def test_a_run_that_finished_on_its_own_gets_no_proposal() -> None:
    ending = ended(lab.Agent(ScriptedProvider(["done"])).run("go")).run_view.ending
    assert "terminated · completed" in ending.text.value
    assert ending.buttons == ()


def test_the_number_of_buttons_is_limited() -> None:
    assert MOST_OFFERS == 3


def test_the_providers_finish_reason_and_its_reading() -> None:
    run = lab.Agent(ScriptedProvider([say("half", finish=FinishReason.MAX_TOKENS)]), continuation=None).run("go")
    ending_html = ended(run).run_view.ending.text.value
    assert "The provider said finish_reason = <code>max_tokens</code> (confidence high)" in ending_html
