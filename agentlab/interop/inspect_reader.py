"""Reads .eval logs with Inspect's own dataframe reader and prints what agentlab needs of them, a JSON object a line.

Run as a program of its own, by a Python that has inspect-ai: `python inspect_reader.py LOG…`. It imports nothing of agentlab, so that
may be another environment; and whatever Inspect does to the process that reads (in a notebook it patches asyncio for good) stays here.

    {"log": …, "sample": {…}}      a sample, with its calls of models and of tools in order
    {"log": …, "failed": …}        a log that could not be read, and why
"""

from __future__ import annotations

import json
import sys
from typing import Any

LONGEST_TEXT = 1_000_000


def main(logs: list[str]) -> int:
    """Print the samples of each log."""
    from inspect_ai.analysis import EvalColumn, SampleColumn, samples_df

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
    """Print it, all of it in ASCII: half a surrogate pair is no UTF-8."""
    print(json.dumps(value), flush=True)  # noqa: T201


def record(sample: Any) -> str:
    """A sample as JSON text: its scores, its limit, its error, and its calls."""
    return json.dumps({
        "id": sample.id,
        "epoch": sample.epoch,
        "uuid": sample.uuid,
        "input": text(sample.input),
        "scores": {name: score.value for name, score in (sample.scores or {}).items()},
        "limit": None if sample.limit is None else {"type": sample.limit.type, "limit": sample.limit.limit},
        "error": None if sample.error is None else str(sample.error.message)[:LONGEST_TEXT],
        "started_at": moment(getattr(sample, "started_at", None)),
        "completed_at": moment(getattr(sample, "completed_at", None)),
        "total_time": sample.total_time,
        "limits": {name: getattr(sample, name, None) for name in ("token_limit", "token_limit_type", "time_limit")},
        "events": [one for one in map(event, sample.events) if one is not None],
        "messages": [message(one) for one in sample.messages if one.role in ("assistant", "tool")],
    })  # fmt: skip


def event(one: Any) -> dict[str, Any] | None:
    """A call of a model or of a tool, or the beginning of a span; None for all else."""
    kind = one.event
    if kind == "span_begin":
        return {"event": kind, "id": one.id, "parent": one.parent_id, "type": one.type}
    if kind == "step" and one.action in ("begin", "end"):  # how logs before spans marked the scorers
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
        error = None if one.error is None else {"type": one.error.type, "message": str(one.error.message)[:LONGEST_TEXT]}
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
    """Who said it, the text, and the tools that were called."""
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
    """What was said, of a bearable length."""
    said = value if isinstance(value, str) else "\n".join(one.text for one in value if one.role == "user")
    return said[:LONGEST_TEXT]


def moment(value: Any) -> str | None:
    """A time in words."""
    return None if value is None else value if isinstance(value, str) else value.isoformat()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
