"""Imports runs from OpenTelemetry's GenAI spans."""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from agentlab._internal.formatting import counted
from agentlab._internal.safe_text import one_line
from agentlab.errors import ConfigurationError, StorageError
from agentlab.interop import otel_attributes as names
from agentlab.interop import spans as genai
from agentlab.interop.rows import Imported, ReadRun, ReadStep, files_of, finish_reason_of, frames, summed_cost, summed_usage
from agentlab.interop.spans import Faults, Span, spans_of_file, spans_of_items
from agentlab.limits.reading import Action
from agentlab.model.finish_reasons import FinishReason, StopReason
from agentlab.model.usage import Cost, Usage

Counted = MutableMapping[str, int]


@dataclass
class Group:
    """The spans of one run: its own span if there is one, the model calls in order of their start, and the tools.

    `inner` are calls inside one of these calls, `subs` the runs of its sub-agents; `below` is the parent run of a sub-agent, and
    `called_by` the tool that started it. Read `steps` only after all spans were added.
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
        """The start of the run."""
        times = [
            span.start_ns for span in ([self.root] if self.root else [*self.calls, *self.tools]) if span.start_ns is not None
        ]
        return min(times, default=None)

    @cached_property
    def steps(self) -> list[list[Span]]:
        """The calls by step. Each call is a step, except in agentlab's spans, which have the number of their step."""
        return [list(calls) for _, calls in itertools.groupby(self.calls, key=_step_key)]

    @cached_property
    def _numbers(self) -> dict[int, int]:
        """The index of each of agentlab's steps by its number."""
        numbers = [genai.number_at(calls[0].attributes, names.STEP) for calls in self.steps]
        return {number: place for place, number in reversed([*enumerate(numbers)]) if number is not None}

    @cached_property
    def _begins(self) -> list[int]:
        return [calls[0].start_ns or 0 for calls in self.steps]

    def place_of(self, span: Span) -> int | None:
        """Return the index of the step in which a tool or a sub-agent began; None before the first step."""
        number = genai.number_at(span.attributes, names.STEP)
        if number in self._numbers:
            return self._numbers[number]
        place = bisect.bisect_right(self._begins, span.start_ns or 0) - 1
        return place if place >= 0 else None


def _step_key(call: Span) -> object:
    return genai.number_at(call.attributes, names.STEP) or call.key


def _run_of(group: Group, counted: Counted) -> ReadRun:
    """Return the run, and add to `counted` for the notes."""
    root = None if group.is_tool else group.root
    attributes: Mapping[str, object] = {} if root is None else root.attributes
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
    read_steps = [_read_step(group, calls, tools[place], tuple(subs[place]), counted) for place, calls in enumerate(steps)]
    if read_steps and stop is StopReason.COMPLETED and read_steps[-1].action is None and names.STOP_REASON in attributes:
        read_steps[-1] = replace(read_steps[-1], action=Action.COMPLETE.value)
    forked_from = genai.text_at(attributes, (names.PARENT_RUN_ID,))
    later = bool(read_steps and read_steps[0].number and read_steps[0].number > 1)
    counted["bare"] += not read_steps
    counted["no_end"] += stop is None
    counted["executed"] += bool(group.tools) and all(genai.answer(call)[1] is None for call in group.calls)
    usage, cost = _own_sums(root, read_steps, counted)
    asked = [span for span in ([root] if root else []) + group.calls[:1] if span is not None]
    return ReadRun(
        group.run_id,
        read_steps,
        provider=next((found for span in asked if (found := genai.provider(span))), None),
        model=next((found for span in asked if (found := genai.model(span))), None),
        prompt=next((found for span in asked if (found := genai.prompt(span))), None),
        stop_reason=stop,
        parent_run_id=forked_from or (group.below.run_id if group.below else None),
        forked_at=read_steps[0].number - 1 if later and forked_from and read_steps[0].number else None,
        parent_step=_parent_step(group),
        called_by=None if group.called_by is None else genai.text_at(group.called_by.attributes, (names.TOOL_CALL_ID,)),
        elapsed_s=_elapsed(group, root),
        text=genai.answer(root)[0] if root else None,
        usage=usage,
        cost=cost,
        children=tuple(subs[None]),
        begins_later=later,
    )


