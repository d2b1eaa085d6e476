"""Imports runs from Inspect's .eval logs: a run is an epoch of a sample, a step is a model call with its tool calls."""

from __future__ import annotations

import contextlib
import json
import math
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentlab._internal.formatting import as_set, counted
from agentlab._internal.redaction import redact
from agentlab.errors import ConfigurationError, StorageError
from agentlab.interop import inspect_reader
from agentlab.interop.rows import (
    Imported,
    ReadRun,
    ReadStep,
    Where,
    count_of,
    files_of,
    finish_reason_of,
    frames,
    provider_of,
    text_of,
    usage_of,
)
from agentlab.limits.reading import Action
from agentlab.model.finish_reasons import FinishReason, StopReason
from agentlab.model.pricing import cost_of
from agentlab.model.usage import FREE, NOTHING_USED, Cost, CostSource, Usage
from agentlab.providers.wires.read import money

STOP_REASONS: Mapping[str, StopReason] = {
    "context": StopReason.TRUNCATED,
    "time": StopReason.TIMEOUT,
    "working": StopReason.TIMEOUT,
    "message": StopReason.TURN_LIMIT,
    "turn": StopReason.TURN_LIMIT,
    "token": StopReason.TOKEN_BUDGET,
    "cost": StopReason.COST_BUDGET,
    "operator": StopReason.EXPLICIT_STOP,
    "custom": StopReason.STOP_CONDITION,
}
"""Our stop reason for the limit that ended a sample (EvalSampleLimitType of inspect-ai 0.3.285)."""

_ENDS = {
    FinishReason.END_TURN: StopReason.COMPLETED,
    FinishReason.STOP_SEQUENCE: StopReason.COMPLETED,
    FinishReason.MAX_TOKENS: StopReason.TRUNCATED,
    FinishReason.CONTEXT_WINDOW_EXCEEDED: StopReason.TRUNCATED,
    FinishReason.CONTENT_FILTERED: StopReason.CONTENT_FILTERED,
}
_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
SUBMIT = "submit"
"""The tool with which Inspect's own agents submit their answer."""


@dataclass(slots=True)
class _Notes:
    """Collects the notes of an import."""

    counted: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def sentences(self) -> list[str]:
        """Return the notes as sentences."""
        found = []
        if self.failures:
            found.append(f"{counted(len(self.failures), 'log')} could not be read, the first: {self.failures[0]}")
        for name, text in _SENTENCES.items():
            if self.counted[name]:
                found.append(text.format(f"{self.counted[name]:,}"))
        return found


_SENTENCES = {
    "scorers": "Model calls by scorers are not steps: {} left out.",
    "pending": "Calls without a response when the log was written: {} left out.",
    "cached": "Answers from Inspect's own cache, without calls, tokens and cost: {}.",
    "included": "Calls whose input already includes the cached tokens, according to their total: {}.",
    "unclear": "Calls whose total is not the sum of its parts: {}. Their parts are read by Inspect's definition.",
    "from_messages": "Samples without events, read from their messages: {}. Tokens and times of their steps are unknown.",
    "no_steps": "Samples without a model call: {}; they are in the runs frame only.",
    "no_end": "Samples whose log does not say why they ended: {}.",
    "unknown_limit": "Samples that a limit ended which agentlab does not know: {}; `stop_reason` is NA, and `detail` names the limit.",
    "unscored": "Scores that are not numbers: {}; they are NA.",
    "several": "Samples with several scorers: {}; `score` is that of the first scorer.",
}


def run_of_sample(sample: Mapping[str, Any], log: str, notes: _Notes) -> ReadRun:
    """Return the run of a sample, and add to `notes`."""
    provider, model = _provider_and_model(str(sample["model"]))
    steps = _steps(sample, notes)
    if not steps:
        steps = _steps_of_messages(sample["messages"])
        notes.counted["from_messages" if steps else "no_steps"] += 1
    stop, detail = _end(sample, steps)
    if stop is None:
        notes.counted["no_end" if sample["limit"] is None else "unknown_limit"] += 1
    scores = _scores(sample["scores"], notes)
    uuid = sample["uuid"]
    return ReadRun(
        uuid if isinstance(uuid, str) and uuid else f"{log}/{sample['id']}/{sample['epoch']}",
        steps,
        provider=provider,
        model=model,
        prompt=text_of(sample["input"]),
        stop_reason=stop,
        detail=detail,
        elapsed_s=sample["total_time"],
        scores=scores,
        limits=_limits(sample),
        about={"task": str(sample["task"]), "sample": str(sample["id"]), "epoch": count_of(sample["epoch"]), "log": log},
    )


