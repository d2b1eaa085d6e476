"""What made recorded runs, one row per origin: `lab.provenance(results)`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from agentlab.analysis.groups import typed_frame
from agentlab.errors import ConfigurationError
from agentlab.records.frames import Recordings
from agentlab.records.provenance import Provenance, hash_of, process_text
from agentlab.records.result import RunResult
from agentlab.storage.store import Store

_DTYPES: dict[str, Any] = {
    "runs": "Int64",
    **dict.fromkeys(("first_run", "agentlab", "python", "platform", "libraries", "commit"), "string"),
    "dirty": "boolean",
    **dict.fromkeys(("resumed_in", "provider", "model", "response_models", "base_url", "parameters", "tools"), "string"),
    "replayed": "boolean",
    **dict.fromkeys(("recordings", "price_lists", "prompts_hash", "responses_hash", "tasks_version"), "string"),
}


def provenance(runs: Recordings) -> pd.DataFrame:
    """Return what made the runs: one row per distinct origin, with the number of its `runs` and the id of the `first_run`.

    `runs` is a run or a result, several of them, a store, or the results of an experiment; a frame has ids of runs only. The columns
    are the fields of `lab.Provenance` as text, with those of its process. `prompts_hash` and `responses_hash` are hashes over all runs
    of the row, in their order; NA where a run has none. `tasks_version` is that of an experiment's tasks. NA is unknown: a store of an
    earlier agentlab has no versions.

    Example:
        >>> lab.provenance([result, *others])[["runs", "provider", "response_models", "replayed", "recordings"]]
           runs   provider          response_models  replayed      recordings
        0     1  anthropic        claude-sonnet-4-6      True  anthropic.yaml
        1     1     openai  gpt-5.4-mini-2026-03-17      True     openai.yaml
        2     1     gemini         gemini-3.5-flash      True     gemini.yaml
    """
    version = getattr(getattr(getattr(runs, "grid", None), "tasks", None), "version", None)
    groups: dict[str, list[tuple[str, Provenance]]] = {}
    for run_id, one in each_run(runs, "lab.provenance"):
        made = one.provenance
        groups.setdefault(json.dumps(_constant(made), sort_keys=True), []).append((run_id, made))
    rows = [{**_constant(group[0][1]), **_of_group(group), "tasks_version": version} for group in groups.values()]
    return typed_frame([[row[name] for name in _DTYPES] for row in rows], _DTYPES)


def each_run(given: Any, function: str) -> Iterator[tuple[str, Any]]:
    """Yield each run or result with its id; those of a store are loaded. Raises ConfigurationError, also for a frame."""
    if isinstance(given, Store):
        store = given
        given = (store.load(run_id) for run_id in store.run_ids())
    elif isinstance(loaded := getattr(given, "loaded", None), list):
        given = loaded
    elif isinstance(getattr(given, "provenance", None), Provenance):
        given = [given]
    else:
        given = getattr(given, "runs", given)
    if isinstance(given, pd.DataFrame | pd.Series | str | bytes) or not isinstance(given, Iterable):
        raise ConfigurationError(
            f"{function}() cannot read {type(given).__name__}: pass a run, a result, several in a list, a store, or the results "
            "of an experiment. Frames have the ids of runs only."
        )
    for one in given:
        if not isinstance(getattr(one, "provenance", None), Provenance):
            raise ConfigurationError(f"{function}() cannot read {type(one).__name__}: pass runs or results.")
        yield one.run_id if isinstance(one, RunResult) else one.id, one


def _constant(made: Provenance) -> dict[str, Any]:
    """Return what the runs of one row share."""
    plain = made.to_dict()
    process: dict[str, Any] = plain["process"]
    resumed = [process_text(one) for one in made.resumed_in]
    return {
        **process,
        "libraries": ", ".join(f"{name} {version}" for name, version in process["libraries"].items()) or None,
        **{name: plain[name] for name in ("provider", "model", "base_url", "replayed")},
        "resumed_in": "; ".join(resumed) or None,
        **{name: ", ".join(plain[name]) or None for name in ("response_models", "recordings", "price_lists")},
        **{name: None if plain[name] is None else json.dumps(plain[name], sort_keys=True) for name in ("parameters", "tools")},
    }


def _of_group(group: Sequence[tuple[str, Provenance]]) -> dict[str, Any]:
    prompts, responses = [made.prompt_hash for _, made in group], [made.responses_hash for _, made in group]
    return {
        "runs": len(group),
        "first_run": group[0][0],
        "prompts_hash": None if None in prompts else hash_of(prompts),
        "responses_hash": None if None in responses else hash_of(responses),
    }
