"""The table as Markdown, from the record of what was observed."""

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
    "Upright: what happened when `make peers` ran the same scenario in each of them, against the same server on loopback. "
    "*In italics*: not run, but read in its documentation or found in its package."
)

HOW = (
    "Each framework was driven the way its documentation shows, and where it has several ways, the one that serves the scenario best. "
    "The server gives every one of them the answers of the synthetic fixtures: a search that does not end of itself, an answer without "
    "usage, a tool call cut in its arguments and one cut before them, an answer cut at its cap. OpenRouter's toolkit speaks the "
    "Responses API and gets the same answers in its words; the others speak chat completions."
)


def recorded() -> Record:
    """The committed record."""
    record: Record = json.loads(RECORD.read_text(encoding="utf-8"))
    return record


def cell(record: Record, who: str, row: str) -> Cell:
    """What stands there: what was run, else what was read."""
    ran = cells(record["peers"][who]["facts"])
    return ran[row] if row in ran else Cell(READ[who][row], ran=False)


def table(record: Record, columns: Iterable[str]) -> str:
    """Rows of features, a column a framework."""
    columns = tuple(columns)
    lines = [["", *(NAMES[who] for who in columns)], ["---"] * (len(columns) + 1)]
    lines += [[title, *(str(cell(record, who, row)).replace("|", r"\|") for who in columns)] for row, title in ROWS.items()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def versions(record: Record, columns: Iterable[str]) -> str:
    """The versions that were run, in a sentence's words."""
    packages = [f"{name} {version}" for who in columns for name, version in record["peers"][who]["versions"].items()]
    return ", ".join(packages)


def better(columns: Iterable[str]) -> str:
    """What each of them does better."""
    return "\n".join(f"- **{NAMES[who]}**: {BETTER[who]}" for who in columns if who in BETTER)


def readme_part(record: Record) -> str:
    """What stands between the two marks in the README."""
    by_and_on = f"On {record['date']} with {versions(record, IN_README)}."
    return "\n\n".join(
        [BEGIN, table(record, IN_README), f"{ITALICS} {by_and_on}", "What they do better:", better(IN_README), END]
    )


def page(record: Record) -> str:
    """The whole of it, as a page of the documentation."""
    others = [who for who in NAMES if who not in IN_README]
    facts = [
        f"| {NAMES[who]} | {scenario} | {one.get('how', 'the plain way')} | {one['requests']} | {_says(one)} |".replace(
            "`|`", r"`\|`"
        )
        for who in NAMES
        for scenario, one in record["peers"][who]["facts"].items()
    ]
    return (
        "\n\n".join(
            [
                "# agentlab beside other frameworks",
                f"{ITALICS} On {record['date']}. `make peers` runs all of it again, and prints both tables and what was observed.",
                table(record, IN_README),
                table(record, ["agentlab", *others]),
                f"Versions: {versions(record, NAMES)}.",
                "## What they do better",
                better(NAMES),
                "## What was observed",
                HOW,
                "\n".join(
                    ["| framework | scenario | by | requests | what came back |", "| --- | --- | --- | --- | --- |", *facts]
                ),
                "## Where the rest was read",
                "\n".join(f"- {NAMES[who]}: {where}" for who, where in SOURCES.items()),
            ]
        )
        + "\n"
    )


def _says(facts: Mapping[str, Any]) -> str:
    came = facts.get("came_back")
    if came is None:
        told = {name: value for name, value in facts.items() if name not in {"how", "requests"}}
        return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in told.items())
    parts = [str(facts.get("error") or came)]
    if facts.get("says"):
        parts.append(str(facts["says"]).split(". ")[0].replace("|", r"\|"))
    if facts.get("forecasts"):
        parts.append(f"the tool was run with {facts['forecasts'][0]!r}")
    if facts.get("usage"):
        parts.append(f"tokens {facts['usage']}")
    return "; ".join(parts)


def with_part(readme: str, part: str) -> str:
    """The README with this part in the place of the one that is there."""
    before, _, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"README.md has no {BEGIN!r} followed by {END!r}: put both where the table is to stand.")
    return before + part + after