def _provider_and_model(name: str) -> tuple[str | None, str]:
    """Return provider and model: openai of `openai/gpt-4o`, but azure of `openai/azure/gpt-4o`."""
    first, _, rest = name.partition("/")
    if not rest:
        return None, name
    if first in ("openai", "anthropic") and rest.startswith(("azure/", "bedrock/")):
        first, _, rest = rest.partition("/")
    return provider_of(first), rest


# Steps -------------------------------------------------------------------------------------------------------------------------------


def _steps(sample: Mapping[str, Any], notes: _Notes) -> list[ReadStep]:
    events = _without_scorers(sample["events"], notes)
    begin = _time(sample["started_at"]) or next((at for one in events if (at := _time(one["at"])) is not None), None)
    groups: list[tuple[Mapping[str, Any], list[Mapping[str, Any]]]] = []
    for one in events:
        if one["event"] == "model":
            if one["pending"]:
                notes.counted["pending"] += 1
            else:
                groups.append((one, []))
        elif groups:
            groups[-1][1].append(one)
    return [_step(call, tools, begin, notes) for call, tools in groups]


def _without_scorers(events: Sequence[Mapping[str, Any]], notes: _Notes) -> list[Mapping[str, Any]]:
    """Return the model calls and tool calls without those of scorers."""
    above: dict[str, str | None] = {}
    scorers: set[str] = set()
    kept, in_scorer = [], 0
    for one in events:
        match one["event"]:
            case "span_begin":
                above[one["id"]] = one["parent"]
                if one["type"] in ("scorer", "scorers") or one["parent"] in scorers:  # a span begins after its parent
                    scorers.add(one["id"])
            case "step":
                if one["type"] == "scorer":
                    in_scorer += 1 if one["action"] == "begin" else -1
            case kind if one["span"] in scorers or in_scorer > 0:
                notes.counted["scorers"] += kind == "model"
            case _:
                kept.append(one)
    return kept


def _step(call: Mapping[str, Any], tools: Sequence[Mapping[str, Any]], begin: float | None, notes: _Notes) -> ReadStep:
    provider, model = _provider_and_model(str(call["model"]))
    answered = call["answered"] and call["error"] is None
    word = call["stop_reason"] if answered else None
    message = (call["message"] or {}) if answered else {}
    asked = tuple(str(one["function"]) for one in message.get("tools", ()))
    cached = call["cache"] == "read"
    notes.counted["cached"] += cached
    usage = NOTHING_USED if cached else _usage(call["usage"] if answered else None, message.get("ran", ()), notes)
    start = _time(call["at"])
    ends = [end for one in (call, *tools) if (end := _time(one["until"])) is not None]
    return ReadStep(
        provider=provider,
        model=model,
        finish_reason=finish_reason_of(word, called_tools=bool(asked)),
        raw_finish_reason=word,
        action=Action.EXECUTE_TOOLS.value if asked and tools else None,
        usage=usage,
        cost=FREE if cached else _cost(call, provider, model, usage, call["usage"] if answered else None),
        calls=int(answered and not cached),
        tools=asked,
        tool_errors=sum(bool(one["error"] or one["failed"]) for one in tools),
        text=text_of(message.get("text")) if answered else None,
        started_s=None if start is None or begin is None else max(0.0, start - begin),
        duration_s=None if start is None or not ends else max(0.0, max(ends) - start),
        error=_error_text(call["error"]),
    )


def _usage(usage: Mapping[str, Any] | None, ran: Sequence[object], notes: _Notes) -> Usage:
    """Return the usage with cached tokens as part of the input. Inspect counts them separately, but not in old logs of some providers.

    `ran` has the names of the tools that the provider ran itself.
    """
    if usage is None:
        return Usage()
    tokens_in, out, total = (count_of(usage.get(name)) for name in ("input_tokens", "output_tokens", "total_tokens"))
    read, written = count_of(usage.get("input_tokens_cache_read")), count_of(usage.get("input_tokens_cache_write"))
    cached = (read or 0) + (written or 0)
    if tokens_in is not None and out is not None:
        included = cached > 0 and total == tokens_in + out
        notes.counted["included"] += included
        notes.counted["unclear"] += not included and total not in (None, tokens_in + cached + out)
        tokens_in += 0 if included else cached
    also = tuple(dict.fromkeys(str(name).replace("_", " ") for name in ran if "mcp" not in str(name)))
    return usage_of(tokens_in, out, read, written, count_of(usage.get("reasoning_tokens")), also_charged=also)


