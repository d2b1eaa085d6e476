"""What a person does to a run: run, step, pause, stop, say something, decide on a call that waits, continue after the end."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from typing import Any

from agentlab._internal.formatting import counted
from agentlab._internal.redaction import REDACTED, Redactor, redact
from agentlab._internal.safe_text import one_line
from agentlab.agent import Agent, Run
from agentlab.engine.branches import waiting_calls
from agentlab.engine.control import PendingCall
from agentlab.engine.limit_increases import LimitIncrease, conditions_off, raised_conditions, raised_limits
from agentlab.engine.lockstep import Lockstep
from agentlab.engine.next_actions import NextAction, settings_for
from agentlab.engine.run_tree import family_of
from agentlab.engine.tool_calls import problem_with
from agentlab.engine.worker import RunState, Worker
from agentlab.errors import ConfigurationError
from agentlab.limits.condition_tree import describe
from agentlab.notebook.page.rich_text import seen
from agentlab.notebook.panel.page_widget import PanelOfRuns as Panel

JSON = dict[str, Any]
Message = Mapping[str, Any]

LONGEST_LINE = 60
"""Characters of arguments that are shown on one line."""
LONGEST_ARGUMENTS = 100_000
"""Characters of a call's arguments that can be edited in the page."""


# What the page shows --------------------------------------------------------------------------------------------------------


def live_data(run: Run) -> JSON:
    """Return what a person can do to a run now.

    `soon` says what happens after this step, `paused` for how long the run has been paused; `ticks` is True while its time counts.
    `asked` has the calls that wait for a decision, and when the timeout ends the wait,
    `prompt` is the text to edit where a next action needs another one.
    """
    needs_prompt = any(action.needs_prompt for action in run.next_actions)
    return {
        "buttons": buttons(run),
        "soon": _soon(run),
        "ticks": run.timeline.clock.runs or (run.state is RunState.RUNNING and not run.stepper.is_stepping),
        "paused": {"for_s": round(run.control.paused_s, 1)} if run.state is RunState.PAUSED else None,
        "chat": _chat(run),
        "asked": [_asked(call) | {"ends_at_s": _ends_at_s(run, asking)} for asking, call in waiting_calls(run)],
        "prompt": redact(run.prompt) if needs_prompt else "",
    }


def buttons(run: Run) -> JSON:
    """Return the buttons of a run: label, tip, and why one is disabled (empty if it is not)."""
    control = run.control
    stopping = control.stop_request is not None and run.state is not RunState.ENDED
    whys = why_not(run.state, pausing=control.pausing)
    return {
        "go": {"label": "Resume" if control.pausing else "Run", "why_not": whys["go"], "tip": "Run to the end"},
        "step": {"label": "Step", "why_not": whys["step"], "tip": "Take one step"},
        "pause": {"label": "Pause", "why_not": whys["pause"], "tip": "Pause before the next step; paused time does not count"},
        "stop": {
            "label": "Stop now" if stopping else "Stop",
            "why_not": whys["stop"],
            "tip": "Cut off the step under way" if stopping else "End the run after the step under way",
        },
    }


def why_not(state: RunState, *, pausing: bool, waits: bool = False) -> dict[str, str]:
    """Return why each button is disabled now; empty if it is not. `waits`: a paused run holds up the others."""
    if state is RunState.ENDED:
        return dict.fromkeys(("go", "step", "pause", "stop"), "The run has ended.")
    if state is RunState.WAITING:
        decide = "Decide on the tool call that waits."
        return {"go": "" if pausing else decide, "step": decide, "pause": "It is paused already." if pausing else "", "stop": ""}
    if state is RunState.RUNNING:
        busy = "It pauses after this step." if pausing else "The run is under way."
        return {"go": "" if pausing or waits else busy, "step": busy, "pause": busy if pausing else "", "stop": ""}
    idle = "It is paused already." if state is RunState.PAUSED else "Nothing is running."
    return {"go": "", "step": "", "pause": idle, "stop": ""}


def _soon(run: Run) -> str:
    if run.state not in (RunState.RUNNING, RunState.WAITING):
        return ""
    if run.control.stop_request is not None:
        return "stops after this step"
    if run.state is RunState.WAITING:
        return "its time is paused" if run.control.pausing else ""
    return "pauses after this step" if run.control.pausing else ""


def _asked(call: PendingCall) -> JSON:
    """Return a call that waits for a decision, with its arguments as text to edit; `redacted` if keys in it are hidden."""
    arguments = call.arguments
    with contextlib.suppress(ValueError, RecursionError):
        parsed = json.loads(arguments)
        arguments = json.dumps(parsed, ensure_ascii=False)
        if len(arguments) > LONGEST_LINE:
            arguments = json.dumps(parsed, ensure_ascii=False, indent=2)
    whole = seen(arguments)
    text = redact(whole)
    return {
        "call": call.call_id,
        "of": call.run_id,
        "tool": one_line(call.tool, 80),
        "arguments": text[:LONGEST_ARGUMENTS],
        "redacted": text != whole,
        "step": call.step,
        "why": one_line(call.why, 300),
    }


