"""Runs out of OpenTelemetry's GenAI spans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentlab import genai_names as names
from agentlab.errors import ConfigurationError, StorageError
from agentlab.importers import _genai as genai
from agentlab.importers._files import files_of
from agentlab.importers._imported import Imported
from agentlab.importers._otel_run import Group, run_of, with_their_beginning
from agentlab.importers._rows import ReadRun, frames
from agentlab.importers._spans import Faults, Span, spans_of_file, spans_of_items
from agentlab.printable import one_line

ENDINGS = (".jsonl", ".json", ".ndjson")
EXPECTED = (
    'one JSON object a line, as OpenTelemetry\'s collector writes with its file exporter ({"resourceSpans": …}), '
    "or spans as the SDK for Python prints them (span.to_json()), with gen_ai.* attributes"
)
Key = tuple[str, str]


def otel(spans: str | Path | Iterable[Any]) -> Imported:
    """Runs of whatever is instrumented by OpenTelemetry's GenAI conventions, from its spans as JSON.

    `spans` is a file, a folder, a pattern or a list of them; or the spans themselves, as dicts, as JSON texts or as an exporter
    in memory holds them. Taken are the collector's file exporter's lines, and what the SDK for Python prints.

    - a run is an `invoke_agent` span; calls of a model that are below none are together by `gen_ai.conversation.id`, else by trace
    - a step is a call of a model (`chat`, `text_completion`, `generate_content`) with the `execute_tool` spans until the next one; with
      agentlab's own spans it is a step of agentlab
    - what a tool called is a run of its own, a sub-agent's, below the step
    - tokens are those of the calls, or where a run has none in the record, its own; never both
    - why a run ended is known of agentlab's own spans, and of runs that failed; else it is NA

    Raises ConfigurationError where there is no such file, StorageError where nothing in it is of use.

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
    items = [spans] if isinstance(spans, str | Path) else list(spans)
    if _are_paths(items):
        paths = files_of(items, ENDINGS, "otel(…)")
        source = str(paths[0]) if len(paths) == 1 else f"{len(paths):,} files"
        for path in paths:
            try:
                read += spans_of_file(path, faults)
            except OSError as error:
                raise StorageError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    else:
        source = f"{len(items):,} objects"
        read += spans_of_items(items, faults)
    made = _Made(faults)
    runs = made.runs(read)
    if not runs:
        raise StorageError(_nothing(source, read, faults))
    return Imported(*frames(runs), tuple(made.told()), source=source)


def _are_paths(items: list[Any]) -> bool:
    return bool(items) and all(isinstance(one, str | Path) and not str(one).lstrip().startswith(("{", "[")) for one in items)


def _nothing(source: str, read: list[Span], faults: Faults) -> str:
    found = [f"{len(read):,} spans of which none is a call of a model"] if read else []
    if faults.broken:
        found.append(f"{_n(faults.broken, 'broken piece')}, the first at {faults.first}")
    if faults.other:
        seen = f" (keys: {', '.join(dict.fromkeys(faults.seen[:5]))})" if faults.seen else ""
        found.append(f"{faults.other:,} objects that are no spans{seen}")
    return f"No run can be read from {source}: it has {' and '.join(found) or 'nothing'}. Expected is {EXPECTED}."


