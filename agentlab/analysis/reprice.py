"""What recorded runs would have cost with other models, by the price list: `lab.reprice(results, ["openai:gpt-5.4-mini"])`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pandas as pd

from agentlab.analysis.groups import checked, each_once, numbers, steps_of, typed_frame
from agentlab.analysis.origins import each_run
from agentlab.errors import ConfigurationError
from agentlab.model.pricing import PRICE_BOOK_NAMES, cost_of
from agentlab.model.usage import Usage, UsageSource
from agentlab.records.frames import Recordings
from agentlab.storage.store import Store

_COUNTS = (
    "input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens",
    "web_searches",
)  # fmt: skip
_NEEDED = ("run_id", "step", "provider", "model", "calls", "input_tokens", "output_tokens", "cost_usd")
_BY_RUN: dict[str, Any] = {
    **dict.fromkeys(("run_id", "provider", "model", "at"), "string"),
    **dict.fromkeys(("cost_usd", "repriced_usd", "difference_usd", "ratio"), "Float64"),
    **dict.fromkeys(("unknown", "assumptions", "price_list"), "string"),
}
_BY_GROUP: dict[str, Any] = {
    **dict.fromkeys(("provider", "model", "at"), "string"),
    **dict.fromkeys(("runs", "unknown_runs"), "Int64"),
    **dict.fromkeys(("cost_usd", "repriced_usd", "difference_usd", "ratio"), "Float64"),
    **dict.fromkeys(("unknown", "assumptions", "price_list"), "string"),
}


def reprice(
    runs: Recordings | pd.DataFrame, models: str | object | Iterable[object], *, per: str = "group", at: date | str | None = None
) -> pd.DataFrame:
    """Return what the recorded usage costs by the prices of other models: one row per recorded model and other model, or `per="run"`.

    `runs` is what `lab.frame` takes, or a frame with one row per step; `models` are `provider:model`, or `lab.Provider` objects. `at`
    is the day of the prices, such as "2026-06-01", by default today. Prices that depend on the length of the prompt apply call by call;
    a frame has the sum of a step's calls only, and neither tokens of audio and images nor further charges. Columns:

    - `provider`, `model` of the runs (with `per="run"`, `run_id` too); `at`, the other model
    - `cost_usd`: as recorded; `repriced_usd`; `difference_usd`, `ratio`: repriced minus, and divided by, the recorded cost. A sum with
      an unknown part is NA
    - `runs`, `unknown_runs`: those whose repriced cost is unknown; `unknown`: why, for the first one
    - `assumptions`: what would have to be true, in words; `price_list`

    The usage of sub-agents is in rows of their own runs, and only if they are among `runs`.

    Raises ConfigurationError for a model that is not `provider:model`, for an `at` that is no day, and for missing columns.

    Example:
        >>> lab.reprice([result], ["openai:gpt-5.4-mini", "anthropic:claude-sonnet-4-6"])[["at", "cost_usd", "repriced_usd"]]
                                    at  cost_usd  repriced_usd
        0          openai:gpt-5.4-mini  0.014346      0.003893
        1  anthropic:claude-sonnet-4-6  0.014346      0.014346
    """
    if per not in ("group", "run"):
        raise ConfigurationError(f"per={per!r}: choose group or run.")
    listed = [models] if isinstance(models, str) or not isinstance(models, Iterable) else models
    others = list(dict.fromkeys(map(_other, listed)))
    if not others:
        raise ConfigurationError("models=[]: pass at least one, such as 'openai:gpt-5.4-mini'.")
    runs = [*runs] if isinstance(runs, Iterator) else runs
    moment = _moment(at)
    steps = each_once(
        checked(steps_of(runs, "lab.reprice"), _NEEDED, "lab.reprice", "one row per step, lab.frame(results)"), ("run_id", "step")
    )
    usages = _usages(steps, _of_calls(runs))
    rows = []
    for run_id, places in steps.groupby("run_id", sort=False).indices.items():
        first = steps.iloc[places[0]]
        recorded = [None if pd.isna(one) else Decimal(str(one)) for one in steps["cost_usd"].iloc[places]]
        each = [one for place in places for one in usages[place]]
        rows += [{"run_id": str(run_id), **_row(first, _sum(recorded), each, other, moment)} for other in others]
    if per == "run":
        return typed_frame([[row[name] for name in _BY_RUN] for row in rows], _BY_RUN)
    groups: dict[tuple[str | None, str | None, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["provider"], row["model"], row["at"]), []).append(row)
    return typed_frame([_of_group(key, group) for key, group in groups.items()], _BY_GROUP)


def _moment(at: date | str | None) -> datetime:
    """Return the beginning of a day, or a moment as it is; without a time zone in UTC."""
    try:
        moment = datetime.fromisoformat(at) if isinstance(at, str) else datetime.now(UTC) if at is None else at
    except ValueError:
        raise ConfigurationError(f"at={at!r}: pass a day, such as '2026-06-01'.") from None
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Other:
    """Another model with its provider's name and address."""

    provider: str
    model: str
    address: str

    @property
    def name(self) -> str:
        return f"{self.provider}:{self.model}"


