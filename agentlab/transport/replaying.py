"""Finds the recorded response for a request by hash, and explains a miss."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Literal, Self

from agentlab._internal.redaction import Redactor
from agentlab.errors import ConfigurationError, ReplayMissError
from agentlab.transport.cassette import Cassette, Interaction, RecordedResponse, load_cassettes
from agentlab.transport.request_matching import (
    VOLATILE_FIELDS,
    address,
    canonical_body,
    describe_difference,
    nearest,
    same_question,
    with_numbered_calls,
)

Match = Literal["strict", "order"]


class _Lane:
    """The position of one lane."""

    __slots__ = ("positions", "served")

    def __init__(self) -> None:
        self.positions: dict[int, int] = {}
        self.served: set[int] = set()

    def next_of(self, recorded: list[Interaction]) -> Interaction | None:
        position = self.positions.get(id(recorded), 0)
        while position < len(recorded) and id(recorded[position]) in self.served:
            position += 1
        self.positions[id(recorded)] = position + 1
        if position >= len(recorded):
            return None
        self.served.add(id(recorded[position]))
        return recorded[position]


_Queue = dict[str, list[Interaction]]
"""The recordings of one request, or of one address, in order: all of them under "", and those of each label again."""
_Queues = dict[tuple[str, bytes], _Queue]


class ReplayIndex:
    """Recorded interactions, looked up by request. Safe to use from several threads and event loops.

    A request gets the next recording with the same bytes, else with the same canonical form, else one that differs only in the ids of
    tool calls. Each lane (one per run) starts at the first recording. A lane may end in `#label`: it gets the recordings of that label,
    if there are any, so that each repeat of an experiment finds its own.
    """

    def __init__(self, cassettes: Iterable[Cassette], match: Match = "strict", path: str = "") -> None:
        self.path = path
        self.match = match
        self.cassettes = tuple(cassettes)
        self.interactions = [interaction for cassette in self.cassettes for interaction in cassette.interactions]
        self.skipped = sum(cassette.skipped for cassette in self.cassettes)
        self._strict = match == "strict"
        self._by_bytes = self._group(lambda body: body) if self._strict else self._group(lambda body: b"")
        self._lanes: dict[str, _Lane] = {}
        self._lock = threading.Lock()

    def _group(self, form: Callable[[bytes], bytes]) -> _Queues:
        queues: _Queues = {}
        for interaction in self.interactions:
            queue = queues.setdefault((self._place(interaction.method, interaction.uri), form(interaction.body)), {})
            queue.setdefault("", []).append(interaction)
            if interaction.lane:
                queue.setdefault(interaction.lane, []).append(interaction)
        return queues

    def _place(self, method: str, url: str) -> str:
        """Return the address; for `match="order"` without the query, which clients fill differently (`?beta=true`)."""
        return address(method, url) if self._strict else address(method, url).partition("?")[0]

    @cached_property
    def _by_form(self) -> _Queues:
        """By canonical form; built when the first request arrives that was recorded in other bytes."""
        return self._group(canonical_body)

    @cached_property
    def _by_numbered_calls(self) -> _Queues:
        """Without regard to the ids of tool calls; built when the first request needs it."""
        return self._group(same_question)

    @classmethod
    def load(cls, path: str | Path, match: Match = "strict") -> Self:
        """Return the index of a file or a folder."""
        if match not in ("strict", "order"):
            raise ConfigurationError(f'match={match!r}: use "strict" (the same request) or "order" (one after the other).')
        return cls(load_cassettes(path), match, str(path))

    def __reduce__(self) -> tuple[type[ReplayIndex], tuple[tuple[Cassette, ...], Match, str]]:
        return ReplayIndex, (self.cassettes, self.match, self.path)

    def __repr__(self) -> str:
        count, files = len(self.interactions), len(self.cassettes)
        skipped = f" ({self.skipped} more are not HTTP)" if self.skipped else ""
        inside = f"{count} interaction{'s' * (count != 1)} in {files} file{'s' * (files != 1)}{skipped}"
        return f"{self.path!r}, match={self.match!r}: {inside}"

    def find(self, method: str, url: str, body: bytes, lane: str = "") -> Interaction:
        """Return the recording to serve. Raises ReplayMissError with the nearest recording and the differences."""
        place = self._place(method, url)
        with self._lock:
            here = self._lanes.get(lane)
            if here is None:
                here = self._lanes[lane] = _Lane()
            queue = self._by_bytes.get((place, body if self._strict else b""))
            found = here.next_of(_lane_recordings(queue, lane)) if queue else None
            if found is None and self._strict:
                queue = self._same_form(place, body)
                found = here.next_of(_lane_recordings(queue, lane)) if queue else None
        if found is not None:
            return found
        raise self._unknown(place, body) if queue is None else self._exhausted(place, _lane_recordings(queue, lane))

    def forget(self, lane: str) -> None:
        """Forget the position of a lane that sends no more requests."""
        with self._lock:
            self._lanes.pop(lane, None)

    def _same_form(self, place: str, body: bytes) -> _Queue | None:
        queue = self._by_form.get((place, canonical_body(body)))
        if queue is None:  # keys are redacted in recordings
            redacted, _ = Redactor().body(body)
            queue = self._by_form.get((place, canonical_body(redacted))) if redacted != body else None
            if queue is None and with_numbered_calls(redacted) is not None:
                queue = self._by_numbered_calls.get((place, same_question(redacted)))
        return queue

    # Misses --------------------------------------------------------------------------------------------------------------------

    def _exhausted(self, place: str, recorded: list[Interaction]) -> ReplayMissError:
        times = "once" if len(recorded) == 1 else f"{len(recorded)} times"
        last = recorded[-1].source
        if self.match == "order":
            what = f"{place} was recorded {times}, and all recordings have been served to this run (the last was {last})"
        else:
            what = f"this request to {place} was recorded {times}, and this run sends it again (the last was {last})"
        return ReplayMissError(f"Nothing left to replay: {what}.\n{self._how()}")

    def _unknown(self, place: str, body: bytes) -> ReplayMissError:
        here = [interaction for interaction in self.interactions if self._place(interaction.method, interaction.uri) == place]
        if not here or self.match == "order":
            places = list(dict.fromkeys(address(interaction.method, interaction.uri) for interaction in self.interactions))
            shown = "\n".join(f"  {other}" for other in places[:8]) or "  nothing"
            more = f"\n  and {len(places) - 8} more" if len(places) > 8 else ""
            return ReplayMissError(f"Nothing recorded for {place}. Recorded are:\n{shown}{more}\n{self._how()}")
        closest = nearest(body, here)
        difference = describe_difference(closest.body, body, ignored=VOLATILE_FIELDS)
        return ReplayMissError(
            f"No recording matches this request to {place}. The nearest is {closest.source}, and differs in\n"
            f"{difference}\n{self._how()}"
        )

    def _how(self) -> str:
        skipped = f" ({self.skipped} of its interactions are not HTTP and cannot be replayed.)" if self.skipped else ""
        folder = self.path or "…"
        other = ', or `match="order"` to serve the recordings in order for any request' if self.match == "strict" else ""
        return f'To record it, with a key: `with agentlab.record("{folder}"): …` and the same run{other}.{skipped}'


def _lane_recordings(queue: _Queue, lane: str) -> list[Interaction]:
    return queue.get(lane.partition("#")[2]) or queue[""]


def check_pace(pace: float) -> float:
    """Return the pace. Raises ConfigurationError for an impossible one."""
    if not 0 <= pace < float("inf"):
        raise ConfigurationError(f"pace={pace!r}: use 0 (at once), 1 (as recorded), or a factor such as 0.5 (twice as fast).")
    return pace


async def paced(response: RecordedResponse, pace: float) -> AsyncIterator[bytes]:
    """Yield the body's chunks, each after its recorded delay times `pace`."""
    delays = response.delays_s if pace else ()
    for index, piece in enumerate(response.pieces()):
        if index < len(delays):
            await asyncio.sleep(delays[index] * pace)
        yield piece