@dataclass(slots=True)
class _Made:
    """The work on one import: what has been found, and what is to be told of it."""

    faults: Faults
    by_key: dict[Key, Span] = field(default_factory=dict)
    kinds: dict[Key, str | None] = field(default_factory=dict)
    above: dict[Key, Key | None] = field(default_factory=dict)
    owners: dict[Key, str] = field(default_factory=dict)  # the run of each tool
    counted: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    round: set[Key] = field(default_factory=set)
    """Spans whose parent is below them: the way up ends there."""

    def runs(self, spans: list[Span]) -> list[ReadRun]:
        """All of them, in the order in which they began."""
        for span in spans:
            if span.key in self.by_key:
                self.counted["twice"] += 1
            self.by_key.setdefault(span.key, span)
        self.round = self._circles()
        self.kinds = {key: genai.kind_of(span) for key, span in self.by_key.items()}
        groups = {
            run_id: one for run_id, one in self._groups().items() if one.calls or (one.root is not None and not one.is_tool)
        }
        for one in groups.values():
            self._place(one, groups)
        made = with_their_beginning([run_of(one, self.counted) for one in groups.values()], self.counted)
        return made if any(run.turns or run.usage.known_tokens for run in made) else []

    def _circles(self) -> set[Key]:
        """One span of each circle that the record goes round in."""
        found: set[Key] = set()
        seen_from: dict[Key, int] = {}
        for number, key in enumerate(self.by_key):
            at: Key | None = key
            while at is not None and at in self.by_key and at not in seen_from:
                seen_from[at] = number
                at = self.by_key[at].parent
            if at is not None and seen_from.get(at) == number:
                found.add(at)
        return found

    def _groups(self) -> dict[str, Group]:
        """Spans that belong together, by the id of the run they make."""
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
            while over is not None and self.kinds[over.key] == genai.CHAT:  # a tool that the provider's client ran for the model
                over = self._nearest(over)
            if over is not None and self.kinds[over.key] == genai.TOOL and self._id(over) not in groups:
                self.counted["inner_tools"] += 1
                continue
            group = self._group_of(groups, span, over)
            group.tools.append(span)
            self.owners[span.key] = group.run_id
        return groups

    def _wrapped(self, groups: dict[str, Group], over: Span, span: Span) -> None:
        """A call of a model inside another one is the same call, told by two instrumentations."""
        self.counted["wrapped"] += 1
        outer = self._nearest(over)
        while outer is not None and self.kinds[outer.key] == genai.CHAT:
            over, outer = outer, self._nearest(outer)
        self._group_of(groups, over, outer).inner[over.key].append(span)

    def _group_of(self, groups: dict[str, Group], span: Span, over: Span | None) -> Group:
        if over is not None:
            return self._group(groups, over)
        conversation = genai.conversation(span)
        if conversation is None and names.STEP in span.attributes:  # agentlab's, of a run whose own span was never written
            conversation = f"{span.trace_id}-{span.parent_id}"
            self.counted["headless"] += conversation not in groups
        return groups.setdefault(conversation or span.trace_id, Group(conversation or span.trace_id))

    def _group(self, groups: dict[str, Group], root: Span) -> Group:
        run_id = self._id(root)
        return groups.setdefault(run_id, Group(run_id, root, is_tool=self.kinds[root.key] == genai.TOOL))

    @staticmethod
    def _id(root: Span) -> str:
        told = root.attributes.get(names.RUN_ID)
        return told[:200] if isinstance(told, str) and told else f"{root.trace_id}-{root.span_id}"

    def _nearest(self, span: Span) -> Span | None:
        """The nearest span above it that is a run, a call or a tool; each is looked for once, however long the way is."""
        way: list[Key] = []
        key: Key | None = span.key
        found: Key | None = None
        while key is not None:
            if key in self.above:
                found = self.above[key]
                break
            way.append(key)
            self.above[key] = None  # where the record goes round in circles
            over = self.by_key.get(self.by_key[key].parent)
            if over is None or key in self.round:
                break
            if self.kinds[over.key] is not None:
                found = over.key
                break
            key = over.key
        for passed in way:
            self.above[passed] = found
        return None if found is None else self.by_key[found]

    def _place(self, group: Group, groups: Mapping[str, Group]) -> None:
        """Which run a sub-agent's run is below, and which tool call began it."""
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

    def told(self) -> list[str]:
        """What there is to say."""
        counted, faults = self.counted, self.faults
        said = []
        if faults.broken:
            said.append(f"{_n(faults.broken, 'broken piece')} left out, the first at {faults.first}.")
        if faults.other:
            said.append(f"{_n(faults.other, 'object')} that are no spans (logs, metrics or else) left out.")
        rest = sum(kind is None for kind in self.kinds.values())
        texts = {
            "twice": "{} stood there twice: the first of both was taken.",
            "wrapped": "{} inside another one are the same call told twice: the outer one was counted.",
            "inner_tools": "{} inside another tool left out.",
            "early_tools": "{} before their run's first call of a model left out.",
            "apart": "{} gave what was cached beside the input, not in it: it was added, since here the input includes it.",
            "headless": "{} had no invoke_agent span of their own in the record: how they ended is not known.",
            "later": "{} without their first steps (forks): cumulative columns are NA, known_* count what is here.",
            "bare": "{} have no calls of a model in the record: they are in the runs frame only.",
            "no_end": "{} do not say why they ended: stop_reason is NA.",
            "executed": "{} know their tool calls by the tools that were executed: what the model asked for is not in the spans.",
        }
        nouns = {"twice": "span", "wrapped": "call", "inner_tools": "tool span", "early_tools": "tool span", "apart": "call"}
        said += [text.format(_n(counted[name], nouns.get(name, "run"))) for name, text in texts.items() if counted.get(name)]
        if rest:
            said.append(f"{_n(rest, 'span')} that are neither a run nor a call of a model nor a tool left out.")
        return said


def _n(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
