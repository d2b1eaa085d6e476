"""What differs between a request and the nearest recorded one, field by field, for the message of a miss. Keys are never shown."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence

from agentlab.redaction import Redactor
from agentlab.transport.cassettes import Interaction
from agentlab.types import JSON

MOST_COMPARED = 200
MOST_SHOWN = 8
_WIDTH = 70
_MISSING = object()


def nearest(body: bytes, candidates: Sequence[Interaction]) -> Interaction:
    """The candidate whose body agrees most with this one; the first of equals."""
    asked = _parsed(body)
    try:
        return max(candidates[:MOST_COMPARED], key=lambda candidate: _likeness(_parsed(candidate.body), asked))
    except RecursionError:
        return candidates[0]


def describe_difference(recorded: bytes, asked: bytes, *, ignored: Collection[str] = ()) -> str:
    """One line for each field that differs."""
    before, after = _parsed(recorded), _parsed(asked)
    if isinstance(before, dict) and isinstance(after, dict):
        before, after = ({key: value for key, value in body.items() if key not in ignored} for body in (before, after))
    try:
        found = list(_differences(before, after, ""))
    except RecursionError:
        found = [("", "…", "something nested very deeply")]
    lines = [f"  {Redactor().text(path) or 'body'}: {_pair(old, new)}" for path, old, new in found]
    more = f"\n  and {len(lines) - MOST_SHOWN} more fields" if len(lines) > MOST_SHOWN else ""
    return "\n".join(lines[:MOST_SHOWN]) + more


def _parsed(body: bytes) -> JSON:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")


def _likeness(recorded: JSON, asked: JSON) -> float:
    """From 0 to 1, how much agrees. Lists (the messages, the tools) weigh most, and count as far as they begin alike."""
    if recorded == asked:
        return 1.0
    if isinstance(recorded, dict) and isinstance(asked, dict):
        weights = {key: 4 if isinstance(recorded.get(key, asked.get(key)), list) else 1 for key in recorded.keys() | asked.keys()}
        shared = recorded.keys() & asked.keys()
        return sum(weights[key] * _likeness(recorded[key], asked[key]) for key in shared) / sum(weights.values())
    if isinstance(recorded, list) and isinstance(asked, list):
        pairs = enumerate(zip(recorded, asked, strict=False))
        equal = next((index for index, (old, new) in pairs if old != new), min(len(recorded), len(asked)))
        partly = _likeness(recorded[equal], asked[equal]) if equal < min(len(recorded), len(asked)) else 0.0
        return (equal + partly) / max(len(recorded), len(asked))
    if isinstance(recorded, str) and isinstance(asked, str):
        return 0.5 * _common(recorded, asked) / max(len(recorded), len(asked))
    return 0.0


def _common(first: str, second: str) -> int:
    """How many leading characters are equal."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first[:middle] == second[:middle] else (low, middle - 1)
    return low


def _differences(recorded: JSON, asked: JSON, path: str) -> Iterator[tuple[str, JSON, JSON]]:
    if recorded == asked and type(recorded) is type(asked):
        return
    if isinstance(recorded, dict) and isinstance(asked, dict):
        for key in [*recorded, *(key for key in asked if key not in recorded)]:
            inner = f"{path}.{key}" if path else str(key)
            yield from _differences(recorded.get(key, _MISSING), asked.get(key, _MISSING), inner)
    elif isinstance(recorded, list) and isinstance(asked, list):
        for index in range(max(len(recorded), len(asked))):
            old = recorded[index] if index < len(recorded) else _MISSING
            new = asked[index] if index < len(asked) else _MISSING
            yield from _differences(old, new, f"{path}[{index}]")
    elif recorded != asked:
        yield path, recorded, asked


def _pair(recorded: JSON, asked: JSON) -> str:
    """Both values, without keys, cut to where they begin to differ."""
    old, new = _shown(recorded), _shown(asked)
    common = _common(old, new)
    if max(len(old), len(new)) > _WIDTH and common > 25:
        old, new = (f'"…{text[common - 20 :]}' for text in (old, new))
    return f"recorded {_cut(old)}, asked {_cut(new)}"


def _shown(value: JSON) -> str:
    return "nothing" if value is _MISSING else Redactor().text(json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"
