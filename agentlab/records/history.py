"""The steps of a run with running totals."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import overload

from agentlab._internal.display import Displayable
from agentlab._internal.formatting import counted
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.usage import FREE, NOTHING_USED, Cost, Usage, add_cost, add_usage
from agentlab.records.step import ChildUse, ModelCall, StepResult

ZERO = Decimal(0)


class RunHistory(Sequence[StepResult], Displayable):
    """The steps of a run, append only, with totals in O(1).

    `usage` and `cost` are sums over all steps, unknown (None) if a part is unknown; `known_tokens`, `known_output_tokens` and
    `known_cost_usd` are the sums of the known parts, lower bounds. `calls` counts round trips; `elapsed_s` is the active time until
    the end of the last step. All of these include sub-agents; `own_calls`, `own_usage` and `own_cost` do not, nor does `tool_calls`,
    the calls that the model made. `cut_off` is the stored usage of sub-agents in an attempt at the next step whose process died: it
    is part of the totals, and of the step's `children` once the step is repeated.

    Example:
        >>> result.history
        RunHistory(4 steps, 4 calls, 3146 tokens, $0.014346)
        >>> result.history[-1].index, result.history.calls
        (4, 4)
    """

    __slots__ = (
        "_call_counts",
        "_finish_values",
        "_most_repeated",
        "_own",
        "_read_for_repeats",
        "_steps",
        "_tool_counts",
        "calls",
        "cost",
        "cut_off",
        "elapsed_s",
        "known_cost_usd",
        "known_output_tokens",
        "known_tokens",
        "tool_calls",
        "usage",
    )

    def __init__(self, steps: Iterable[StepResult] = (), cut_off: Iterable[ChildUse] = ()) -> None:
        self._steps: list[StepResult] = []
        self._tool_counts: dict[str, int] = {}
        self._call_counts: dict[tuple[str, str], int] = {}
        self._read_for_repeats = self._most_repeated = 0
        self._finish_values: set[str] = set()
        self._own: tuple[int, Usage, Cost] | None = None  # None until a sub-agent is called: equal to the totals
        self.calls: int = 0
        self.usage: Usage = NOTHING_USED
        self.cost: Cost = FREE
        self.known_tokens: int = 0
        self.known_output_tokens: int = 0
        self.tool_calls: int = 0
        self.known_cost_usd: Decimal = ZERO
        self.elapsed_s: float = 0.0
        self.cut_off: tuple[ChildUse, ...] = ()
        for step in steps:
            self.append(step)
        self._count(cut_off)
        self.cut_off = tuple(cut_off)

    def append(self, step: StepResult) -> None:
        """Add the next step and update the totals."""
        self._steps.append(step)
        if step.children or self._own is not None:
            self._add_children(step)
        self.usage = add_usage(self.usage, step.usage)
        self.cost = add_cost(self.cost, step.cost)
        self.elapsed_s = step.started_s + step.duration_s
        self.calls += len(step.calls)
        for call in step.calls:
            usage, signal = call.usage, call.response.signal
            self.known_tokens += usage.known_tokens
            self.known_output_tokens += usage.output_tokens or 0
            self.known_cost_usd += call.cost.known_usd
            self._finish_values.add(signal.finish_reason)
            if signal.raw_value is not None:
                self._finish_values.add(str(signal.raw_value))
        tool_calls = step.tool_calls
        self.tool_calls += len(tool_calls)
        for tool_call in tool_calls:
            self._tool_counts[tool_call.name] = self._tool_counts.get(tool_call.name, 0) + 1

    def _add_children(self, step: StepResult) -> None:
        calls, usage, cost = self._own or (self.calls, self.usage, self.cost)
        self._own = (calls + len(step.calls), add_usage(usage, step.usage), add_cost(cost, step.cost))
        self._count([child for child in step.children if child not in self.cut_off])
        self.cut_off = ()

    def _count(self, children: Iterable[ChildUse]) -> None:
        for child in children:
            self._own = self._own or (self.calls, self.usage, self.cost)
            self.usage, self.cost = add_usage(self.usage, child.usage), add_cost(self.cost, child.cost)
            self.calls += child.calls
            self.known_tokens += child.known_tokens
            self.known_output_tokens += child.usage.output_tokens or 0
            self.known_cost_usd += child.known_cost_usd

    def amend(self, step: StepResult) -> None:
        """Replace the newest step by an updated version with the same calls."""
        self._steps[-1] = step

    @property
    def own_calls(self) -> int:
        """Round trips of the run itself, without sub-agents.

        Example:
            >>> result.history.own_calls == result.history.calls  # no sub-agents
            True
        """
        return self.calls if self._own is None else self._own[0]

    @property
    def own_usage(self) -> Usage:
        """Tokens of the run itself, without sub-agents.

        Example:
            >>> result.history.own_usage.total_tokens
            3146
        """
        return self.usage if self._own is None else self._own[1]

    @property
    def own_cost(self) -> Cost:
        """Cost of the run itself, without sub-agents.

        Example:
            >>> result.history.own_cost.usd
            Decimal('0.014346')
        """
        return self.cost if self._own is None else self._own[2]

    @property
    def tokens(self) -> int | None:
        """All tokens so far; None if a part is unknown.

        Example:
            >>> result.history.tokens
            3146
        """
        return self.usage.total_tokens

    @property
    def cost_usd(self) -> Decimal | None:
        """Cost so far; None if a part is unknown.

        Example:
            >>> result.history.cost_usd
            Decimal('0.014346')
        """
        return self.cost.usd

    @property
    def last(self) -> StepResult | None:
        """The newest step.

        Example:
            >>> result.history.last.index
            4
        """
        return self._steps[-1] if self._steps else None

    def tool_count(self, name: str) -> int:
        """Return how often the model called this tool.

        Example:
            >>> result.history.tool_count("get_weather"), result.history.tool_count("search")
            (2, 0)
        """
        return self._tool_counts.get(name, 0)

    @property
    def most_repeated(self) -> int:
        """How often the model made its most frequent tool call, with the same arguments in any order; 0 without calls.

        Example:
            >>> result.history.most_repeated
            1
        """
        for step in self._steps[self._read_for_repeats :]:  # new steps only
            for call in step.tool_calls:
                key = call.name, _in_order(call.arguments)
                self._call_counts[key] = count = self._call_counts.get(key, 0) + 1
                self._most_repeated = max(self._most_repeated, count)
        self._read_for_repeats = len(self._steps)
        return self._most_repeated

    def has_finish(self, reason: FinishReason | str) -> bool:
        """True if any response ended for this reason: a FinishReason, or a provider's own word.

        Example:
            >>> result.history.has_finish("tool_use"), result.history.has_finish(lab.FinishReason.MAX_TOKENS)
            (True, False)
        """
        return str(reason) in self._finish_values

    def prefix(self, length: int) -> RunHistory:
        """Return the history as it was after `length` steps.

        Example:
            >>> result.history.prefix(2)
            RunHistory(2 steps, 2 calls, 1384 tokens, $0.007008)
        """
        return RunHistory(self._steps[:length])

    def since(self, length: int) -> RunHistory:
        """Return the steps after the first `length`, with their totals.

        Example:
            >>> result.history.since(2)
            RunHistory(2 steps, 2 calls, 1762 tokens, $0.007338)
        """
        return RunHistory(self._steps[length:], self.cut_off)

    def counting(self, calls: Iterable[ModelCall], children: Iterable[ChildUse] = ()) -> RunHistory:
        """Return the same steps with totals that also count these calls and sub-agents of the next step.

        Example:
            >>> result.history.prefix(3).counting(result.history[3].calls)
            RunHistory(3 steps, 4 calls, 3146 tokens, $0.014346)
        """
        now = copy.copy(self)
        now._own = self.own_calls, self.own_usage, self.own_cost
        for call in calls:
            now.usage, now.cost = add_usage(now.usage, call.usage), add_cost(now.cost, call.cost)
            now.calls += 1
            now.known_tokens += call.usage.known_tokens
            now.known_output_tokens += call.usage.output_tokens or 0
            now.known_cost_usd += call.cost.known_usd
        now._count(children)
        return now

    def __len__(self) -> int:
        return len(self._steps)

    @overload
    def __getitem__(self, index: int) -> StepResult: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[StepResult]: ...
    def __getitem__(self, index: int | slice) -> StepResult | Sequence[StepResult]:
        return self._steps[index]

    def __repr__(self) -> str:
        tokens = "unknown" if self.tokens is None else self.tokens
        cost = "unknown" if self.cost_usd is None else f"${self.cost_usd}"
        return f"RunHistory({counted(len(self), 'step')}, {counted(self.calls, 'call')}, {tokens} tokens, {cost})"


def _in_order(arguments: str) -> str:
    """Return the arguments of a call with their names in order; text that is not JSON as it is."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments
