"""Repeats the analysis of a report on its recordings, and compares each figure: `await lab.verify("study.html", study)`."""

from __future__ import annotations

import copy
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from agentlab._internal.display import Displayable
from agentlab._internal.formatting import counted
from agentlab._internal.safe_text import cut
from agentlab.errors import ConfigurationError
from agentlab.experiments.experiment import Experiment
from agentlab.experiments.report import FORMAT, Data, rows_of, study_data
from agentlab.transport import Replay, current, is_chosen, replay
from agentlab.transport.replaying import Match, ReplayIndex

DATA_ID = "agentlab-report"
"""The id of the element with the data in a report."""

_ELEMENT = re.compile(rf'<script type="application/json" id="{DATA_ID}">(.*?)</script>', re.DOTALL)
_TOLERANCE = 1e-9
"""Two figures whose relative difference is smaller are equal: other versions of scipy may round differently."""

_PROCESS = ("agentlab", "python", "platform", "libraries", "commit", "dirty")
_KEYS = {
    "summary": ("agent", "settings"),
    "pass@k": ("agent", "settings", "k"),
    "runs": ("agent", "prompt_id", "settings", "repeat"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Verification(Displayable):
    """A report compared with its repetition.

    `figures` has one row per figure: `table`, `row`, `column`, `reported`, `repeated` (as text; NA: unknown) and `equal`.
    `differences` are sentences about other parts that differ: tasks, scorers, agents, settings, recordings, versions.

    Example:
        >>> study = lab.Experiment({"brief": brief}, ["What is the capital of France?"])
        >>> results = await study.run(progress=False)
        >>> checked = await lab.verify(results.report(), study)
        >>> checked
        Verification(equal, 48 figures, 0 differences)
    """

    figures: pd.DataFrame
    differences: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """True if every figure is equal; versions may differ.

        Example:
            >>> study = lab.Experiment({"brief": brief}, ["What is the capital of France?"])
            >>> results = await study.run(progress=False)
            >>> checked = await lab.verify(results.report(), study)
            >>> checked.equal
            True
        """
        return bool(self.figures["equal"].all())

    @property
    def unequal(self) -> pd.DataFrame:
        """The figures that are not equal.

        Example:
            >>> study = lab.Experiment({"brief": brief}, ["What is the capital of France?"])
            >>> results = await study.run(progress=False)
            >>> checked = await lab.verify(results.report(), study)
            >>> len(checked.unequal)
            0
        """
        return self.figures[~self.figures["equal"].astype(bool)].reset_index(drop=True)

    def __repr__(self) -> str:
        unequal = len(self.unequal)
        state = "equal" if not unequal else f"{unequal} not equal"
        return f"Verification({state}, {counted(len(self.figures), 'figure')}, {counted(len(self.differences), 'difference')})"


async def verify(
    report: str | os.PathLike[str],
    experiment: Experiment | Callable[[], Experiment],
    *,
    recordings: str | os.PathLike[str] | Replay | None = None,
    match: Match = "strict",
    concurrency: int = 8,
) -> Verification:
    """Repeat a report on recordings, and compare every figure with the reported one.

    report       the file that `results.report(path)` wrote, or its HTML. Only its data are read; nothing in it is executed
    experiment   the Experiment, or a function that makes it: its code is not in the report. It runs again in memory, its store is
                 neither read nor written
    recordings   a folder or file of recordings, or a `lab.replay(…)`; by default the surrounding `lab.replay` block, or the one in
                 which the experiment was made. No request leaves the machine: without recordings only scripted models can run
    match        how a folder of recordings is matched, see `lab.replay`

    Scores that `results.rescore` added are not computed again: their figures are not equal.

    Raises ConfigurationError for a file that is not a report.

    Example:
        >>> study = lab.Experiment({"brief": brief}, ["What is the capital of France?"])
        >>> results = await study.run(progress=False)
        >>> other = lab.Experiment({"brief": brief}, ["What is the capital of Peru?"])
        >>> (await lab.verify(results.report(), other)).differences
        ("The task 'p1' differs.",)
    """
    reported = read_report(report)
    study = experiment() if callable(experiment) else experiment
    if not isinstance(study, Experiment):
        raise ConfigurationError(f"experiment={study!r}: pass a lab.Experiment, or a function that returns one.")
    with _recordings(study, recordings, match):
        repeated = study_data(await _afresh(study).run(concurrency=concurrency, progress=False))
    return compared(reported, repeated)


def _recordings(study: Experiment, given: str | os.PathLike[str] | Replay | None, match: Match) -> Replay:
    """Return the replay to use; without recordings an empty one, so that no request is sent."""
    if given is not None:
        return given if isinstance(given, Replay) else replay(Path(given), match)
    around = current() if is_chosen() else study.transport
    return around if isinstance(around, Replay) else Replay(ReplayIndex([]), 0.0)


def _afresh(study: Experiment) -> Experiment:
    """Return the same experiment without any run, in memory, and without the observers of its agents, such as stores."""
    grid = study.grid
    agents = {name: copy.copy(agent) for name, agent in grid.agents.items()}
    for agent in agents.values():
        agent.observers = ()
    return Experiment(
        agents,
        grid.tasks,
        grid.settings,
        repeats=max(cell.repeat for cell in grid.cells),
        cells=grid.cells,
        score=study.score,
        name=grid.name,
        budget=study.budget,
        max_runs=study.max_runs,
    )


def read_report(report: str | os.PathLike[str]) -> Data:
    """Return the data of a report, a path or HTML. Raises ConfigurationError."""
    text = report if isinstance(report, str) and report.lstrip()[:1] == "<" else _text_of(Path(report))
    found = _ELEMENT.search(text)
    try:
        data = json.loads(found[1]) if found is not None else None
    except ValueError:
        data = None
    name = cut(os.fspath(report), 80)
    if not isinstance(data, dict) or not isinstance(data.get("format"), int):
        raise ConfigurationError(f"verify({name!r}): this is not a report; results.report('study.html') writes one.")
    if data["format"] > FORMAT:
        raise ConfigurationError(
            f"verify({name!r}): the report is of a newer agentlab (format {data['format']}; this version reads up to {FORMAT}): "
            "update agentlab."
        )
    return data


def _text_of(path: Path) -> str:
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"verify({str(path)!r}): the file cannot be read: {error}. Pass the path of a report."
        ) from error


def compared(reported: Data, repeated: Data) -> Verification:
    """Compare two analyses."""
    try:
        rows = list(_figures(reported["tables"], repeated["tables"]))
        differences = tuple(_differences(reported, repeated))
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise ConfigurationError(f"The report is damaged ({type(error).__name__}: {error}): write it again.") from error
    columns = ("table", "row", "column", "reported", "repeated", "equal")
    frame = pd.DataFrame(rows, columns=list(columns))
    return Verification(frame.astype({**dict.fromkeys(columns[:-1], "string"), "equal": "boolean"}), differences)


# Figures --------------------------------------------------------------------------------------------------------------------------


def _figures(reported: Mapping[str, Any], repeated: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    for table in dict.fromkeys([*reported, *repeated]):
        then, now = _by_row(table, reported.get(table)), _by_row(table, repeated.get(table))
        for row in dict.fromkeys([*then, *now]):
            before, after = then.get(row), now.get(row)
            for column in dict.fromkeys([*(before or {}), *(after or {})]):
                one, other = (before or {}).get(column), (after or {}).get(column)
                both = before is not None and after is not None and column in before and column in after
                yield table, row, column, _text(one), _text(other), both and _same(one, other)


def _by_row(table: str, given: Mapping[str, Any] | None) -> dict[str, Data]:
    """Return the figures of a table's rows by what identifies them. `replayed` is none: a live study is repeated on recordings."""
    if given is None:
        return {}
    keys = _KEYS.get(table, ("group", "against"))
    return {
        " / ".join(str(row[key]) for key in keys if key in row): {
            name: row[name] for name in row if name not in (*keys, "replayed")
        }
        for row in rows_of(given)
    }


def _same(one: object, other: object) -> bool:
    if (isinstance(one, float) and isinstance(other, int | float)) or (isinstance(other, float) and isinstance(one, int | float)):
        return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=1e-12)
    return type(one) is type(other) and one == other


def _text(value: object) -> str | None:
    return None if value is None else str(value)


# Other differences ----------------------------------------------------------------------------------------------------------------


def _differences(reported: Data, repeated: Data) -> Iterator[str]:
    tasks, now = ({task["id"]: task["hash"] for task in one["tasks"]["items"]} for one in (reported, repeated))
    yield from _changes("task", tasks, now)
    yield from _changes("scorer", _scorers(reported), _scorers(repeated))
    yield from _changes("agent", reported["agents"], repeated["agents"])
    yield from _changes("settings", reported["settings"], repeated["settings"])
    yield from _changes("recording of", reported["responses"], repeated["responses"])
    then, here = (_origins(one["provenance"]) for one in (reported, repeated))
    for name in then:
        if then[name] != here[name]:
            yield f"{name}: {then[name] or 'unknown'} in the report, {here[name] or 'unknown'} now."


def _changes(what: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each part that differs, is missing, or is new."""
    for name in dict.fromkeys([*then, *now]):
        if name not in now:
            yield f"The {what} {name!r} is in the report only."
        elif name not in then:
            yield f"The {what} {name!r} is not in the report."
        elif then[name] != now[name]:
            yield f"The {what} {name!r} differs."


def _scorers(data: Data) -> dict[str, Any]:
    return {one["name"]: [one["scorer"], one["version"]] for one in data["scorers"]}


def _origins(table: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions, models, addresses, schemas and prices of all runs, each as one text."""
    names = (*_PROCESS, "response_models", "base_url", "parameters", "tools", "price_lists")
    rows = rows_of(table)
    return {name: "; ".join(dict.fromkeys(str(row[name]) for row in rows if row[name] is not None)) for name in names}
