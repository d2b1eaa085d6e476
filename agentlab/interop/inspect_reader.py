"""Reads .eval logs with Inspect's own dataframe reader and prints the data for agentlab, one JSON object per line.

It is a separate program for a Python that has inspect-ai: `python inspect_reader.py LOG…`. It imports nothing of agentlab, so it can
run in another environment. Inspect changes its process (it patches asyncio in a notebook); agentlab's process is not affected.

    {"log": …, "sample": {…}}      a sample, with its model calls and tool calls in order
    {"log": …, "failed": …}        a log that could not be read, and why
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main(logs: list[str]) -> int:
    """Print the samples of each log."""
    from inspect_ai.analysis import EvalColumn, SampleColumn, samples_df  # isort: split
    import pandas  # noqa: F401  inspect-ai does not require it and pyarrow, but its reader does
    import pyarrow  # noqa: F401

    columns = [
        EvalColumn("task", path="eval.task"),
        EvalColumn("model", path="eval.model"),
        EvalColumn("config", path=lambda log: json.dumps(log.eval.config.model_dump(mode="json"))),
        SampleColumn("record", path=record, full=True),
    ]
    for log in logs:
        try:
            frame = samples_df(log, columns=columns, quiet=True)
        except Exception as error:
            put({"log": log, "failed": f"{type(error).__name__}: {str(error)[:500]}"})
            continue
        for row in frame.to_dict("records"):
            about = {"task": row["task"], "model": row["model"], "config": json.loads(row["config"])}
            put({"log": log, "sample": {**about, **json.loads(row["record"])}})
    return 0


def put(value: dict[str, Any]) -> None:
    """Print a value as JSON in ASCII, since half a surrogate pair cannot be encoded in UTF-8."""
    print(json.dumps(value), flush=True)  # noqa: T201


def record(sample: Any) -> str:
    """Return a sample as JSON text: its scores, its limit, its error and its calls."""
    return json.dumps({
        "id": sample.id,
        "epoch": sample.epoch,
        "uuid": sample.uuid,
        "input": text(sample.input),
        "scores": {name: score.value for name, score in (sample.scores or {}).items()},
        "limit": None if sample.limit is None else {"type": sample.limit.type, "limit": sample.limit.limit},
        "error": None if sample.error is None else str(sample.error.message),
        "started_at": moment(getattr(sample, "started_at", None)),
        "completed_at": moment(getattr(sample, "completed_at", None)),
        "total_time": sample.total_time,
        "limits": {name: getattr(sample, name, None) for name in ("token_limit", "token_limit_type", "time_limit")},
        "events": [one for one in map(event, sample.events) if one is not None],
        "messages": [message(one) for one in sample.messages if one.role in ("assistant", "tool")],
    })  # fmt: skip


def event(one: Any) -> dict[str, Any] | None:
    """Return a model call, a tool call, or the start of a span; None for other events."""
    kind = one.event
    if kind == "span_begin":
        return {"event": kind, "id": one.id, "parent": one.parent_id, "type": one.type}
    if kind == "step" and one.action in ("begin", "end"):  # marks scorers in old logs, which have no spans
        return {"event": kind, "action": one.action, "type": one.type}
    if kind not in ("model", "tool"):
        return None
    about = {
        "event": kind,
        "span": getattr(one, "span_id", None),
        "at": moment(one.timestamp),
        "until": moment(getattr(one, "completed", None)),
        "pending": one.pending,
    }
    if kind == "tool":
        error = None if one.error is None else {"type": one.error.type, "message": str(one.error.message)}
        return {**about, "id": one.id, "function": one.function, "error": error, "failed": getattr(one, "failed", None)}
    output = one.output
    choice = output.choices[0] if output.choices else None
    return {
        **about,
        "model": one.model,
        "error": one.error,
        "cache": one.cache,
        "answered": choice is not None,
        "stop_reason": None if choice is None else choice.stop_reason,
        "usage": None if output.usage is None else output.usage.model_dump(),
        "message": None if choice is None else message(choice.message),
    }


def message(one: Any) -> dict[str, Any]:
    """Return the role, the text and the tool calls of a message."""
    calls = getattr(one, "tool_calls", None) or []
    return {
        "role": one.role,
        "text": text(one.text),
        "tools": [{"id": call.id, "function": call.function} for call in calls] if one.role == "assistant" else [],
        "ran": [] if isinstance(one.content, str) else [part.tool_type for part in one.content if part.type == "tool_use"],
        "call_id": getattr(one, "tool_call_id", None),
        "error": getattr(one, "error", None) is not None,
    }


def text(value: Any) -> str:
    """Return the value if it is text, else the text of its user messages."""
    return value if isinstance(value, str) else "\n".join(one.text for one in value if one.role == "user")


def moment(value: Any) -> str | None:
    """Return a time in ISO 8601."""
    return None if value is None else value if isinstance(value, str) else value.isoformat()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