def _cost(call: Mapping[str, Any], provider: str | None, model: str, usage: Usage, reported: Mapping[str, Any] | None) -> Cost:
    """Return the cost that Inspect computed, else the cost by public prices if the model has one."""
    usd = money(reported.get("total_cost")) if reported else None
    if usd is not None:
        return Cost(usd, CostSource.PRICED)
    if provider is None:
        return Cost(reason="The log does not name the provider.")
    at = _time(call["at"])
    return cost_of(provider, model, usage, at=None if at is None else datetime.fromtimestamp(at, UTC))


def _steps_of_messages(messages: Sequence[Mapping[str, Any]]) -> list[ReadStep]:
    """Return the steps of a sample without events, from its messages."""
    steps: list[ReadStep] = []
    for place, one in enumerate(messages):
        if one["role"] != "assistant":
            continue
        names = tuple(str(call["function"]) for call in one["tools"])
        answers = []
        for later in messages[place + 1 :]:
            if later["role"] == "assistant":
                break
            answers.append(later)
        steps.append(
            ReadStep(
                finish_reason=FinishReason.TOOL_CALLS if names else None,
                calls=1,
                tools=names,
                tool_errors=sum(bool(answer["error"]) for answer in answers),
                text=text_of(one["text"]),
                action=Action.EXECUTE_TOOLS.value if answers else None,
            )
        )
    return steps


# The end -----------------------------------------------------------------------------------------------------------------------------


def _end(sample: Mapping[str, Any], steps: Sequence[ReadStep]) -> tuple[StopReason | None, str | None]:
    """Return the stop reason of the sample and its detail."""
    if sample["limit"] is not None:
        kind, limit = str(sample["limit"]["type"]), sample["limit"]["limit"]
        return STOP_REASONS.get(kind), f"The {kind} limit of the sample, {as_set('', limit)}, was reached."
    if sample["error"] is not None:
        return StopReason.ERROR, _error_text(sample["error"])
    if steps and SUBMIT in (steps[-1].tools or ()):
        return StopReason.TERMINATING_TOOL, "The agent submitted its answer."
    reason = steps[-1].finish_reason if steps else None
    return (None if reason is None else _ENDS.get(reason)), None


def _limits(sample: Mapping[str, Any]) -> dict[str, int | float | None]:
    """Return the sample's limits as columns: on steps, time and cost, and on tokens if the limit counts all tokens."""
    config, own = sample["config"], sample["limits"]
    tokens = own["token_limit"] if own["token_limit"] is not None else config.get("token_limit")
    kind = own["token_limit_type"] or config.get("token_limit_type") or "all"
    cost = money(config.get("cost_limit"))
    return {
        "max_tokens": count_of(tokens) if kind == "all" else None,
        "max_turns": count_of(config.get("turn_limit")),
        "timeout_s": own["time_limit"] if own["time_limit"] is not None else config.get("time_limit"),
        "max_cost_usd": None if cost is None else float(cost),
    }


def _scores(scores: Mapping[str, Any], notes: _Notes) -> dict[str, bool | float]:
    """Return `score`, and `score.<name>` for each scorer if there are several. A scorer with several values has one for each value."""
    flat: dict[str, Any] = {}
    for name, value in scores.items():
        flat |= {f"{name}.{part}": one for part, one in value.items()} if isinstance(value, dict) else {name: value}
    numbers = {name: _number(value) for name, value in flat.items()}
    notes.counted["unscored"] += sum(number is None for number in numbers.values())
    notes.counted["several"] += len(scores) > 1
    known = {name: number for name, number in numbers.items() if number is not None}
    made: dict[str, bool | float] = {}
    first = next(iter(numbers), None)
    if first in known:
        made["score"] = known[first]
    return made if len(numbers) < 2 else {**made, **{f"score.{name}": number for name, number in known.items()}}


