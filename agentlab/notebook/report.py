"""The report of an experiment as one HTML file: tables, figures, methods, tasks, scorers, provenance, and the code to repeat it.

It has no script. The analysis is embedded as JSON, which `lab.verify` reads.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import agentlab
from agentlab._internal.formatting import counted
from agentlab._internal.redaction import redact
from agentlab._internal.safe_text import AS_WRITTEN, cut, escape, one_line
from agentlab.errors import AgentlabError
from agentlab.experiments.report import Data, rows_of, study_data
from agentlab.experiments.results import ExperimentResults
from agentlab.experiments.verify import DATA_ID
from agentlab.model.messages import Parameters
from agentlab.notebook.markup import Markup, dollars, escape_whole, picture, table
from agentlab.notebook.page import html_file, written
from agentlab.notebook.page.data import script_json

MOST_ROWS = 300
"""Rows that a table shows; all of them are in the embedded data."""
OPEN_ROWS = 40
"""A longer table of runs is folded."""
LONGEST = 600
_PARAMETERS = tuple(one.name for one in fields(Parameters))
COLUMNS = 3
"""Origins beside each other."""

# No script, nothing from elsewhere: the page has styles and embedded pictures.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def report(results: ExperimentResults, path: str | os.PathLike[str] | None = None) -> str | Path:
    """Return the report as text; with a path write it there and return the path. See `ExperimentResults.report`."""
    return written(path, lambda: page(results), method="report", example="study.html")


def page(results: ExperimentResults) -> str:
    """Return the report."""
    data = study_data(results)
    parts = "\n".join([*_head(data), *_results(data), *_figures(results), *_runs(data), *_methods(data), *_about(data)])
    body = f"""<main class="report {AS_WRITTEN}">
{redact(parts)}
</main>
<script type="application/json" id="{DATA_ID}">{script_json(data)}</script>"""
    return html_file(f"Report of {data['name']}", POLICY, _style(), body)


@cache
def _style() -> str:
    return Path(__file__).with_name("report.css").read_text(encoding="utf-8")


# Pieces ---------------------------------------------------------------------------------------------------------------------------


def _text(value: object) -> str:
    return "unknown" if value is None else escape(value, LONGEST)


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[object]], numbers: Sequence[int] = ()) -> str:
    """A table that scrolls by itself. Cells are escaped."""
    cells = [[cell if isinstance(cell, Markup) else Markup(_text(cell)) for cell in row] for row in rows[:MOST_ROWS]]
    more = (
        f'<p class="quiet">… and {len(rows) - MOST_ROWS:,} more rows, in the data of this page.</p>'
        if len(rows) > MOST_ROWS
        else ""
    )
    made = table(heads, cells, numbers, caption=escape(caption, LONGEST))
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption, 120)}">{made}</div>{more}'


def _list(sentences: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(one, 1_000)}</li>' for one in sentences)}</ul>"


def _number(value: Any, column: str = "") -> str:
    if value is None:
        return "unknown"
    if not isinstance(value, int | float) or isinstance(value, bool):
        return str(value)
    if "usd" in column or column.startswith("cost"):
        size = round(abs(value), 12)  # what is less is the noise of floats
        return "-" * (value < 0) + (dollars(size) if size < 1 else f"${size:,.6f}".rstrip("0").removesuffix("."))
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1000 else f"{value:.3g}"


def _estimate(value: float | None, low: float | None, high: float | None, column: str) -> str:
    """A figure with its interval in brackets, all with the decimals at which the width of the interval has two digits.

    Without an interval the figure has two digits, or is whole; a dash if it is unknown.
    """
    if value is None:
        return "–"
    width = 0.0 if low is None or high is None else high - low
    return f"{_rounded(value, _decimals(width or value), column)} {_interval(low, high, column)}".rstrip()


def _share(count: int | None, of: int | None, low: float | None, high: float | None) -> str:
    """A share of runs as a count, with the interval of the share in brackets; a dash if it is unknown."""
    if count is None or not of:
        return "–"
    return f"{count:,} of {of:,} {_interval(low, high)}".rstrip()


def _interval(low: float | None, high: float | None, column: str = "") -> str:
    """An interval in brackets; empty if there is none."""
    if low is None or high is None:
        return ""
    decimals = _decimals(high - low or high)
    return f"[{_rounded(low, decimals, column)}, {_rounded(high, decimals, column)}]"


def _decimals(size: float) -> int:
    """Return the number of decimals with which a number of this size has two digits."""
    return max(0, 1 - math.floor(math.log10(abs(size)))) if size else 0


def _rounded(value: float, decimals: int, column: str) -> str:
    if "usd" in column or column.startswith("cost"):
        whole, _, cents = f"{abs(value):,.{max(2, decimals)}f}".partition(".")
        return f"{'-' * (value < 0)}${whole}.{cents.rstrip('0').ljust(2, '0')}"
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _p(value: float | None) -> str:
    return "–" if value is None else "< 0.0001" if value < 0.0001 else f"{value:.4f}"


# Head and methods -----------------------------------------------------------------------------------------------------------------


def _head(data: Data) -> Iterator[str]:
    runs = rows_of(data["tables"]["runs"])
    ended = sum(run["state"] == "ended" for run in runs)
    yield f"<h1>{escape(data['name'], 200)}</h1>"
    parts = [
        counted(len(data["agents"]), "agent"),
        counted(len(data["tasks"]["items"]), "task"),
        counted(len(data["settings"]), "combination") + " of settings",
        counted(data["repeats"], "repeat"),
    ]
    yield f"<p class='quiet'>{', '.join(parts)}: {counted(len(runs), 'run')}, of which {ended:,} ended.</p>"


def _methods(data: Data) -> Iterator[str]:
    yield f"<h2>Methods</h2>{_list([*_design(data), *_statistics(data)])}"


def _design(data: Data) -> Iterator[str]:
    runs = rows_of(data["tables"]["runs"])
    errors = sum(run["stop_reason"] in ("error", "cancelled") for run in runs)
    kinds = {True: "replayed from recordings", False: "live", None: "without HTTP, or it is unknown"}
    counts = [(sum(run["replayed"] is flag for run in runs), words) for flag, words in kinds.items()]
    yield (
        f"Runs: {', '.join(f'{count:,} {words}' for count, words in counts if count)}. {counted(errors, 'run')} ended with an error; "
        "a run with an error counts as a failure."
    )
    prices = dict.fromkeys(row["price_lists"] for row in rows_of(data["provenance"]) if row["price_lists"])
    yield f"Costs are those that the provider reported, or by the price list: {'; '.join(prices) or 'none was used'}."


def _statistics(data: Data) -> Iterator[str]:
    groups = rows_of(data["tables"]["summary"])
    units = ", ".join(f"{_group(row)}: {_number(row['units'])}" for row in groups)
    yield (
        "All runs of one task, and all replays of one recording, are one independent unit. Intervals are computed from units, hold for "
        f"other tasks like these, and have a confidence of 95 %. Independent units: {units}."
    )
    methods = dict.fromkeys(row["methods"] for row in groups if row["methods"])
    yield f"Intervals of the summary: {'; '.join(methods) or 'none could be computed'}."
    differences = []
    for name, shown in data["tables"].items():
        rows = rows_of(shown)
        if name.startswith("paired"):
            how = "; ".join(dict.fromkeys(row["method"] for row in rows if row["method"])) or "no interval could be computed"
            differences.append(f"{name.removeprefix('paired ')}: {how}, {counted(len(rows), 'comparison')}")
        if name == "pass@k":
            how = "; ".join(dict.fromkeys(row["method"] for row in rows if row["method"])) or "no interval could be computed"
            yield f"pass@k and pass^k are the unbiased estimators over the repeats of a task, averaged over tasks ({how})."
    if differences:
        yield (
            "Differences: agents are compared on the same tasks, settings and repeats. P values are those of McNemar's exact test "
            "where each unit is one pair of yes-or-no values, else of the paired t test over units with a correction for "
            "skewness; Holm's method adjusts them for all "
            f"comparisons of their table ({'; '.join(differences)})."
        )


def _group(row: Data) -> str:
    if "group" in row:
        return f"{row['group']} against {row['against']}"
    return " / ".join(str(row[name]) for name in ("agent", "settings") if name in row)


# Results --------------------------------------------------------------------------------------------------------------------------


class _Notes:
    """What to read with care in a table: a mark beside each figure that it concerns, and the sentences below the table."""

    def __init__(self) -> None:
        self._sentences: dict[str, int] = {}

    def beside(self, figure: object, *sentences: str | None) -> Markup:
        """Return a cell with the marks of these sentences."""
        marks = [self._sentences.setdefault(one, len(self._sentences) + 1) for one in sentences if one]
        return Markup(_text(figure) + (f"<sup>{', '.join(map(str, sorted(marks)))}</sup>" if marks else ""))

    def below(self) -> str:
        lines = [f"<li>{escape(one[:1].upper() + one[1:], 1_000)}</li>" for one in self._sentences]
        return f'<div class="care"><b>To read with care</b><ol>{"".join(lines)}</ol></div>' if lines else ""


def _of_measures(words: str | None, what: str = "") -> dict[str, str]:
    """Return by measure what a column of the summary says: `tokens, cost: why; score: why; advice on units`."""
    found: dict[str, str] = {}
    advice = ""
    for part in (words or "").split("; "):
        names, between, why = part.partition(": ")
        if between and {*names.split(", ")} <= {*_MEASURES, "all"}:
            found |= dict.fromkeys(names.split(", "), f"{what}{why}")
        else:
            advice += f"; {part}" if part else ""
    return {name: why + (advice if "unit" in why else "") for name, why in found.items()}


_MEASURES = ("completion", "success", "score", "tokens", "cost")


def _results(data: Data) -> Iterator[str]:
    yield "<h2>Results</h2>"
    for name, shown in data["tables"].items():
        rows, notes = rows_of(shown), _Notes()
        if name == "summary":
            yield _summary(rows, notes) + notes.below()
        elif name.startswith("paired"):
            yield _paired(name.removeprefix("paired "), rows, notes) + notes.below()
        elif name == "pass@k":
            yield _passes(rows, notes) + notes.below()


def _summary(rows: Sequence[Data], notes: _Notes) -> str:
    measures = {"completion": "completed", "success": "success", "score": "score", "tokens": "tokens", "cost": "cost"}
    if all(row["success_rate"] is not None or row["score_mean"] is None for row in rows):
        del measures["score"]  # it is the same share
    heads = ("group", "runs", "errors", "units", *(f"{words} [95 %]" for words in measures.values()))
    lines = []
    for row in rows:
        missing, none = _of_measures(row["left_out"], "left out: "), _of_measures(row["no_interval"], "no interval: ")
        line: list[object] = [
            _group(row),
            notes.beside(_number(row["runs"]), missing.get("all"), row["mixed"]),
            _number(row["failed"]),
            notes.beside(_number(row["units"]), row["small_sample"]),
        ]
        line += [notes.beside(_measure(row, what, missing.get(what, "")), missing.get(what), none.get(what)) for what in measures]
        lines.append(line)
    caption = "Runs that completed and succeeded, and means of the others; in brackets the interval of the share or mean"
    return _table(caption, heads, lines, range(1, len(heads)))


def _measure(row: Data, what: str, missing: str) -> str:
    """Return a figure of the summary with its interval; `missing` says how many runs are left out of it: `left out: 2 of 12 …`."""
    low, high = row[f"{what}_low"], row[f"{what}_high"]
    if what not in ("completion", "success"):
        return _estimate(row[f"{what}_mean"], low, high, what)
    left_out = re.search(r"(\d+) of", missing)
    of = row["runs"] - row["not_ended"] - (int(left_out[1]) if left_out else 0)
    rate = row[f"{what}_rate"]
    return _share(None if rate is None else round(rate * of), of, low, high)


def _paired(what: str, rows: Sequence[Data], notes: _Notes) -> str:
    heads = ("group", "against", "difference [95 %]", "pairs", "units", "p", "p (Holm)", "different")
    lines = [
        (
            row["group"],
            row["against"],
            notes.beside(
                _estimate(row["difference"], row["low"], row["high"], what),
                row["no_interval"] and f"no interval: {row['no_interval']}",
            ),
            notes.beside(row["pairs"], row["mixed"]),
            notes.beside(row["units"], row["small_sample"]),
            _p(row["p_value"]),
            _p(row["p_holm"]),
            {True: "yes", False: "not shown", None: "–"}[row["different"]],
        )
        for row in rows
    ]
    return _table(f"Differences of {what} on the same tasks", heads, lines, range(2, 8))


def _passes(rows: Sequence[Data], notes: _Notes) -> str:
    heads = ("group", "k", "pass@k [95 %]", "pass^k [95 %]", "tasks", "runs", "units")
    lines = [
        (
            _group(row),
            row["k"],
            *(
                notes.beside(
                    _estimate(row[f"{one}_k"], row[f"{one}_low"], row[f"{one}_high"], one),
                    row["no_interval"] and f"no interval: {row['no_interval']}",
                )
                for one in ("pass_at", "pass_hat")
            ),
            *(_number(row[one]) for one in ("tasks", "runs", "units")),
        )
        for row in rows
    ]
    return _table("Chance that one of k runs succeeds, and that all k do", heads, lines, range(1, 7))


def _runs(data: Data) -> Iterator[str]:
    runs = data["tables"]["runs"]
    known = {name for row in rows_of(runs) for name, value in row.items() if value is not None}
    columns = [name for name in runs["columns"] if name != "detail" and name in known]
    cells = [[_number(row[name], name) if row[name] is not None else "–" for name in columns] for row in rows_of(runs)]
    numbers = [place for place, name in enumerate(columns) if name in ("repeat", "steps", "calls", "total_tokens", "cost_usd")]
    shown, state = _table("One row per run", columns, cells, numbers), " open" if len(cells) <= OPEN_ROWS else ""
    yield f"<h2>Runs</h2><details{state}><summary>All {counted(len(cells), 'run')}</summary>{shown}</details>"


# Figures --------------------------------------------------------------------------------------------------------------------------


def _figures(results: ExperimentResults) -> Iterator[str]:
    try:
        figure = results.plot()
    except AgentlabError as error:  # nothing has ended yet
        yield f"<h2>Figures</h2><p>There is no figure: {escape(error, LONGEST)}</p>"
        return
    width = round(figure.get_size_inches()[0] * 100)
    described = one_line(figure.alt, 4_000)
    shown = picture(figure.png(), described, width)
    yield f"<h2>Figures</h2><figure>{shown}<figcaption>{escape(described, 4_000)}</figcaption></figure>"


# Tasks, scorers, provenance, code ---------------------------------------------------------------------------------------------------


def _about(data: Data) -> Iterator[str]:
    tasks = data["tasks"]
    yield f"<h2>Tasks</h2><p>Version {escape(tasks['version'])}.</p>"
    lines = [[cut(str(one[name]), 300) if one[name] is not None else "–" for name in _TASK] for one in tasks["items"]]
    yield _table("Tasks, with the hash of their content", _TASK, lines)
    yield "<h2>Agents and settings</h2>"
    named = [
        (
            name,
            one["model"],
            ", ".join(one["tools"]) or "none",
            cut(one["instructions"], 400) or "none",
            _given(one["parameters"]),
            _given(one["limits"]),
        )
        for name, one in data["agents"].items()
    ]
    yield _table("Agents", ("agent", "model", "tools", "instructions", "parameters", "limits"), named)
    yield _table("Settings", ("settings", "limits"), [(name, _given(one)) for name, one in data["settings"].items()])
    if data["scorers"]:
        yield "<h2>Scorers</h2>"
        yield _table(
            "Scorers; the version is Python's and a hash of the code",
            ("name", "scorer", "version"),
            [(one["name"], one["scorer"], one["version"]) for one in data["scorers"]],
        )
    yield "<h2>Provenance</h2>"
    origins = rows_of(data["provenance"])
    for begin in range(0, len(origins), COLUMNS):
        some = origins[begin : begin + COLUMNS]
        numbers = [f"origin {number}" for number in range(begin + 1, begin + 1 + len(some))]
        origin = [(name.replace("_", " "), *(_origin(name, one[name]) for one in some)) for name in data["provenance"]["columns"]]
        yield _table("What made the runs, one column per origin", ("", *numbers), origin)
    yield f"<h2>To repeat it</h2><pre>{escape_whole(_code(data))}</pre>"


_TASK = ("id", "prompt", "target", "tags", "hash")


def _given(values: Data, none: str = "defaults") -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items()) or none


def _origin(name: str, value: object) -> str:
    if value is None:
        return "none" if name in ("resumed_in", "recordings", "price_lists", "libraries") else "unknown"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _code(data: Data) -> str:
    """Return the code of the experiment as far as a page can have it: functions are named only."""
    agents = ",\n    ".join(f"{name!r}: lab.Agent({_arguments(one)})" for name, one in data["agents"].items())
    settings = ",\n    ".join(f"{name!r}: dict({_given(one, '')})" for name, one in data["settings"].items())
    scorers = [one["name"] for one in data["scorers"] if one["scorer"] != "added by rescore"]
    is_one = len(scorers) == 1 and f"score.{scorers[0]}" not in data["tables"]["runs"]["columns"]
    given = "…" if is_one else f"{{{', '.join(f'{name!r}: …' for name in scorers)}}}"
    score = f"\n    score={given},  # see Scorers" if scorers else ""
    used = sorted({*re.findall(r"\b[A-Z]\w+(?=\()", agents + settings)} & {*agentlab.__all__})
    names = f"\nfrom agentlab import {', '.join(used)}" if used else ""
    return f"""import agentlab as lab{names}

