"""Finds the recorded response to a request by hash, and explains a miss."""

from __future__ import annotations

import asyncio
import re
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
    without_media,
)
from agentlab.transport.samples import PREFIX

Match = Literal["strict", "order"]


class _Progress:
    """The recordings that one run has been served. A branch begins after the first `kept` ones of an address, by `match="order"`."""

    __slots__ = ("kept", "positions", "served")

    def __init__(self, kept: int = 0) -> None:
        self.kept = kept
        self.positions: dict[int, int] = {}
        self.served: set[int] = set()

    def next_of(self, recorded: list[Interaction]) -> Interaction | None:
        first = 0 if recorded[0].uri.startswith("mcp:") else self.kept  # only calls of models are counted
        position = self.positions.get(id(recorded), first)
        while position < len(recorded) and id(recorded[position]) in self.served:
            position += 1
        self.positions[id(recorded)] = position + 1
        if position >= len(recorded):
            return None
        self.served.add(id(recorded[position]))
        return recorded[position]


_Queue = dict[str, list[Interaction]]
"""The recordings of one request, or of one address, in order: all of them under "", and those with a label under it too."""
_Queues = dict[tuple[str, bytes], _Queue]


_STREAMED, _STREAM = re.compile(rb'"stream" ?: ?true'), b"stream"


class ReplayIndex:
    """Recorded interactions, looked up by request. Safe to use from several threads and event loops.

    A request gets the next recording with the same bytes, else with the same canonical form, else one that differs only in the ids of
    tool calls. A `replay_key` names a run: each run starts at the first recording. If the key ends in `#label`, the run gets the
    recordings with that label, if there are any, so that each repeat of an experiment finds its own.
    """

    def __init__(self, cassettes: Iterable[Cassette], match: Match = "strict", path: str = "") -> None:
        self.path = path
        self.match = match
        self.cassettes = tuple(cassettes)
        self.interactions = [interaction for cassette in self.cassettes for interaction in cassette.interactions]
        self.skipped = sum(cassette.skipped for cassette in self.cassettes)
        self._strict = match == "strict"
        self._by_bytes = self._group(self._form)
        self._progress: dict[str, _Progress] = {}
        self._used: set[int] = set()
        self._lock = threading.Lock()

    def _group(self, form: Callable[[bytes], bytes]) -> _Queues:
        queues: _Queues = {}
        for interaction in self.interactions:
            queue = queues.setdefault((self._place(interaction.method, interaction.uri), form(interaction.body)), {})
            queue.setdefault("", []).append(interaction)
            if interaction.label:
                queue.setdefault(interaction.label, []).append(interaction)
        return queues

    def _form(self, body: bytes) -> bytes:
        """Return the body; for `match="order"` only whether it asks for a stream: an address may have recordings of both kinds."""
        return body if self._strict else _STREAM if _STREAMED.search(body) else b""

    def _place(self, method: str, url: str) -> str:
        """Return the address; for `match="order"` without the query, which clients fill differently (`?beta=true`)."""
        return address(method, url) if self._strict else address(method, url).partition("?")[0]

    @cached_property
    def _by_form(self) -> _Queues:
        """The recordings by canonical form; built for the first request that was recorded with other bytes."""
        return self._group(canonical_body)

    @cached_property
    def _by_numbered_calls(self) -> _Queues:
        """The recordings by canonical form without the ids of tool calls; built for the first request that needs it."""
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

    def find(self, method: str, url: str, body: bytes, replay_key: str = "") -> Interaction:
        """Return the recording to serve. Raises ReplayMissError with the nearest recording and the differences."""
        place = self._place(method, url)
        with self._lock:
            progress = self._progress.get(replay_key)
            if progress is None:
                progress = self._progress[replay_key] = _Progress()
            queue = self._by_bytes.get((place, self._form(body)))
            if queue is None and not self._strict:
                queue = self._by_bytes.get((place, b"")) or self._by_bytes.get((place, _STREAM))
            found = progress.next_of(_labelled(queue, replay_key)) if queue else None
            if found is None and self._strict:
                queue = self._same_form(place, body)
                found = progress.next_of(_labelled(queue, replay_key)) if queue else None
        if found is not None:
            self._used.add(id(found))
            return found
        raise self._unknown(place, body) if queue is None else self._exhausted(place, _labelled(queue, replay_key))

    @property
    def unused(self) -> list[Interaction]:
        """The recordings that no run was served."""
        return [one for one in self.interactions if id(one) not in self._used]

    def skip(self, replay_key: str, requests: Iterable[int]) -> None:
        """Let a branch, or a run from a store, begin after its kept steps; `requests` are those of each of their calls."""
        if not self._strict:  # a strict match finds its recording anyway
            with self._lock:
                self._progress[replay_key] = _Progress(sum(requests))

    def forget(self, replay_key: str) -> None:
        """Forget the position of a run that has ended."""
        with self._lock:
            self._progress.pop(replay_key, None)

    def _same_form(self, place: str, body: bytes) -> _Queue | None:
        body = without_media(body)
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
            reason = f"{place} was recorded {times}, and all recordings have been served to this run (the last was {last})"
        else:
            reason = f"this request to {place} was recorded {times}, and this run sends it again (the last was {last})"
        return ReplayMissError(f"Nothing left to replay: {reason}.\n{self._how_to_record()}")

    def _unknown(self, place: str, body: bytes) -> ReplayMissError:
        same_place = [one for one in self.interactions if self._place(one.method, one.uri) == place]
        if not same_place:
            places = list(dict.fromkeys(address(interaction.method, interaction.uri) for interaction in self.interactions))
            shown = "\n".join(f"  {other}" for other in places[:8]) or "  nothing"
            more = f"\n  and {len(places) - 8} more" if len(places) > 8 else ""
            return ReplayMissError(
                f"Nothing recorded for {place}. Recorded are:\n{shown}{more}\n{self._how_to_record(has_address=False)}"
            )
        body = without_media(body)
        closest = nearest(body, same_place)
        difference = describe_difference(without_media(closest.body), body, ignored=VOLATILE_FIELDS)
        return ReplayMissError(
            f"No recording matches this request to {place}. The nearest is {closest.source}, and differs in\n"
            f"{difference}\n{self._how_to_record()}"
        )

    def _how_to_record(self, *, has_address: bool = True) -> str:
        skipped = f" ({self.skipped} of its interactions are not HTTP and cannot be replayed.)" if self.skipped else ""
        folder = self.path.replace(PREFIX, "fixtures/") or "…"  # a sample stays as it is
        other = (
            ' Or pass `match="order"`, which serves the recordings in order to any request.'
            if self._strict and has_address
            else ""
        )
        how = f'To record it, do the same run inside `with agentlab.record("{folder}"): …`, with the provider\'s key if it needs one.'
        return f"{how}{other}{skipped}"


def _labelled(queue: _Queue, replay_key: str) -> list[Interaction]:
    """Return the recordings with the label in this key, else all of them."""
    return queue.get(replay_key.partition("#")[2]) or queue[""]


def check_pace(pace: float) -> float:
    """Return the pace. Raises ConfigurationError for a negative or infinite pace."""
    if not 0 <= pace < float("inf"):
        raise ConfigurationError(f"pace={pace!r}: use 0 (at once), 1 (as recorded), or a factor such as 0.5 (twice as fast).")
    return pace


async def paced(response: RecordedResponse, pace: float) -> AsyncIterator[bytes]:
    """Yield the body's chunks, each after its recorded delay times `pace`."""
    for wait_s, piece in response.timed(pace):
        if wait_s:
            await asyncio.sleep(wait_s)
        yield piece