def _ends_at_s(run: Run, asking: Run) -> float | None:
    """Return the time of `run` at which a call of it or of a sub-agent's run is not executed any more. None: no limit."""
    asks = asking.stepper.context
    left = [left_s for one in (asks, *asks.callers) if (left_s := one.left_s) is not None]
    return round(run.timeline.clock.elapsed_s() + min(left), 1) if left else None


def together(lockstep: Lockstep | None) -> JSON | None:
    """Return the buttons for all runs of a lockstep, and what it does, in words; None for a single run."""
    if lockstep is None:
        return None
    state, waits, stopping = lockstep.state, _waits(lockstep), _all_stop(lockstep)
    whys = {
        name: why.replace("The run has ended.", "All runs have ended.").replace("The run is", "A round is")
        for name, why in why_not(state, pausing=lockstep.pausing, waits=waits).items()
    }
    ended = sum(run.result is not None for run in lockstep.runs)
    words = [f"round {lockstep.round}", f"{ended} of {len(lockstep.runs)} ended"]
    if waits:
        paused = ", ".join(str(place) for place, run in enumerate(lockstep.runs, start=1) if run.control.pausing)
        words.append(f"all wait for run {paused}, which is paused")
    elif state is RunState.RUNNING and stopping:
        words.append("stops after this round")
    elif state is RunState.RUNNING and lockstep.pausing:
        words.append("pauses after this round")
    elif state is RunState.PAUSED:
        words.append("paused")
    return {
        "runs": [run.id for run in lockstep.runs],
        "buttons": {
            "go": {"label": "Resume all" if lockstep.pausing or waits else "Run all", "tip": "Run to the end, round by round"},
            "step": {"label": "Step all", "tip": "Take one step of each run, at the same time"},
            "pause": {"label": "Pause all", "tip": "Pause all before the next round; paused time does not count"},
            "stop": {
                "label": "Stop all now" if stopping and state is not RunState.ENDED else "Stop all",
                "tip": "Cut off the steps under way" if stopping else "End all runs after the round under way",
            },
        },
        "why_not": whys,
        "words": words,
    }


def _waits(lockstep: Lockstep) -> bool:
    """True if a single paused run holds up the others."""
    is_held = not lockstep.pausing and not lockstep.rounds.is_stepping and lockstep.state is RunState.RUNNING
    return is_held and any(run.control.pausing for run in lockstep.runs)


def _all_stop(lockstep: Lockstep) -> bool:
    return all(run.result is not None or run.control.stop_request is not None for run in lockstep.runs)


# Run, step, pause, stop -----------------------------------------------------------------------------------------------------


def go(panel: Panel, run: Run, message: Message) -> None:
    """Run to the end."""
    if run.control.pausing:
        run.resume()
    _launch(run.worker)


def _launch(worker: Worker[Any, Any]) -> None:
    if not worker.steps.affinity.driver.locked():  # nothing takes it to the end yet; a single step may be under way
        worker.launch()


def step(panel: Panel, run: Run, message: Message) -> None:
    """Take one step."""
    run.worker.launch_step()


def pause(panel: Panel, run: Run, message: Message) -> None:
    """Pause before the next step."""
    run.pause()


def stop(panel: Panel, run: Run, message: Message) -> None:
    """End the run after the current step; at the second press, at once."""
    if run.control.stop_request is not None:
        run.cancel()
    else:
        run.stop("the Stop button")


def every(panel: Panel, run: Run, message: Message) -> None:
    """Do the same to all runs: `what` is go, step, pause or stop."""
    lockstep, what = panel.lockstep, message["what"]
    if lockstep is None:
        raise ConfigurationError("This panel shows one run.")
    if what == "go":
        if lockstep.pausing or _waits(lockstep):
            lockstep.resume()
        _launch(lockstep.worker)
    elif what == "step":
        lockstep.worker.launch_step()
    elif what == "pause":
        lockstep.pause()
    elif what == "stop" and _all_stop(lockstep):
        lockstep.cancel()
    elif what == "stop":
        lockstep.stop("the Stop all button")


# The next message -----------------------------------------------------------------------------------------------------------


def _chat(run: Run) -> JSON:
    """Return why no message can be sent now, and what has to be raised before the model answers one; both empty if nothing."""
    state = run.state
    why = ""
    if state is RunState.RUNNING:
        why = "Once the run is paused or has ended, you can send the next message."
    elif state is RunState.WAITING:
        why = "Decide on the tool call first; then you can send the next message."
    elif not run.history and state is not RunState.ENDED:
        why = "Once the run has begun, you can send the next message."
    return {"why_not": why, "raise": "" if why else _needed(run).sentence}


def _needed(run: Run) -> LimitIncrease:
    """Return which limits have to be raised, and which conditions turned off, so that the run can continue; empty if none.

    A function that was met may not be met again: it is asked after the next step.
    """
    settings, last = run.limits.snapshot(), run.history.last
    reached = raised_limits(settings, run.history, run.timeline.clock.elapsed_s())
    stop, readings = settings.stop, None if last is None or settings.stop != last.settings.stop else last.readings
    if stop is None or readings is None or not readings.met:
        return reached
    needed = raised_conditions(stop, readings, run.history) or conditions_off(stop, readings)
    return reached if any(describe(stop)[name].may_wait for name in needed.off) else needed.and_also(reached)


