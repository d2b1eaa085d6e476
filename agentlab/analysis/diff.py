"""Two runs side by side, step by step: where they first differ, and the differences in tokens, cost and end.

lab.diff(run, branch)                  a DataFrame with one row per step
lab.diff(run, branch).summary          the differences in two sentences
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import zip_longest
from typing import Any

import pandas as pd

from agentlab._internal.formatting import counted, exactly
from agentlab._internal.redaction import redact, text_of
from agentlab._internal.safe_text import AS_WRITTEN, cut, one_line, printable
from agentlab.engine.worker import RunState
from agentlab.errors import ConfigurationError
from agentlab.limits.reading import Action
from agentlab.limits.settings import RunSettings
from agentlab.model.messages import Message
from agentlab.records.columns import is_recorded, source_of, step_rows
from agentlab.records.events import changes_between
from agentlab.records.frames import Recorded, array
from agentlab.records.step import StepResult, cost_usd_of, difference_of, tokens_of
from agentlab.storage import codec


class RunDiff(pd.DataFrame):
    """The steps of two runs side by side, a DataFrame with one row per step; the result of `lab.diff`.

    Its display begins with the agents or models if they differ, the first difference, and the differences in tokens, cost and end. The
    properties have them as values. A selection of rows or columns is a plain DataFrame.

    Example:
        >>> branch = ended.fork(at=2, budget=lab.Budget(max_turns=3))
        >>> result = await branch
        >>> lab.diff(ended, branch).summary
        'First difference: step 3, limits: max_turns 20 → 3. Tokens -938 (3,146 → 2,208), cost -$0.004014, end stop_condition → ...
    """

    @property
    def first_difference(self) -> int | None:
        """The first step that differs; None if none does.

        Example:
            >>> lab.diff(result, result).first_difference is None
            True
        """
        first: int | None = self.attrs["first_difference"]
        return first

    @property
    def what(self) -> str:
        """What differs there, as in the column `differs_in`; "" if nothing does.

        Example:
            >>> lab.diff(result, others[0]).what
            'answer'
        """
        what: str = self.attrs["what"]
        return what

    @property
    def tokens_difference(self) -> int | None:
        """Tokens of `run_b` minus those of `run_a`, both with sub-agents; None if one is unknown.

        Example:
            >>> lab.diff(result, others[0]).tokens_difference
            -1722
        """
        a, b = self.attrs["tokens"]
        return None if a is None or b is None else int(b - a)

    @property
    def cost_difference_usd(self) -> float | None:
        """Cost of `run_b` minus that of `run_a` in US dollars, both with sub-agents; None if one is unknown.

        Example:
            >>> lab.diff(result, result).cost_difference_usd
            0.0
        """
        difference: float | None = self.attrs["cost_difference_usd"]
        return difference

    @property
    def ends(self) -> tuple[str | None, str | None]:
        """The stop reasons of both runs; None for a run that has not ended. The summary has its state.

        Example:
            >>> lab.diff(result, others[0]).ends
            ('stop_condition', 'stop_condition')
        """
        a, b = self.attrs["ends"]
        return a, b

    @property
    def summary(self) -> str:
        """The differences in two sentences.

        Example:
            >>> lab.diff(result, result).summary
            'No difference in 4 steps. Tokens +0 (3,146 → 3,146), cost +$0, end stop_condition, both.'
        """
        at, cost = self.first_difference, self.cost_difference_usd
        none = f"No difference in {counted(self.attrs['steps'], 'step')}"
        first = none if at is None else f"First difference: step {at}, {self.attrs['what_in_full']}"
        before, after = ["unknown" if one is None else f"{one:,}" for one in self.attrs["tokens"]]
        more = "unknown" if self.tokens_difference is None else f"{self.tokens_difference:+,}"
        dollars = "unknown" if cost is None else f"{'-' if cost < 0 else '+'}${exactly(Decimal(str(abs(cost))))}"
        ended, then = self.attrs["states"]
        end = f"{ended}, both" if ended == then else f"{ended} → {then}"
        return f"{first}. Tokens {more} ({before} → {after}), cost {dollars}, end {end}."

    def __repr__(self) -> str:
        shown = self[[name for name in _PRINTED if name in self.columns]]
        left = self.shape[1] - shown.shape[1]
        more = f"\n… and {counted(left, 'column')} more: .columns" if left else ""
        with pd.option_context("display.max_columns", None, "display.width", 200):
            return f"{self.attrs['names']}{self.summary}\n{shown!r}{more}"

    def _repr_html_(self) -> str | None:
        table = super()._repr_html_()  # type: ignore[misc]
        head = html.escape(printable(f"{self.attrs['names']}{self.summary}"))
        return None if table is None else f'<div class="{AS_WRITTEN}"><p><b>{head}</b></p>{table}</div>'


def diff(run_a: Recorded, run_b: Recorded) -> RunDiff:
    """Return two runs side by side, aligned by the number of the step: a DataFrame with one row per step.

    Each run is a run, a result, or a run from a store, ended or not. The display begins with a summary; `first_difference`, `what`,
    `tokens_difference`, `cost_difference_usd` and `ends` have its values. Columns:

    - `step`; `same`: True if both runs have the step and nothing below differs
    - `differs_in`: the first of these that differs, else "": `prompt` (the instructions, which a result does not have, the messages
      before the first step, and further messages before this step), `answer` (text, reasoning, finish reason), `tool calls` (the names,
      in order), `arguments` (as JSON: the order of keys does not count), `tool results` (text and error), `end` (both runs ended here,
      for different reasons), `limits` (only at the step from which they differ: later steps are the same unless they say or do
      something else); `only in a`, `only in b` if one run has no such step
    - `finish_reason_a`, `finish_reason_b`; `tools_a`, `tools_b`: the names of the called tools
    - `tokens_a`, `tokens_b`, `cost_usd_a`, `cost_usd_b`: of the step, with sub-agents
    - `cumulative_tokens_difference`, `cumulative_cost_usd_difference`: `run_b` minus `run_a` up to and including the step; a run that
      has no such step counts with its total
    - `stop_reason_a`, `stop_reason_b`: why the run ended, on its last step

    Texts are compared exactly. Times, usage, models and the ids of tool calls do not count as differences; functions in limits are
    compared by name. The steps that a branch took over from its parent are the same in both, even if the branch has another prompt:
    that counts for the first step it takes itself. NA means unknown, or no such step, never 0. Errors: ConfigurationError for anything
    that is not one run.

    Example:
        >>> branch = ended.fork(at=2, budget=lab.Budget(max_turns=3))
        >>> result = await branch
        >>> found = lab.diff(ended, branch)
        >>> found[["step", "same", "differs_in", "tokens_a", "tokens_b", "stop_reason_b"]]
           step   same differs_in  tokens_a  tokens_b stop_reason_b
        0     1   True                  637       637          <NA>
        1     2   True                  747       747          <NA>
        2     3  False     limits       824       824    turn_limit
        3     4  False  only in a       938      <NA>          <NA>
        >>> found.first_difference, found.what, found.tokens_difference, found.ends
        (3, 'limits', -938, ('stop_condition', 'turn_limit'))
    """
    a, b = _Side.of(run_a, "run_a"), _Side.of(run_b, "run_b")
    rows = list(_rows(a, b))
    found = RunDiff({name: array([row[name] for row in rows], dtype) for name, dtype in _DIFF.items()})
    first: Mapping[str, Any] = next((row for row in rows if not row["same"]), {"step": None, "differs_in": ""})
    found.attrs = {
        "first_difference": first["step"],
        "what": first["differs_in"],
        "what_in_full": first["differs_in"] + (_limits_in_words(a, b, first) if first["differs_in"] == "limits" else ""),
        "names": _names(a, b),
        "steps": len(rows),
        "tokens": (a.total_tokens, b.total_tokens),
        "cost_difference_usd": _usd(_minus(b.total_cost_usd, a.total_cost_usd)),
        "ends": (a.stop_reason, b.stop_reason),
        "states": (a.state, b.state),
    }
    return found


def _names(a: _Side, b: _Side) -> str:
    """Return which run is which, by the first of agent, model and provider that differs: `a: claude-a, b: claude-b. `."""
    for one, other in zip(a.names, b.names, strict=True):
        if one != other and one and other:
            return f"a: {one_line(one, 60)}, b: {one_line(other, 60)}. "
    return ""


def _limits_in_words(a: _Side, b: _Side, row: Mapping[str, Any]) -> str:
    settings = [side.steps[row["step"] - 1].settings for side in (a, b)]
    changes = (one.split(" -> ", 1) for one in changes_between(*settings))
    words = [f"{before} → {after}" for before, after in changes if before.partition(" ")[2] != after]
    return f": {cut(redact(', '.join(words)), 200)}" if words else ""


_PRINTED = ("step", "same", "differs_in", "tokens_a", "tokens_b", "finish_reason_a", "finish_reason_b")
"""The columns that the text form shows, so that it fits a line."""

_DIFF: dict[str, str] = {
    "step": "Int64",
    "same": "boolean",
    "differs_in": "string",
    **dict.fromkeys(("finish_reason_a", "finish_reason_b", "tools_a", "tools_b"), "string"),
    **dict.fromkeys(("tokens_a", "tokens_b"), "Int64"),
    **dict.fromkeys(("cost_usd_a", "cost_usd_b"), "Float64"),
    "cumulative_tokens_difference": "Int64",
    "cumulative_cost_usd_difference": "Float64",
    **dict.fromkeys(("stop_reason_a", "stop_reason_b"), "string"),
}


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two runs."""

    names: tuple[str, str, str]
    """Agent, model and provider; no agent if it has no name."""
    steps: Sequence[StepResult]
    forked_at: int
    """The number of steps that it took over from its parent."""
    instructions: str | None
    """None if they are not known."""
    given: list[list[Any]]
    """What the model was given before each step besides its answers and tool results; the last item is for a next step."""
    tokens: list[int | None]
    """After each step, with sub-agents; 0 at the start."""
    cost_usd: list[Decimal | None]
    total_tokens: int | None
    """Also with sub-agents of an interrupted step."""
    total_cost_usd: Decimal | None
    stop_reason: str | None
    state: str
    """The stop reason, or the state of a run that has not ended."""

    @classmethod
    def of(cls, recorded: Any, name: str) -> _Side:
        """Return a run as a side. Raises ConfigurationError for anything else."""
        if not is_recorded(recorded) or isinstance(recorded, type):
            shown = cut(text_of(recorded, repr), 80)
            raise ConfigurationError(
                f"lab.diff({name}={shown}): {type(recorded).__name__} is not one run. Pass a run, its result, or store.load(run_id); "
                "of several runs, one, such as results.loaded[0] of an experiment."
            )
        source = source_of(recorded)
        steps, uses = source.history[:], source.history.cut_off  # copied once: another thread may append
        totals = list(step_rows(steps))
        tokens, cost = [0, *(row.tokens for row in totals)], [Decimal(0), *(row.cost_usd for row in totals)]
        agent = str(getattr(getattr(recorded, "agent", None), "name", ""))
        return cls(
            ("" if agent == f"{source.provider}:{source.model}" else agent, source.model, source.provider),
            steps,
            source.forked_at or 0,
            getattr(getattr(recorded, "agent", None), "instructions", None),
            _given(tuple(recorded.messages), steps),
            tokens,
            cost,
            _plus(tokens[-1], tokens_of(uses)),
            _plus(cost[-1], cost_usd_of(uses)),
            None if source.result is None else str(source.result.stop_reason),
            _state_of(recorded) if source.result is None else str(source.result.stop_reason),
        )

    def row(self, step: StepResult | None, letter: str) -> dict[str, Any]:
        """Return the columns of this run at a step, None after its end."""
        reason = None if step is None else step.finish_reason
        return {
            f"finish_reason_{letter}": None if reason is None else str(reason),
            f"tools_{letter}": None if step is None else redact(", ".join([call.name for call in step.tool_calls])),
            f"tokens_{letter}": None if step is None else step.all_tokens,
            f"cost_usd_{letter}": None if step is None else _usd(step.all_cost_usd),
            f"stop_reason_{letter}": self.stop_reason if step is not None and step is self.steps[-1] else None,
        }


