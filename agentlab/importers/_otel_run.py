"""One run out of the spans that belong to it."""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from agentlab import genai_names as names
from agentlab.importers import _genai as genai
from agentlab.importers._rows import ReadRun, ReadTurn, summed_cost, summed_usage
from agentlab.importers._spans import Span
from agentlab.importers._words import finish_reason_of
from agentlab.results import Action
from agentlab.types import Cost, FinishReason, StopReason, Usage

Counted = MutableMapping[str, int]


@dataclass
class Group:
    """The spans of one run: its own span where there is one, the calls of models in the order in which they began, and the tools.

    `inner` are calls inside one of these calls, `subs` the runs of its sub-agents; `below` is the run that it is a sub-agent of, and
    `called_by` the tool that began it. The steps are worked out when all spans are in.
    """

    run_id: str
    root: Span | None = None
    is_tool: bool = False
    calls: list[Span] = field(default_factory=list)
    tools: list[Span] = field(default_factory=list)
    inner: defaultdict[tuple[str, str], list[Span]] = field(default_factory=lambda: defaultdict(list))
    subs: list[Group] = field(default_factory=list)
    below: Group | None = None
    called_by: Span | None = None

    @property
    def start_ns(self) -> int | None:
        """When it began."""
        times = [
            span.start_ns for span in ([self.root] if self.root else [*self.calls, *self.tools]) if span.start_ns is not None
        ]
        return min(times, default=None)

    @cached_property
    def steps(self) -> list[list[Span]]:
        """The calls, step by step: each its own, but for agentlab's spans, which say to which step they belong."""
        return [list(calls) for _, calls in itertools.groupby(self.calls, key=_step_key)]

    @cached_property
    def _numbers(self) -> dict[int, int]:
        """The places of agentlab's steps, by their numbers."""
        numbers = [genai.number_at(calls[0].attributes, names.STEP) for calls in self.steps]
        return {number: place for place, number in reversed([*enumerate(numbers)]) if number is not None}

    @cached_property
    def _begins(self) -> list[int]:
        return [calls[0].start_ns or 0 for calls in self.steps]

    def place_of(self, span: Span) -> int | None:
        """The place of the step in which a tool or a sub-agent began, from 0; None before the first."""
        number = genai.number_at(span.attributes, names.STEP)
        if number in self._numbers:
            return self._numbers[number]
        place = bisect.bisect_right(self._begins, span.start_ns or 0) - 1
        return place if place >= 0 else None


def _step_key(call: Span) -> object:
    return genai.number_at(call.attributes, names.STEP) or call.key


def run_of(group: Group, counted: Counted) -> ReadRun:
    """The run, and into `counted` what there is to be told of it."""
    root = None if group.is_tool else group.root
    told: Mapping[str, object] = {} if root is None else root.attributes
    steps = group.steps
    tools: dict[int, list[Span]] = defaultdict(list)
    for tool in group.tools:
        place = group.place_of(tool)
        if place is None:
            counted["early_tools"] += 1
        else:
            tools[place].append(tool)
    subs: dict[int | None, list[str]] = defaultdict(list)
    for sub in group.subs:
        subs[group.place_of(sub.called_by or sub.root or group.calls[0]) if steps else None].append(sub.run_id)
    stop = _stop_reason(root)
    turns = [_turn(group, calls, tools[place], tuple(subs[place]), counted) for place, calls in enumerate(steps)]
    if turns and stop is StopReason.COMPLETED and turns[-1].action is None and names.STOP_REASON in told:
        turns[-1] = _with_action(turns[-1], Action.COMPLETE)
    forked_from = genai.text_at(told, (names.PARENT_RUN_ID,))
    later = bool(turns and turns[0].number and turns[0].number > 1)
    counted["bare"] += not turns
    counted["no_end"] += stop is None
    counted["executed"] += bool(group.tools) and all(genai.answer(call)[1] is None for call in group.calls)
    usage, cost = _own_sums(root, turns, counted)
    asked = [span for span in ([root] if root else []) + group.calls[:1] if span is not None]
    return ReadRun(
        group.run_id,
        turns,
        provider=next((found for span in asked if (found := genai.provider(span))), None),
        model=next((found for span in asked if (found := genai.model(span))), None),
        prompt=next((found for span in asked if (found := genai.prompt(span))), None),
        stop_reason=stop,
        parent_run_id=forked_from or (group.below.run_id if group.below else None),
        forked_at=turns[0].number - 1 if later and forked_from and turns[0].number else None,
        parent_step=_parent_step(group),
        called_by=None if group.called_by is None else genai.text_at(group.called_by.attributes, (names.TOOL_CALL_ID,)),
        elapsed_s=_elapsed(group, root),
        text=genai.answer(root)[0] if root else None,
        usage=usage,
        cost=cost,
        children=tuple(subs[None]),
        begins_later=later,
    )