agents = {{
    {agents},
}}
settings = {{
    {settings},
}}
tasks = …  # {counted(len(data["tasks"]["items"]), "task")}, lab.Tasks(…).version == {data["tasks"]["version"]!r}
study = lab.Experiment(
    agents,
    tasks,
    settings,
    repeats={data["repeats"]},{score}
    name={data["name"]!r},
)
await lab.verify("study.html", study, recordings="…")  # the folder of recordings; no key and no network
"""


def _arguments(agent: Data) -> str:
    tools = f", tools=[{', '.join(agent['tools'])}]" if agent["tools"] else ""
    words = f", instructions={agent['instructions']!r}" if agent["instructions"] else ""
    own, options = dict[str, Any](), dict[str, Any]()
    for name, value in agent["parameters"].items():
        (own if name in _PARAMETERS else options)[name] = value
    more = "".join(f", {name}={value!r}" for name, value in own.items()) + (f", options={options!r}" if options else "")
    limits = "".join(f", {name}={value}" for name, value in agent["limits"].items())
    model, (provider, _, name) = repr(agent["model"]), agent["model"].partition(":")
    if agent["base_url"]:
        model = f"lab.Provider({provider!r}, model={name!r}, base_url={agent['base_url']!r})"
    return f"{model}{tools}{words}{more}{limits}"