def _number(value: Any) -> bool | float | None:
    """Return a score as a number, as Inspect's own `value_to_float` does; None if that would warn and return 0."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        grade = _GRADES.get(value, _GRADES.get(value.lower()) if value.lower() != value.upper() and len(value) > 1 else None)
        if grade is not None:
            return grade
        try:
            value = float(value)
        except ValueError:
            return None
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _error_text(text: Any) -> str | None:
    """Return the text of an error without keys."""
    kept = text_of(text)
    return None if kept is None else redact(kept)


def _time(text: Any) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else None
    except (ValueError, OverflowError):
        return None


ENDINGS = (".eval",)
LOGS_AT_ONCE = 20
"""Number of logs that one process of Inspect reads; starting it takes two seconds."""


def inspect(logs: Where, *, python: str | Path | None = None) -> Imported:
    """Import the samples of Inspect's .eval logs: a file, a folder, a pattern or a list of them.

    They are read by Inspect's own dataframe reader, in a separate process. `python` is the Python of another environment that has
    inspect-ai, pandas and pyarrow; by default they are needed in this one: the extra `agentlab-jupyter[inspect]`.

    - a run is an epoch of a sample; `task`, `sample`, `epoch` and `log` are further columns of the runs frame; `score` is that of the
      first scorer, and `score.<name>` that of each scorer if there are several, as numbers ("C" 1, "P" 0.5, "I" and "N" 0)
    - a step is a model call, also by a sub-agent, with the tools that it called; calls by scorers are not steps
    - input tokens include those read from and written to a cache; an answer from Inspect's own cache has no usage
    - `stop_reason` is the sample's limit or error, otherwise it follows from the last response

    Raises ConfigurationError if the file or inspect-ai is missing, StorageError if no log can be read.

    Example:
        >>> lab.importers.inspect("no-such-folder/")
        Traceback (most recent call last):
            ...
        agentlab.errors.ConfigurationError: inspect(…): found no file at 'no-such-folder/'; pass a file, a fo...
    """
    paths = files_of(logs, ENDINGS, "inspect(…)")
    source = str(paths[0]) if len(paths) == 1 else f"{len(paths):,} logs"
    return from_lines(_lines(paths, _python(python)), source)


def from_lines(lines: Iterable[Mapping[str, Any]], source: str) -> Imported:
    """Import the lines that the reader printed."""
    notes = _Notes()
    runs = []
    for line in lines:
        log = Path(redact(str(line["log"])))
        if "failed" in line:
            notes.failures.append(f"{log.name}: {redact(str(line['failed']))}")
        else:
            runs.append(run_of_sample(line["sample"], log.stem, notes))
    if not runs:
        why = f": {notes.failures[0]}" if notes.failures else ": it has no samples"
        raise StorageError(f"No run can be read from {source}{why}. Pass .eval logs that `inspect eval` wrote.")
    return Imported(*frames(runs), tuple(notes.sentences()), source=source)


def _python(python: str | Path | None) -> str:
    if python is not None:
        return str(python)
    if find_spec("inspect_ai") is None:
        raise ConfigurationError(
            "Reading Inspect's logs needs the package inspect-ai: pip install 'agentlab-jupyter[inspect]'; or, if it is in another "
            "environment, pass its Python: lab.importers.inspect(…, python='/path/to/env/bin/python')."
        )
    return sys.executable


def _lines(paths: Sequence[Path], python: str) -> Iterator[dict[str, Any]]:
    """Yield the lines that the reader prints for these logs."""
    readable = []
    for path in paths:
        if path.suffix == ".json" or zipfile.is_zipfile(path):
            readable.append(path)
        else:
            yield {"log": str(path), "failed": "it is not a zip file, the format of .eval logs"}
    for begin in range(0, len(readable), LOGS_AT_ONCE):
        some = [str(path.resolve()) for path in readable[begin : begin + LOGS_AT_ONCE]]
        isolated = [] if python == sys.executable else ["-I"]  # another environment must not use the settings of this one
        yield from _printed([python, *isolated, str(Path(inspect_reader.__file__)), *some], python)


def _printed(command: Sequence[str], python: str) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryFile() as errors:
        try:
            reader = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL)  # noqa: S603
        except OSError as error:
            raise ConfigurationError(
                f"inspect(…, python={python!r}): this Python cannot be started: {error.strerror}."
            ) from error
        with reader, contextlib.ExitStack() as done:
            done.callback(reader.kill)
            for line in reader.stdout or ():
                try:
                    yield json.loads(line)
                except ValueError:  # output of another library
                    continue
            if reader.wait():
                errors.seek(0)
                last = errors.read().decode(errors="replace").strip().rpartition("\n")[2][-500:]
                if absent := re.match(r"ModuleNotFoundError: No module named '(inspect_ai|pandas|pyarrow)", last):
                    raise ConfigurationError(
                        f"inspect(…): {python!r} does not have the package {absent[1].replace('_', '-')}; pass the Python of an "
                        "environment that has inspect-ai, pandas and pyarrow."
                    )
                raise StorageError(f"Inspect could not read the logs: {last or f'it ended with {reader.returncode}'}")
