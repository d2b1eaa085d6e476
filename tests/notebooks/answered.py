"""A pytest plugin for nbval: a notebook's hidden answers run after its cells, and print the output shown to the reader."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import nbformat
import pytest
from nbval.plugin import IPyNbCell, IPyNbFile

from tests.notebooks.course import Answer, answers


class AnswerCell(IPyNbCell):  # type: ignore[misc]  # nbval has no types
    """The code of a hidden answer, as one more cell of its notebook."""

    answer: Answer

    def compare_outputs(
        self, test: Sequence[nbformat.NotebookNode], ref: Sequence[nbformat.NotebookNode], skip_compare: object = None
    ) -> bool:
        """True if the output is the one that the reader is shown."""
        found = printed(test).strip()
        if self.answer.output is None or found == self.answer.output.strip():
            return True
        self.comparison_traceback = [f"{self.answer.title}: printed\n{found}\nand not\n{self.answer.output}"]
        return False


def printed(outputs: Sequence[nbformat.NotebookNode]) -> str:
    """Return the printed output of a cell and the text of its last value."""
    text = ""
    for output in outputs:
        if output.output_type == "stream" and output.name == "stdout":
            text += output.text
        elif output.output_type == "execute_result":
            text += output.data["text/plain"]
    return text


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Add the answers to the cells of a notebook."""
    report = yield
    if isinstance(collector, IPyNbFile):
        cells = report.result  # type: ignore[attr-defined]
        for number, answer in enumerate(answers(collector.nb), len(cells)):
            name = "Answer " + re.sub(r"\W+", "-", answer.title)
            # without a count, nbval would not check the output
            cell = nbformat.v4.new_code_cell(answer.code, execution_count=number)
            added = AnswerCell.from_parent(
                collector, name=name, cell_num=number, cell=cell, options=defaultdict(bool, check=True)
            )
            added.answer = answer
            cells.append(added)
    return report