def _other(given: Any) -> _Other:
    if isinstance(given, str) and all(given.partition(":")):
        provider, _, model = given.partition(":")
        return _Other(provider, model, "")
    if isinstance(getattr(given, "name", None), str) and isinstance(getattr(given, "model", None), str):
        return _Other(given.name, given.model, str(getattr(given, "address", "") or ""))
    raise ConfigurationError(f"models: {given!r} is not a model: write provider:model, such as 'openai:gpt-5.4-mini'.")


def _of_calls(runs: Any) -> dict[tuple[str, int], list[Usage]]:
    """Return the usage of each call, by run and step. Frames, and what has frames only, have none."""
    has_runs = isinstance(runs, Store) or hasattr(runs, "loaded")
    if isinstance(runs, pd.DataFrame) or (not has_runs and isinstance(getattr(runs, "steps", None), pd.DataFrame)):
        return {}
    if not has_runs and callable(getattr(runs, "frame", None)):
        return {}
    found = each_run(runs, "lab.reprice")
    return {(run_id, step.index): [call.usage for call in step.calls] for run_id, one in found for step in one.history}


def _usages(steps: pd.DataFrame, of_calls: Mapping[tuple[str, int], list[Usage]]) -> list[list[tuple[Usage, bool]]]:
    """Return the usage of each step's calls, or of the step, and whether that is the sum of several calls."""
    columns = {name: numbers(steps, name) for name in _COUNTS}
    several = numbers(steps, "calls").fillna(1) > 1
    found = []
    for place in range(len(steps)):
        counts = {name: None if pd.isna(value := column.iloc[place]) else int(value) for name, column in columns.items()}
        usage = replace(Usage(source=UsageSource.REPORTED), **counts)  # type: ignore[arg-type]
        calls = of_calls.get((str(steps["run_id"].iloc[place]), int(steps["step"].iloc[place])))
        found.append([(one, False) for one in calls] if calls else [(usage, bool(several.iloc[place]))])
    return found


def _row(
    first: Any, recorded: Decimal | None, given: Sequence[tuple[Usage, bool]], other: _Other, at: datetime
) -> dict[str, Any]:
    usages = given
    provider, model = (None if pd.isna(first[name]) else str(first[name]) for name in ("provider", "model"))
    if not _one_vendor(provider, other):  # other vendors have other tiers
        usages = [(replace(one, service_tier=None), several) for one, several in given]
    costs = [
        cost_of(other.provider, other.model, one, at=at, address=other.address or None, several=several, requested=other.model)
        for one, several in usages
    ]
    repriced = _sum([one.usd for one in costs])
    return {
        "provider": provider,
        "model": model,
        "at": other.name,
        "cost_usd": _float(recorded),
        "repriced_usd": _float(repriced),
        **_compared(recorded, repriced),
        "unknown": next((one.reason for one in costs if one.usd is None), None),
        "assumptions": _assumptions(provider, model, other, [one for one, _ in given]),
        "price_list": next((one.price_list for one in costs if one.price_list), None),
    }


def _assumptions(provider: str | None, model: str | None, other: _Other, usages: Sequence[Usage]) -> str | None:
    if (provider, model) == (other.provider, other.model):
        return None
    found = ["the same prompts, answers and steps"]
    if not _one_vendor(provider, other) or model != other.model:
        found.append(f"token counts by the tokenizer of {model or 'the recorded model'}")
    if any(one.cache_read_tokens or one.cache_write_tokens for one in usages):
        found.append("the same tokens cached")
    if not _one_vendor(provider, other) and any(one.service_tier for one in usages):
        found.append("the standard tier")
    return "; ".join(found)


def _one_vendor(provider: str | None, other: _Other) -> bool:
    return provider is not None and PRICE_BOOK_NAMES.get(provider, provider) == PRICE_BOOK_NAMES.get(
        other.provider, other.provider
    )


def _of_group(key: tuple[str | None, str | None, str], rows: list[dict[str, Any]]) -> list[Any]:
    recorded, repriced = (
        _sum([None if row[name] is None else Decimal(str(row[name])) for row in rows]) for name in ("cost_usd", "repriced_usd")
    )
    compared = _compared(recorded, repriced)
    unknown = [row for row in rows if row["repriced_usd"] is None]
    return [
        *key,
        len(rows),
        len(unknown),
        _float(recorded),
        _float(repriced),
        compared["difference_usd"],
        compared["ratio"],
        unknown[0]["unknown"] if unknown else None,
        "; ".join(dict.fromkeys(part for row in rows for part in (row["assumptions"] or "").split("; ") if part)) or None,
        next((row["price_list"] for row in rows if row["price_list"]), None),
    ]


def _sum(values: Iterable[Decimal | None]) -> Decimal | None:
    listed = list(values)
    return None if None in listed else sum([one for one in listed if one is not None], Decimal(0))


def _float(value: Decimal | None) -> float | None:
    return None if value is None else float(value)


def _compared(recorded: Decimal | None, repriced: Decimal | None) -> dict[str, float | None]:
    known = recorded is not None and repriced is not None
    return {
        "difference_usd": float(repriced - recorded) if known else None,  # type: ignore[operator]
        "ratio": float(repriced / recorded) if known and recorded else None,  # type: ignore[operator]
    }