def _turn(group: Group, calls: Sequence[Span], tools: Sequence[Span], children: tuple[str, ...], counted: Counted) -> ReadTurn:
    answered = [call for call in calls if not _did_not_come_back(call)]
    used = [_used(group, call, counted) for call in calls]
    last = answered[-1] if answered else None
    text, asked_for = genai.answer(calls[0]) if len(calls) == 1 else (None, None)
    word = None if last is None else genai.finish_word(last)
    own = None if last is None else genai.text_at(last.attributes, (names.FINISH_REASON,))
    reason = (
        FinishReason(own)
        if own is not None and own in FinishReason.__members__.values()
        else finish_reason_of(word, called_tools=bool(tools))
    )
    names_of: tuple[str, ...] | None = asked_for if asked_for is not None else tuple(genai.tool_name(tool) for tool in tools)
    if answered and asked_for is None and not tools and (reason is None or reason is FinishReason.TOOL_CALLS):
        names_of = None  # it may have called some that nobody wrote a span for
    failed = None if last is calls[-1] else genai.text_at(calls[-1].attributes, (names.ERROR_TYPE,)) or "error"
    begin = _least([span.start_ns for span in (*calls, *tools)])
    end = _most([span.end_ns for span in (*calls, *tools)])
    zero = group.start_ns
    return ReadTurn(
        provider=genai.provider(calls[0]),
        model=genai.model(calls[0]),
        finish_reason=reason,
        raw_finish_reason=word,
        action=Action.EXECUTE_TOOLS.value if tools else None,
        usage=summed_usage([usage for usage, _ in used]),
        cost=summed_cost([cost for _, cost in used]),
        calls=sum(max(1, len(group.inner.get(call.key, ()))) for call in answered),
        tools=names_of,
        tool_errors=_failed(tools) if tools or names_of == () else None,
        text=text,
        started_s=None if begin is None or zero is None else max(0, begin - zero) / 1e9,
        duration_s=None if begin is None or end is None else max(0, end - begin) / 1e9,
        error=failed,
        children=children,
        number=genai.number_at(calls[0].attributes, names.STEP),
    )


def _with_action(turn: ReadTurn, action: Action) -> ReadTurn:
    return replace(turn, action=action.value)


def _used(group: Group, call: Span, counted: Counted) -> tuple[Usage, Cost]:
    """Tokens and money of a call; of the calls inside it, where it says nothing itself."""
    inner = group.inner.get(call.key)
    read = [(call, *genai.usage(call))]
    if inner and read[0][1].input_tokens is None and read[0][1].output_tokens is None:
        read = [(span, *genai.usage(span)) for span in inner]
    counted["apart"] += sum(apart for _, _, apart in read)
    found = [(usage, genai.cost(span, usage, price=names.STEP not in span.attributes)) for span, usage, _ in read]
    return summed_usage([usage for usage, _ in found]), summed_cost([cost for _, cost in found])


def _did_not_come_back(call: Span) -> bool:
    """Whether the call failed: of agentlab's own, those without a number."""
    if names.STEP in call.attributes:
        return names.CALL not in call.attributes
    if not call.failed and names.ERROR_TYPE not in call.attributes:
        return False
    return genai.finish_word(call) is None and genai.usage(call)[0].output_tokens is None


def _failed(tools: Sequence[Span]) -> int:
    return sum(tool.failed or names.ERROR_TYPE in tool.attributes for tool in tools)


def _stop_reason(root: Span | None) -> StopReason | None:
    """Why a run ended: in agentlab's word, else ERROR where its span says that it failed."""
    if root is None:
        return None
    word = root.attributes.get(names.STOP_REASON)
    if isinstance(word, str) and word in StopReason.__members__.values():
        return StopReason(word)
    return StopReason.ERROR if root.failed or names.ERROR_TYPE in root.attributes else None


def _own_sums(root: Span | None, turns: Sequence[ReadTurn], counted: Counted) -> tuple[Usage, Cost]:
    """The sums that the run's span has; they are taken where there is no call to add up."""
    if root is None or turns:
        return Usage(), Cost()
    usage, apart = genai.usage(root)
    counted["apart"] += apart
    return usage, genai.cost(root, usage, price=names.RUN_ID not in root.attributes, several=True)


def _parent_step(group: Group) -> int | None:
    if group.below is None or group.root is None:
        return None
    place = group.below.place_of(group.called_by or group.root)
    if place is None:
        return None
    return genai.number_at(group.below.steps[place][0].attributes, names.STEP) or place + 1


def _elapsed(group: Group, root: Span | None) -> float | None:
    spans = [root] if root else [*group.calls, *group.tools]
    begin, end = _least([span.start_ns for span in spans]), _most([span.end_ns for span in spans])
    return None if begin is None or end is None else max(0, end - begin) / 1e9


def _least(times: Sequence[int | None]) -> int | None:
    return min([time for time in times if time is not None], default=None)


def _most(times: Sequence[int | None]) -> int | None:
    return max([time for time in times if time is not None], default=None)


def with_their_beginning(runs: Sequence[ReadRun], counted: Counted) -> list[ReadRun]:
    """The runs, each fork with the steps that it has from its parent, where those are in the record."""
    by_id = {run.run_id: run for run in runs}
    whole: dict[str, ReadRun] = {run.run_id: run for run in runs if not run.begins_later}
    for run in runs:
        way = []
        one: ReadRun | None = run
        while one is not None and one.run_id not in whole and one not in way:
            way.append(one)
            one = by_id.get(one.parent_run_id or "")
        for fork in reversed(way):
            whole[fork.run_id] = _whole(fork, whole.get(fork.parent_run_id or ""))
    counted["later"] += sum(run.begins_later for run in whole.values())
    return [whole[run.run_id] for run in runs]


def _whole(fork: ReadRun, parent: ReadRun | None) -> ReadRun:
    at = fork.forked_at
    if (
        at is None
        or parent is None
        or parent.begins_later
        or [turn.number for turn in parent.turns[:at]] != list(range(1, at + 1))
    ):
        return fork
    shared = parent.turns[:at]
    before = (shared[-1].started_s or 0) + (shared[-1].duration_s or 0)
    own = [replace(turn, started_s=None if turn.started_s is None else turn.started_s + before) for turn in fork.turns]
    return replace(fork, turns=[*shared, *own], begins_later=False)
