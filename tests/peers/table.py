"""The table as Markdown, from the recorded observations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.peers.judged import Cell, cells
from tests.peers.read import BETTER, IN_README, NAMES, READ, ROWS, SOURCES

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).with_name("observed.json")
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "peers.md"
BEGIN, END = "<!-- peers: written by `make peers ARGS=--write` -->", "<!-- end of peers -->"

Record = Mapping[str, Any]

ITALICS = (
    "Upright text: observed when `make peers` ran the same scenario in each framework, against the same server on loopback. "
    "*Italics*: not run, but taken from its documentation or its package."
)

HOW = (
    "Each framework was used as its documentation shows; of several ways, the one that suits the scenario best. "
    "The server sends all of them the answers of the synthetic fixtures: a search that never ends on its own, an answer without "
    "usage, a tool call truncated in its arguments and one truncated before them, an answer truncated at its cap. OpenRouter's toolkit "
    "uses the Responses API and gets the same answers in that format; the others use chat completions."
)


def recorded() -> Record:
    """The committed record."""
    record: Record = json.loads(RECORD.read_text(encoding="utf-8"))
    return record


def cell(record: Record, who: str, row: str) -> Cell:
    """Return a cell: the observation if it was run, otherwise the documented fact."""
    ran = cells(record["peers"][who]["facts"])
    return ran[row] if row in ran else Cell(READ[who][row], ran=False)


def table(record: Record, columns: Iterable[str]) -> str:
    """Return a table with one row per feature and one column per framework."""
    columns = tuple(columns)
    lines = [["", *(NAMES[who] for who in columns)], ["---"] * (len(columns) + 1)]
    lines += [[title, *(str(cell(record, who, row)).replace("|", r"\|") for who in columns)] for row, title in ROWS.items()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def versions(record: Record, columns: Iterable[str]) -> str:
    """Return the versions that were run, as part of a sentence."""
    packages = [f"{name} {version}" for who in columns for name, version in record["peers"][who]["versions"].items()]
    return ", ".join(packages)


def better(columns: Iterable[str]) -> str:
    """Return a list of the strengths of each framework."""
    return "\n".join(f"- **{NAMES[who]}**: {BETTER[who]}" for who in columns if who in BETTER)


def readme_part(record: Record) -> str:
    """Return the text between the two marks in the README."""
    by_and_on = f"On {record['date']} with {versions(record, IN_README)}."
    return "\n\n".join([BEGIN, table(record, IN_README), f"{ITALICS} {by_and_on}", "Their strengths:", better(IN_README), END])


def page(record: Record) -> str:
    """Return the page of the documentation."""
    others = [who for who in NAMES if who not in IN_README]
    facts = [
        f"| {NAMES[who]} | {scenario} | {one.get('how', 'default usage')} | {one['requests']} | {_says(one)} |".replace(
            "`|`", r"`\|`"
        )
        for who in NAMES
        for scenario, one in record["peers"][who]["facts"].items()
    ]
    return (
        "\n\n".join(
            [
                "# agentlab and other frameworks",
                f"{ITALICS} On {record['date']}. `make peers` repeats all runs, and prints both tables and the observations.",
                table(record, IN_README),
                table(record, ["agentlab", *others]),
                f"Versions: {versions(record, NAMES)}.",
                "## Their strengths",
                better(NAMES),
                "## Observations",
                HOW,
                "\n".join(["| framework | scenario | by | requests | outcome |", "| --- | --- | --- | --- | --- |", *facts]),
                "## Sources of the rest",
                "\n".join(f"- {NAMES[who]}: {where}" for who, where in SOURCES.items()),
            ]
        )
        + "\n"
    )


def _says(facts: Mapping[str, Any]) -> str:
    came = facts.get("came_back")
    if came is None:
        shown = {name: value for name, value in facts.items() if name not in {"how", "requests"}}
        return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())
    parts = [str(facts.get("error") or came)]
    if facts.get("says"):
        parts.append(str(facts["says"]).split(". ")[0].replace("|", r"\|"))
    if facts.get("forecasts"):
        parts.append(f"the tool was run with {facts['forecasts'][0]!r}")
    if facts.get("usage"):
        parts.append(f"tokens {facts['usage']}")
    return "; ".join(parts)


def with_part(readme: str, part: str) -> str:
    """Return the README with this part instead of the present one."""
    before, _, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"README.md has no {BEGIN!r} followed by {END!r}: add both where the table belongs.")
    return before + part + after