def _read_step(
    group: Group, calls: Sequence[Span], tools: Sequence[Span], children: tuple[str, ...], counted: Counted
) -> ReadStep:
    answered = [call for call in calls if not _has_failed(call)]
    used = [_used(group, call, counted) for call in calls]
    last = answered[-1] if answered else None
    counted["unreadable"] += sum(map(genai.is_unreadable, calls))
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
        names_of = None  # there may be tool calls without a span
    failed = None if last is calls[-1] else genai.text_at(calls[-1].attributes, (names.ERROR_TYPE,)) or "error"
    begin = _least([span.start_ns for span in (*calls, *tools)])
    end = _most([span.end_ns for span in (*calls, *tools)])
    zero = group.start_ns
    return ReadStep(
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


def _used(group: Group, call: Span, counted: Counted) -> tuple[Usage, Cost]:
    """Return the tokens and the cost of a call; if it has none, those of the calls inside it."""
    inner = group.inner.get(call.key)
    read = [(call, *genai.usage(call))]
    if inner and read[0][1].input_tokens is None and read[0][1].output_tokens is None:
        read = [(span, *genai.usage(span)) for span in inner]
    counted["apart"] += sum(apart for _, _, apart in read)
    found = [(usage, genai.cost(span, usage, price=names.STEP not in span.attributes)) for span, usage, _ in read]
    return summed_usage([usage for usage, _ in found]), summed_cost([cost for _, cost in found])


def _has_failed(call: Span) -> bool:
    """True if the call failed. In agentlab's spans a failed call has no number."""
    if names.STEP in call.attributes:
        return names.CALL not in call.attributes
    if not call.failed and names.ERROR_TYPE not in call.attributes:
        return False
    return genai.finish_word(call) is None and genai.usage(call)[0].output_tokens is None


def _failed(tools: Sequence[Span]) -> int:
    return sum(tool.failed or names.ERROR_TYPE in tool.attributes for tool in tools)


def _stop_reason(root: Span | None) -> StopReason | None:
    """Return agentlab's stop reason, else ERROR if the span of the run failed."""
    if root is None:
        return None
    word = root.attributes.get(names.STOP_REASON)
    if isinstance(word, str) and word in StopReason.__members__.values():
        return StopReason(word)
    return StopReason.ERROR if root.failed or names.ERROR_TYPE in root.attributes else None


def _own_sums(root: Span | None, read_steps: Sequence[ReadStep], counted: Counted) -> tuple[Usage, Cost]:
    """Return the totals of the run's span if the run has no calls, else unknown ones."""
    if root is None or read_steps:
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


def _with_first_steps(runs: Sequence[ReadRun], counted: Counted) -> list[ReadRun]:
    """Return the runs, with its parent's first steps added to each fork if the record has them."""
    by_id = {run.run_id: run for run in runs}
    whole: dict[str, ReadRun] = {run.run_id: run for run in runs if not run.begins_later}

    def complete(run: ReadRun) -> ReadRun:
        if run.run_id not in whole:
            whole[run.run_id] = run  # ends the recursion if runs are forks of each other
            parent = by_id.get(run.parent_run_id or "")
            whole[run.run_id] = _with_shared_steps(run, complete(parent) if parent else None)
        return whole[run.run_id]

    for run in runs:
        complete(run)
    counted["later"] += sum(run.begins_later for run in whole.values())
    return [whole[run.run_id] for run in runs]


def _with_shared_steps(fork: ReadRun, parent: ReadRun | None) -> ReadRun:
    at = fork.forked_at
    if (
        at is None
        or parent is None
        or parent.begins_later
        or [step.number for step in parent.steps[:at]] != list(range(1, at + 1))
    ):
        return fork
    shared = parent.steps[:at]
    before = (shared[-1].started_s or 0) + (shared[-1].duration_s or 0)
    own = [replace(step, started_s=None if step.started_s is None else step.started_s + before) for step in fork.steps]
    return replace(fork, steps=[*shared, *own], begins_later=False)


ENDINGS = (".jsonl", ".json", ".ndjson")
EXPECTED = (
    'one JSON object per line, as written by the file exporter of OpenTelemetry\'s collector ({"resourceSpans": …}), '
    "or spans as printed by the SDK for Python (span.to_json()), with gen_ai.* attributes"
)
Key = tuple[str, str]


def otel(spans: str | Path | Mapping[str, Any] | Iterable[Any]) -> Imported:
    """Import runs from spans that follow OpenTelemetry's GenAI conventions, as JSON.

    `spans` is a file, a folder, a pattern or a list of them; or the spans themselves: a dict, such as that of `json.load`, or several
    in a list, as dicts, JSON texts or objects of an in-memory exporter. It reads the lines of the collector's file exporter and the
    output of the SDK for Python.

    - a run is an `invoke_agent` span; other model calls are grouped by `gen_ai.conversation.id`, else by trace
    - a step is a model call (`chat`, `text_completion`, `generate_content`) with the `execute_tool` spans until the next call; in
      agentlab's own spans it is a step of agentlab
    - model calls below a tool are a child run, that of a sub-agent, of the step
    - tokens are those of the calls, or those of the run's span if the record has no calls; never both
    - the stop reason is known from agentlab's own spans and for runs that failed, otherwise NA

    Raises ConfigurationError if the file is missing, StorageError if it has no runs.

    Example:
        >>> span = {
        ...     "name": "chat gpt-5.4-mini", "traceId": "a1", "spanId": "b1", "startTimeUnixNano": "1", "endTimeUnixNano": "9",
        ...     "attributes": {
        ...         "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5.4-mini",
        ...         "gen_ai.usage.input_tokens": 12, "gen_ai.usage.output_tokens": 3, "gen_ai.response.finish_reasons": ["stop"],
        ...     },
        ... }
        >>> lab.importers.otel([span]).steps[["provider", "finish_reason", "total_tokens"]]
          provider finish_reason  total_tokens
        0   openai      end_turn            15
    """
    faults = Faults()
    read: list[Span] = []
    if not isinstance(spans, str | Path | Iterable):
        raise ConfigurationError(f"otel({one_line(repr(spans))}): pass a file, a folder, a pattern, or spans in a list.")
    items: list[Any] = [spans] if isinstance(spans, str | Path | Mapping) else list(spans)
    if _are_paths(items):
        paths = files_of(items, ENDINGS, "otel(…)")
        source = str(paths[0]) if len(paths) == 1 else f"{len(paths):,} files"
        for path in paths:
            try:
                read += spans_of_file(path, faults)
            except OSError as error:
                raise StorageError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    else:
        source = counted(len(items), "object")
        read += spans_of_items(items, faults)
    made = _SpanImport(faults)
    runs = made.runs(read)
    if not runs:
        raise StorageError(_nothing(source, read, faults))
    return Imported(*frames(runs), tuple(made.notes()), source=source)


def _are_paths(items: list[Any]) -> bool:
    return bool(items) and all(isinstance(one, str | Path) and not str(one).lstrip().startswith(("{", "[")) for one in items)


def _nothing(source: str, read: list[Span], faults: Faults) -> str:
    found = [f"{counted(len(read), 'span')} without a model call"] if read else []
    if faults.broken:
        found.append(f"{counted(faults.broken, 'broken piece')}, the first at {faults.first}")
    if faults.other:
        seen = f" (keys: {', '.join(dict.fromkeys(faults.seen[:5]))})" if faults.seen else ""
        found.append(f"{counted(faults.other, 'other object')}{seen}")
    return f"No run can be read from {source}: it has {' and '.join(found) or 'nothing'}. Expected: {EXPECTED}."


@dataclass(slots=True)
class _SpanImport:
    """One import: the spans that were read, and the counts for its notes."""

    faults: Faults
    by_key: dict[Key, Span] = field(default_factory=dict)
    kinds: dict[Key, str | None] = field(default_factory=dict)
    owners: dict[Key, str] = field(default_factory=dict)  # the run of each tool
    counted: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def runs(self, spans: list[Span]) -> list[ReadRun]:
        """Return all runs, in order of their start."""
        for span in spans:
            if span.key in self.by_key:
                self.counted["twice"] += 1
            self.by_key.setdefault(span.key, span)
        self._break_cycles()
        self.kinds = {key: genai.kind_of(span) for key, span in self.by_key.items()}
        groups = {
            run_id: one for run_id, one in self._groups().items() if one.calls or (one.root is not None and not one.is_tool)
        }
        for one in groups.values():
            self._place(one, groups)
        made = _with_first_steps([_run_of(one, self.counted) for one in groups.values()], self.counted)
        return made if any(run.steps or run.usage.known_tokens for run in made) else []

    def _break_cycles(self) -> None:
        """Break each cycle of parents by turning one of its spans into a root."""
        seen_from: dict[Key, int] = {}
        for number, key in enumerate(self.by_key):
            at = key
            while at in self.by_key and at not in seen_from:
                seen_from[at] = number
                at = self.by_key[at].parent
            if seen_from.get(at) == number:
                self.by_key[at] = replace(self.by_key[at], parent_id="")

    def _groups(self) -> dict[str, Group]:
        """Return the groups of spans by the id of their run."""
        order = sorted(self.by_key.values(), key=lambda span: (span.start_ns or 0, span.parent_id != ""))
        groups: dict[str, Group] = {}
        tools = []
        for span in order:
            kind = self.kinds[span.key]
            if kind == genai.AGENT:
                self._group(groups, span)
            elif kind == genai.CHAT:
                over = self._nearest(span)
                if over is not None and self.kinds[over.key] == genai.CHAT:
                    self._wrapped(groups, over, span)
                else:
                    self._group_of(groups, span, over).calls.append(span)
            elif kind == genai.TOOL:
                tools.append(span)
        for span in tools:
            over = self._nearest(span)
            while over is not None and self.kinds[over.key] == genai.CHAT:  # the provider's client ran the tool
                over = self._nearest(over)
            if over is not None and self.kinds[over.key] == genai.TOOL and self._id(over) not in groups:
                self.counted["inner_tools"] += 1
                continue
            group = self._group_of(groups, span, over)
            group.tools.append(span)
            self.owners[span.key] = group.run_id
        return groups

    def _wrapped(self, groups: dict[str, Group], over: Span, span: Span) -> None:
        """Add a call inside another call: the same call was recorded by two instrumentations."""
        self.counted["wrapped"] += 1
        outer = self._nearest(over)
        while outer is not None and self.kinds[outer.key] == genai.CHAT:
            over, outer = outer, self._nearest(outer)
        self._group_of(groups, over, outer).inner[over.key].append(span)

    def _group_of(self, groups: dict[str, Group], span: Span, over: Span | None) -> Group:
        if over is not None:
            return self._group(groups, over)
        conversation = genai.conversation(span)
        if conversation is None and names.STEP in span.attributes:  # of an agentlab run whose own span is missing
            conversation = f"{span.trace_id}-{span.parent_id}"
            self.counted["headless"] += conversation not in groups
        return groups.setdefault(conversation or span.trace_id, Group(conversation or span.trace_id))

    def _group(self, groups: dict[str, Group], root: Span) -> Group:
        run_id = self._id(root)
        return groups.setdefault(run_id, Group(run_id, root, is_tool=self.kinds[root.key] == genai.TOOL))

    @staticmethod
    def _id(root: Span) -> str:
        run_id = root.attributes.get(names.RUN_ID)
        return run_id if isinstance(run_id, str) and run_id else f"{root.trace_id}-{root.span_id}"

    def _nearest(self, span: Span) -> Span | None:
        """Return the nearest ancestor that is a run, a call or a tool."""
        over = self.by_key.get(span.parent)
        while over is not None and self.kinds[over.key] is None:
            over = self.by_key.get(over.parent)
        return over

    def _place(self, group: Group, groups: Mapping[str, Group]) -> None:
        """Find the parent run of a sub-agent's run, and the tool call that started it."""
        over = None if group.root is None else group.root if group.is_tool else self._nearest(group.root)
        while over is not None:
            kind = self.kinds[over.key]
            if kind == genai.AGENT:
                group.below = groups.get(self._id(over))
                break
            if kind == genai.TOOL and over.key in self.owners:
                group.below, group.called_by = groups.get(self.owners[over.key]), over
                break
            over = self._nearest(over)
        if group.below is group:
            group.below = None
        if group.below is not None:
            group.below.subs.append(group)

    def notes(self) -> list[str]:
        """Return the notes of the import."""
        faults = self.faults
        notes = []
        if faults.broken:
            notes.append(f"{counted(faults.broken, 'broken piece')} left out, the first at {faults.first}.")
        if faults.other:
            notes.append(f"{counted(faults.other, 'other object')} left out: logs, metrics or other data, not spans.")
        rest = sum(kind is None for kind in self.kinds.values())
        texts = {
            "twice": "{} duplicated: the first one was used.",
            "wrapped": "{} inside another call: the same call was recorded twice, and the outer one was counted.",
            "inner_tools": "{} inside another tool left out.",
            "early_tools": "{} before the first model call of their run left out.",
            "apart": "{} with cached tokens reported separately: they were added to the input tokens.",
            "unreadable": "{} with an answer in an unknown form: its text and its tool calls are unknown.",
            "headless": "{} without an invoke_agent span in the record: their end is unknown.",
            "later": "{} without their first steps (forks): cumulative columns are NA, known_* count the recorded steps.",
            "bare": "{} without a model call in the record: they are in the runs frame only.",
            "no_end": "{} without a stop reason in the record: stop_reason is NA, which comparisons count as not ended.",
            "executed": "{} with executed tool calls only: the spans do not say which calls the model requested.",
        }
        nouns = {"twice": "span", "inner_tools": "tool span", "early_tools": "tool span"}
        nouns |= dict.fromkeys(("wrapped", "apart", "unreadable"), "call")
        notes += [
            text.format(counted(number, nouns.get(name, "run")))
            for name, text in texts.items()
            if (number := self.counted.get(name))
        ]
        if rest:
            notes.append(f"{counted(rest, 'other span')} left out: not a run, a model call or a tool.")
        return notes
