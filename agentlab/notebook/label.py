"""The widget in which people label answers: blind, by keyboard, saved after each label."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from typing import Any

import pandas as pd
import traitlets

from agentlab._internal.formatting import counted
from agentlab._internal.safe_text import cut, printable
from agentlab.errors import ConfigurationError
from agentlab.experiments.labels import TIE, Item, LabelFile, checked_grades, checked_rater, items_of, key_of, keys_of
from agentlab.experiments.results import ExperimentResults
from agentlab.experiments.scorers.base import YES_OR_NO
from agentlab.model.messages import user_message
from agentlab.notebook import markup
from agentlab.notebook.live_view import LiveView, Picture, StaticOutputs, panel_html
from agentlab.notebook.page import label_script, label_style
from agentlab.notebook.page.rich_text import code, markdown, part_html
from agentlab.notebook.page.steps import on_one_line
from agentlab.notebook.panel.page_widget import PageWidget

JSON = dict[str, Any]

PAIR_GRADES = {"A": 1.0, "B": 0.0, "equal": 0.5}
MOST_STATIC = 5
"""Answers shown to readers without a kernel."""


def label(
    results: ExperimentResults,
    path: str | os.PathLike[str],
    *,
    rater: str,
    question: str = "",
    grades: Mapping[str, float | bool] | int = YES_OR_NO,
    by: str | None = None,
    target: bool = True,
    seed: int = 0,
) -> Labeller:
    """Return a widget in which a person grades the answers of an experiment by keyboard, without seeing who gave them.

    path       the file of the labels, JSON lines; each label is written at once. An existing file is continued, and several people may
               share it
    rater      the name of the person
    question   what is asked, such as "Is the answer right?"
    grades     the grades and their scores, such as {"good": 1, "fair": 0.5, "poor": 0}, or a number: 5 for the grades 1 to 5
    by         compare two answers to one task instead, of different `agent` or `settings`, as A or B or equal
    target     False hides the target
    seed       the order of the answers, which differs between people

    As the last expression of a cell it displays itself. The keys 1 to 9, or the first letters of the grades, grade an answer; s skips
    it, u takes the last label back, ← and → go to others, h hides the target. Equal answers to one task are shown once.

    `labels.frame` has the labels; `results.rescore(lab.scorers.Labels(path))` makes columns of them, and `lab.raters` compares people,
    and judges with people. For pairs see `lab.scorers.PairLabels`.

    Errors: ConfigurationError if no run has ended, and for a file with other labels.

    Example:
        >>> from tempfile import mkdtemp
        >>> results = await lab.Experiment([brief], ["What is the capital of France?"], repeats=3).run(progress=False)
        >>> labels = lab.label(results, mkdtemp() + "/labels.jsonl", rater="anna", question="Is the capital named?")
        >>> labels
        Labeller('anna', 0 of 1 answer labelled)
        >>> labels.grade("correct")
        >>> labels.frame[["rater", "prompt_id", "grade", "score", "runs"]]
          rater prompt_id    grade score  runs
        0  anna        p1  correct  True     3
    """
    if not isinstance(results, ExperimentResults):
        raise ConfigurationError(f"label({cut(repr(results), 80)}): pass the results of an experiment.")
    return Labeller(results, path, rater=rater, question=question, grades=grades, by=by, target=target, seed=seed)


class Labeller(LiveView):
    """The answers that a person labels, and the labels."""

    def __init__(
        self,
        results: ExperimentResults,
        path: str | os.PathLike[str],
        *,
        rater: str,
        question: str,
        grades: Mapping[str, float | bool] | int,
        by: str | None,
        target: bool,
        seed: int,
    ) -> None:
        super().__init__()
        self.rater = checked_rater(rater)
        self.grades = checked_grades(grades) if by is None else PAIR_GRADES
        self.question = question or ("Which answer is better?" if by is not None else "How good is this answer?")
        self._file, self._results, self._is_pair, self._with_target = LabelFile(path), results, by is not None, target
        self.items = items_of(results, by, random.Random(f"{seed} {self.rater}"))  # noqa: S311  an order, no secret
        self._labels: dict[str, str] = {}
        self._read()
        self._done: list[tuple[int, str | None]] = []  # the places labelled here with their earlier labels, for undo
        self.place = self._next_open(-1)

    def _read(self) -> None:
        keys = {one.key: one for one in self.items}
        for (rater, item), line in self._file.read().items():
            if rater == self.rater and item in keys:
                grade = self._shown(keys[item], line["grade"])
                if grade is None:
                    raise ConfigurationError(
                        f"label: {str(self._file.path)!r} has the grade {line['grade']!r}, which is none of {', '.join(self.grades)}: "
                        "pass the same grades, or name another file."
                    )
                self._labels[item] = grade

    def _shown(self, item: Item, stored: str) -> str | None:
        """Return a stored grade as this widget names it: of a pair, the side of the better answer."""
        if not self._is_pair:
            return stored if stored in self.grades else None
        names = {key_of(item.task, one): side for one, side in zip(item.answers, "AB", strict=True)}
        return {**names, TIE: "equal"}.get(stored)

    def _next_open(self, place: int) -> int:
        """Return the next place without a label, from the start again; the number of items if there is none."""
        count = len(self.items)
        after = [(place + 1 + more) % count for more in range(count)]
        return next((one for one in after if self.items[one].key not in self._labels), count)

    # What the person does ------------------------------------------------------------------------------------------------------

    def grade(self, grade: str, place: int | None = None) -> None:
        """Label the answer that is shown, save the label, and go to the next answer without one."""
        place = self.place if place is None else place
        if grade not in self.grades:
            raise ConfigurationError(f"grade({grade!r}): choose one of {', '.join(self.grades)}.")
        if not 0 <= place < len(self.items):
            raise ConfigurationError(f"grade({grade!r}): all answers are labelled; undo() takes the last label back.")
        self._done.append((place, self._labels.get(self.items[place].key)))
        self._save(place, grade)
        self.place = self._next_open(place)

    def undo(self) -> None:
        """Take the last label of this session back, and show its answer again with its earlier label. Does nothing if there is none."""
        if self._done:
            self.place, before = self._done.pop()
            self._save(self.place, before)

    def _save(self, place: int, grade: str | None) -> None:
        item, stored = self.items[place], grade
        if self._is_pair and grade is not None:
            stored = TIE if grade == "equal" else key_of(item.task, item.answers["AB".index(grade)])
        self._file.add(self.rater, item, stored, None if grade is None else self.grades[grade])
        if grade is None:
            del self._labels[item.key]
        else:
            self._labels[item.key] = grade

    def carry_out(self, message: Mapping[str, Any]) -> Any:
        """Do what the page asks for, and return what it shows then."""
        match message:
            case {"do": "hello"}:
                pass
            case {"do": "grade", "grade": str(grade), "place": int(place)}:
                self.grade(grade, place)
            case {"do": "skip", "place": int(place)}:
                self.place = self._next_open(place)
            case {"do": "go", "place": int(place)}:
                last = len(self.items) - (len(self._labels) < len(self.items))  # after it comes the end, once all are labelled
                self.place = max(0, min(place, last))
            case {"do": "undo"}:
                self.undo()
            case _:
                raise ConfigurationError(f"{str(message.get('do'))[:40]!r}: the widget has no such command.")
        self._draw_safely()
        return self._view()

    def _view(self) -> JSON:
        keys = keys_of([*self.grades])
        view: JSON = {
            "question": self.question,
            "grades": [{"name": name, "keys": own} for name, own in zip(self.grades, keys, strict=True)],
            "place": self.place, "count": len(self.items), "labelled": len(self._labels), "undo": bool(self._done),
            "file": self._file.path.name, "rater": self.rater,
        }  # fmt: skip
        if self.place == len(self.items):
            return view
        item = self.items[self.place]
        texts = zip(["A", "B"] if self._is_pair else ["Answer"], item.answers, strict=True)
        empty = markup.note("The answer is empty.")
        return {
            **view,
            "prompt_html": _prompt_html(item),
            "target_html": _target_html(item) if self._with_target and item.task.target is not None else "",
            "answers": [{"name": name, "html": markdown(text) if text.strip() else empty} for name, text in texts],
            "grade": self._labels.get(item.key, ""),
        }

    # The labels ----------------------------------------------------------------------------------------------------------------

    @property
    def frame(self) -> pd.DataFrame:
        """All labels of these answers in the file, of all raters: `rater`, `prompt_id`, `answer`, `grade`, `score`, the number of
        `runs` with this answer, and `at`, the time. Of a pair, `answer` is the better one (NA: equal); it has no grade and no score.
        """
        items = {one.key: one for one in self.items}
        rows = [(items[item], line) for (_, item), line in self._file.read().items() if item in items]
        chosen = [
            [one for one in item.answers if not self._is_pair or key_of(item.task, one) == line["grade"]] for item, line in rows
        ]
        columns: dict[str, Any] = {
            "rater": pd.array([line["rater"] for _, line in rows], dtype="string"),
            "prompt_id": pd.array([item.task.id for item, _ in rows], dtype="string"),
            "answer": pd.array([next(iter(answers), None) for answers in chosen], dtype="string"),
        }
        if not self._is_pair:
            columns["grade"] = pd.array([line["grade"] for _, line in rows], dtype="string")
            columns["score"] = pd.array([line["score"] for _, line in rows]) if rows else pd.array([], dtype="Float64")
        columns["runs"] = pd.array([item.runs for item, _ in rows], dtype="Int64")
        columns["at"] = pd.to_datetime([line["at"] for _, line in rows], utc=True)
        return pd.DataFrame(columns)

    def __repr__(self) -> str:
        what = "pair" if self._is_pair else "answer"
        return printable(f"Labeller({self.rater!r}, {len(self._labels)} of {counted(len(self.items), what)} labelled)")

    # The widget ----------------------------------------------------------------------------------------------------------------

    @property
    def widget(self) -> PageWidget:
        """The live widget, created on first access."""
        if self._widget is None:
            self._widget = _LabelWidget(self.carry_out, self._kept_class)
        return self._widget  # type: ignore[no-any-return]

    def _finished(self) -> int:
        return len(self._labels)

    def _static(self) -> StaticOutputs:
        return _Form(repr(self), self.question, [*self.grades], self.items, self._with_target)


class _LabelWidget(PageWidget):
    @traitlets.default("_esm")
    def _script(self) -> str:
        return label_script()

    @traitlets.default("_css")
    def _style(self) -> str:
        return label_style()


def _prompt_html(item: Item) -> str:
    message = user_message(item.task.prompt, "{!r}")
    return markdown(message.text) + "".join(map(part_html, message.parts))


def _target_html(item: Item) -> str:
    target = item.task.target
    return markdown(target) if isinstance(target, str) else code(json.dumps(target, ensure_ascii=False), "text")


class _Form(StaticOutputs):
    """The first answers, for readers without a kernel."""

    def __init__(self, title: str, question: str, grades: list[str], items: list[Item], with_target: bool) -> None:
        self._title, self._question, self._grades, self._items, self._with_target = title, question, grades, items, with_target

    def text(self) -> str:
        """One line for each answer."""
        lines = [self._title, f"{self._question} ({', '.join(self._grades)})"]
        for item in self._items[:MOST_STATIC]:
            answers = "  |  ".join(on_one_line(text, 200) for text in item.answers)
            lines.append(f"{on_one_line(item.task.text, 100)}  →  {answers}")
        return printable("\n".join(lines))

    def html(self, pictures: str = "") -> str:
        """The question, and a table of the answers."""
        items = self._items[:MOST_STATIC]
        is_pair = len(items[0].answers) > 1
        heads = ["Prompt", *(["Target"] if self._with_target else []), *(["A", "B"] if is_pair else ["Answer"])]
        rows = [
            tuple(
                markup.Markup(f"<bdi>{markup.escape(on_one_line(text, 300))}</bdi>")
                for text in (item.task.text, *([_target_text(item)] if self._with_target else []), *item.answers)
            )
            for item in items
        ]
        head = (
            f"<b>{markup.escape(self._title)}</b><p>{markup.escape(self._question)} {markup.escape(', '.join(self._grades))}</p>"
        )
        more = f"The first {len(items)} of {counted(len(self._items), 'item')}. " if len(items) < len(self._items) else ""
        return panel_html(head, markup.table(heads, rows), markup.note(f"{more}Run this cell in Jupyter to label them."))

    def pictures(self) -> list[Picture]:
        """None."""
        return []


def _target_text(item: Item) -> str:
    target = item.task.target
    return "" if target is None else target if isinstance(target, str) else json.dumps(target, ensure_ascii=False)