def _state_of(run: Any) -> str:
    """Return in words where a run is that has not ended."""
    if run.state is not RunState.READY:
        return {RunState.WAITING: "waiting for approval", RunState.PAUSED: "paused"}.get(run.state, "still running")
    return "not ended" if run.history else "not started"


def _given(messages: Sequence[Message], steps: Sequence[StepResult]) -> list[list[Any]]:
    """Return the messages before each step as comparable values: all before the first one, then those of neither model nor tools.

    A step adds one message of the model for its first call, and one for each call that resumes a paused answer.
    """
    answers = [
        bool(step.calls) + sum(call.decision is not None and call.decision.action is Action.RESUME for call in step.calls[:-1])
        for step in steps
    ]
    before = sum(message.role == "assistant" for message in messages) - sum(answers)
    of = [0] * before + [number for number, count in enumerate(answers, start=1) for _ in range(count)]
    found: list[list[Any]] = [[] for _ in range(len(steps) + 1)]
    last, waiting = 0, iter(of)
    for message in messages:
        if message.role == "assistant":
            last = next(waiting, last)
        if not last:
            calls = [(call.name, call.arguments) for call in message.tool_calls]
            found[0].append((message.role, message.text, calls, [result.content for result in message.tool_results]))
        elif message.role not in ("assistant", "tool"):
            found[last].append((message.role, message.text))
    return found


def _rows(a: _Side, b: _Side) -> Iterator[dict[str, Any]]:
    known: dict[tuple[int, int], bool] = {}

    def same_limits(one: RunSettings, other: RunSettings) -> bool:
        """True if they are the same in a store, which has functions by name; most steps of a run share one object."""
        pair = id(one), id(other)
        if pair not in known:
            known[pair] = one is other or codec.to_jsonable(one) == codec.to_jsonable(other)
        return known[pair]

    limits: tuple[RunSettings, RunSettings] | None = None  # of the step before
    prompt_differs = None not in (a.instructions, b.instructions) and a.instructions != b.instructions
    for number, (left, right) in enumerate(zip_longest(a.steps, b.steps), start=1):
        if left is None or right is None:
            what = "only in b" if left is None else "only in a"
        else:
            prompt_differs |= a.given[number - 1] != b.given[number - 1]
            is_shared = number <= max(a.forked_at, b.forked_at) and _is_shared(left, right)
            what = "prompt" if prompt_differs and not is_shared else difference_of(left, right)
            prompt_differs &= is_shared
            both_ended = number == len(a.steps) == len(b.steps) and None not in (a.stop_reason, b.stop_reason)
            what = what or ("end" if both_ended and a.stop_reason != b.stop_reason else "")
            before, limits = limits, (left.settings, right.settings)
            as_before = before is not None and all(map(same_limits, before, limits))
            what = what or ("" if as_before or same_limits(*limits) else "limits")
        tokens = _minus(_at(b.tokens, number, b.total_tokens), _at(a.tokens, number, a.total_tokens))
        cost = _minus(_at(b.cost_usd, number, b.total_cost_usd), _at(a.cost_usd, number, a.total_cost_usd))
        row = {
            "step": number,
            "same": not what,
            "differs_in": what,
            **a.row(left, "a"),
            **b.row(right, "b"),
            "cumulative_tokens_difference": tokens,
            "cumulative_cost_usd_difference": _usd(cost),
        }
        yield {column: row[column] for column in _DIFF}


def _at(sums: list[Any], number: int, total: Any) -> Any:
    return sums[number] if number < len(sums) else total


def _is_shared(a: StepResult, b: StepResult) -> bool:
    """True if both runs have this very step; a branch may have other results of its tools."""
    return (a.started_s, a.duration_s, a.calls) == (b.started_s, b.duration_s, b.calls)


def _usd(cost: Decimal | None) -> float | None:
    return None if cost is None or not cost.is_finite() else float(cost)


def _minus(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one - other


def _plus(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one + other