def say(panel: Panel, run: Run, message: Message) -> None:
    """Continue the conversation in a branch that is shown and started; with `raise`, raise the limits that are reached."""
    text = str(message["text"]).strip()
    if not text:
        raise ConfigurationError("Write a message first.")
    if why := _chat(run)["why_not"]:
        raise ConfigurationError(why)
    needed = _needed(run)
    if needed and not message.get("raise"):
        raise ConfigurationError(
            f"A limit is reached or a stop condition met, so the model would not answer. {needed.sentence} and send the message."
        )
    at = len(run.history)
    settings = settings_for(run, NextAction("continue", "", "", at, needed.edits, needed.conditions, needed.off))
    run.stepper.refuse_without_key()  # a refusal makes no branch
    branch = run.fork(at, message=text, budget=settings.budget, stop=settings.stop, terminating=settings.terminating)
    _begin(panel, branch)


def _begin(panel: Panel, branch: Run) -> None:
    panel.open(branch)
    branch.worker.launch()


# Approvals and next actions -------------------------------------------------------------------------------------------------


def decide(panel: Panel, run: Run, message: Message) -> None:
    """Decide on a call: `decision` is approve (with `text`: with these arguments), answer, refuse, or all to approve all that wait."""
    decision, text = message["decision"], message.get("text")
    is_left = not run.stepper.affinity.is_busy  # nobody was there when it asked: the step continues with the decision
    if decision == "all":
        run.approve()
    else:
        call, agent = _asking(run, message)
        if decision == "approve" and text is not None and (problem := _misfit(text, call, agent)):
            raise ConfigurationError(problem)
        given = {"approve": "arguments", "answer": "answer", "refuse": "refuse"}[decision]
        run.approve(call, **{given: text})
    if is_left:
        run.worker.launch()


def check(panel: Panel, run: Run, message: Message) -> str:
    """Return why the arguments of a call that waits do not fit its tool, "" if they do; `text` has edited ones."""
    call, agent = _asking(run, message)
    return redact(_misfit(message.get("text", call.arguments), call, agent))


def _asking(run: Run, message: Message) -> tuple[PendingCall, Agent]:
    """Return a call that waits, of the run or of a sub-agent's, and its agent."""
    for call in run.pending:
        if (call.call_id, call.run_id) == (message["call"], message["of"]):
            return call, next(node.run.agent for node in family_of(run) if node.run_id == call.run_id)
    raise ConfigurationError("This call does not wait any more.")


def _misfit(arguments: str, call: PendingCall, agent: Agent) -> str:
    if not arguments.strip() and call.arguments.strip():
        return "Write the arguments as a JSON object; one without arguments is {}."
    tool = agent.tools.get(call.tool)
    problem = "" if tool is None else problem_with(arguments, tool)
    return f"The arguments do not fit the tool: {problem}." if problem else ""


def proceed(panel: Panel, run: Run, message: Message) -> None:
    """Carry out one of the next actions, by its place, in a branch that is shown and started."""
    actions, place = run.next_actions, message["place"]
    if not isinstance(place, int) or not 0 <= place < len(actions) or actions[place].label != message.get("label"):
        raise ConfigurationError("The ways to continue have changed: choose again.")
    prompt = message.get("prompt") if actions[place].needs_prompt else None
    if actions[place].needs_prompt and not str(prompt or "").strip():
        raise ConfigurationError("Write the prompt first.")
    run.stepper.refuse_without_key()
    _begin(panel, run.apply(actions[place], prompt=prompt and _with_keys(str(prompt), run.prompt)))


def _with_keys(edited: str, prompt: str) -> str:
    """Return an edited prompt with the keys of the prompt, which the page shows as REDACTED."""
    data, parts = prompt.encode("utf-8", "surrogatepass"), edited.split(REDACTED)
    keys = [data[start:end].decode("utf-8", "surrogatepass") for start, end in Redactor().places(data)]
    if not keys or len(parts) == 1:
        return edited
    if len(parts) != len(keys) + 1:
        raise ConfigurationError(
            f"The prompt has {counted(len(keys), 'key')}, and the text has {REDACTED} {counted(len(parts) - 1, 'time')}: keep the word "
            "for each key, remove all of them, or pass the prompt in code: run.apply(prompt=…)."
        )
    return parts[0] + "".join(key + part for key, part in zip(keys, parts[1:], strict=True))


def save(panel: Panel, run: Run, message: Message) -> JSON:
    """Return the page of the panel's runs as a file, with a name for it."""
    name = re.sub(r"[^\w-]+", "-", redact(run.agent.name)).strip("-")[:60] or "run"
    return {"name": f"{name}.html", "html": panel.to_html()}


COMMANDS = {
    "go": go,
    "step": step,
    "pause": pause,
    "stop": stop,
    "every": every,
    "say": say,
    "decide": decide,
    "check": check,
    "proceed": proceed,
    "save": save,
}
