"""Texts of many kinds, ways to cut them, and repetitions by models, for the tests of `agentlab.model.conversation`.

`python -m tests.model.merge_texts` prints how many true repetitions are found in each kind of text.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator

from agentlab.engine.continuation import repeated

from .script_texts import SPACED, UNSPACED

PROSE = (
    "The harbour was quiet that morning. All the small boats were still asleep, bobbing between the walls; a committee walked "
    "across the bridge and counted them, one after the other, as it did on every first Monday.\n\n"
    "Nobody had told the fishermen why. It costs 500 EUR a year to moor there, or 1,000 with a cabin, and more than 1 000 000 were "
    "spent on the new pier; https://example.org/harbour/plan has the figures. They waited. They waited until the committee had gone, "
    "and then they waited until the fog had gone as well.\n\n"
    "„Größe ist nicht alles“, said the oldest of them… and went back to his naïve little café. It was late by then. It was very late.\n"
)
PYTHON = '''from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """What was measured at one place."""

    name: str
    first_name: str
    value: float | None = None

    def shown(self, unit: str = "m") -> str:
        if self.value is None:
            return "unknown"
        return f"{self.name}: {self.value:.2f} {unit}"

    def doubled(self) -> Reading:
        if self.value is None:
            return Reading(self.name, self.first_name)
        return Reading(self.name, self.first_name, 2 * self.value)


def read_all(path: str) -> list[Reading]:
    """Return all readings of a file."""
    with open(path) as file:
        rows = json.load(file)
    found = []
    for row in rows:
        if row.get("skip") is not None and row["skip"]:
            continue
        found.append(Reading(row["name"], row["first_name"], row.get("value")))
        found.append(Reading(row["name"], row["first_name"], row.get("value")))
    return found
'''
CSV = "day,place,rain,sun,rain,sun\n" + "".join(
    f"2024-01-{day:02},{place},{day % 2},{day % 3},0,1\n" for day in range(1, 13) for place in ("Graz", "Graz", "Linz am Rhein")
)
JSON = (
    '{"name": "the harbour of the town", "values": [1, 22, 333, 4000, 4000, 1.10], "boats": [{"name": "Anna", "moored": true}, '
    '{"name": "Anna", "moored": true}, {"name": "Berta", "moored": false, "nested": {"deep": {"x": null}}}], '
    '"text": "All the boats were asleep\\n\\nand nobody came"}\n'
)
MATRIX = "[" + ",\n ".join("[" + ",".join(str((row * column) % 3 % 2) for column in range(24)) + "]" for row in range(16)) + "]\n"
URLS = (
    "https://example.org/a/b/c?x=1&y=11&z=111\nhttps://example.org/a/b/c/c/c/d\n"
    "See https://web.archive.org/web/2024/https://example.org/web/2024/ and https://example.org.example.org/login?next=/login, or "
    "www.example.org/www.example.org/index.html#index.html\nhttps:////example.org//\n"
)
TABLE = (
    "| name of the place | rain | sun | name of the place |\n|---|---|---|---|\n| Graz | 1 | 1 | Graz |\n| Graz | 1 | 1 | Graz |\n"
    "|  |  |  |  |\n| Linz am Rhein | 10 | 100 | Linz am Rhein |\n\n    number of people here    number of people here\n"
    "    ---------------------    ---------------------\n    10                       10\n    100                      100\n"
)
NUMBERS = "3.14159 1000000 1,000,000 10 10 100 0.0001 1e10 1e100 -1 --1 0x00ff00ff 101010101 12:12:12 2024-12-12 12 12\n" * 2
SONG = (
    "Row, row, row your boat,\nGently down the stream.\nMerrily, merrily, merrily, merrily,\nLife is but a dream.\n\n"
    "I woke up this morning with the blues all round my bed\nI woke up this morning with the blues all round my bed\n"
    "Ha ha ha ha ha. Happy birthday to you Happy birthday to you Happy birthday dear dear Anna\n"
) * 2
MARKDOWN = (
    "# How to add\n\nHere is the code for it:\n\n```python\ndef add(first: int, second: int) -> int:\n    if first == second:\n"
    "        return 2 * first\n    return first + second\n```\n\n- the first item of the list\n- the second item of the list\n\n"
    "````markdown\nA block:\n\n```python\nx = 1\n```\n\n```python\nx = 1\n```\n````\n\nThat is **all of it**, all of it.\n"
)
JAPANESE = "港は静かだった。小さな船はみな眠っていた。委員会が橋を渡り、船を数えた。港は静かだった。港は静かだった。\n"
TEXTS = {
    "prose": PROSE, "Python": PYTHON, "CSV": CSV, "JSON": JSON, "0/1 matrix": MATRIX, "URLs": URLS, "tables": TABLE,
    "numbers": NUMBERS, "song": SONG, "Markdown": MARKDOWN, "Japanese": JAPANESE,
}  # fmt: skip

_TOKEN = re.compile(r"\n+ *| ?[^\W\d_]+| ?\d{1,3}|\s|[^\w\s]+|_")


def joined(before: str, after: str) -> str:
    """Return both pieces as one text, without repetitions."""
    return before + after[repeated(before, after) :]


def borders(text: str) -> list[int]:
    """Return the ends of tokens like a tokenizer's: a word with the space before it, up to three digits, marks, line breaks."""
    return [found.end() for found in _TOKEN.finditer(text) if found.end() < len(text)]


def doubled(text: str, shortest: int = 16) -> set[int]:
    """Return the positions where at least that much text repeats: only there a continuation looks like a repetition."""
    starts: dict[str, int] = {}
    places: set[int] = set()
    for place in range(len(text) - shortest):
        start = starts.get(text[place : place + shortest])
        if start is not None and start + shortest <= place and text[start:place] == text[place : 2 * place - start]:
            places.add(place)
        if place == 0 or text[place - 1].isspace():
            starts[text[place : place + shortest]] = place
    return places


def _last(text: str, pattern: str) -> int:
    """The start of the last unit of the text; the pattern matches the separators."""
    return max((found.end() for found in re.finditer(pattern, text) if found.end() < len(text)), default=0)


def _last_words(count: int) -> Callable[[str], int | None]:
    def start(text: str) -> int | None:
        starts = [found.start() for found in re.finditer(r"\S+", text)]
        return starts[-count] if len(starts) >= count else None

    return start


KINDS: dict[str, Callable[[str], int | None]] = {
    "the line": lambda text: _last(text, r"\n"),
    "the sentence": lambda text: _last(text, r"[.!?؟।]\s+|[。！？]|\n+"),
    "the line and the one before": lambda text: _last(text[: _last(text, r"\n")].rstrip("\n"), r"\n"),
    "10 words": _last_words(10),
    "6 words": _last_words(6),
    "4 words": _last_words(4),
    "2 words": _last_words(2),
    "the whole answer": lambda text: 0,
}
"""A model's repetition when it continues: the place in the text so far where it starts."""


def repetitions(text: str, kind: str) -> Iterator[tuple[str, str]]:
    """Yield the two pieces for each cut at the end of a token where text can be repeated."""
    for cut in borders(text):
        start = KINDS[kind](text[:cut])
        if start is not None and text[start:cut].strip():
            yield text[:cut], text[start:]


def found(text: str, kind: str) -> tuple[int, int]:
    """Return how many of these repetitions are dropped so that the text is restored, and how many there are."""
    tried = [joined(before, after) == text for before, after in repetitions(text, kind)]
    return sum(tried), len(tried)


def found_in_language(text: str, kind: str) -> float:
    """Return the share of these repetitions that is dropped, over all cuts but those near the ends of the text."""
    cuts = range(20, len(text) - 1)
    return sum(joined(text[:cut], text[KINDS[kind](text[:cut]) :]) == text for cut in cuts) / len(cuts)


def table() -> str:
    """Return the share of true repetitions that is found per kind of text and per language, as Markdown."""
    lines = ["| said again | " + " | ".join(TEXTS) + " |", "|---" * (len(TEXTS) + 1) + "|"]
    for kind in KINDS:
        counted = [found(text, kind) for text in TEXTS.values()]
        cells = [f"{100 * dropped / tried:.0f} %" if tried else "" for dropped, tried in counted]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    languages = {**SPACED, **UNSPACED}
    lines += ["", "| said again | " + " | ".join(languages) + " |", "|---" * (len(languages) + 1) + "|"]
    for kind in ("the sentence", "the whole answer"):
        cells = [f"{100 * found_in_language(text, kind):.0f} %" for text in languages.values()]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
