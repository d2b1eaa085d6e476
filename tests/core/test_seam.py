"""Pieces of a text put together: cut anywhere, with any overlap said again, the original comes back."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agentlab.seam import LONGEST_OVERLAP, joined, overlap

PROSE = (
    "The harbour was quiet that morning. All the small boats were still asleep, bobbing between the walls; a committee walked "
    "across.\n\nA bookkeeper balled up 1,000,000 letters, see? Then 10000 more: naïve café, „Größe“ and 日本語。\n"
)
MARKDOWN = (
    "Here is code:\n\n```python\ndef add(a, b):\n    if a == b:\n        return 2 * a\n    return a + b\n```\n\n"
    "- item one\n- item two\n\n| a | b |\n|---|---|\n| 1 | 22 |\n"
)
JSON = '{"name": "add", "values": [1, 22, 333, 4000], "nested": {"deep": {"x": null}}, "text": "hello\\n\\nworld"}'
TEXTS = {"prose": PROSE, "markdown": MARKDOWN, "json": JSON}


def alike(before: str, after: str) -> bool:
    """Whether the first piece happens to end as the second begins: then nobody can say whether something was said twice."""
    return overlap(before, after) > 0


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("again", range(41))
def test_cut_at_every_position_with_every_overlap(text: str, again: int) -> None:
    tried = 0
    for cut in range(1, len(text)):
        if again > cut or alike(text[:cut], text[cut:]):
            continue
        whole = text[:cut], text[cut - again :]
        if overlap(*whole) != again:  # the text repeats itself there
            continue
        assert joined(*whole) == text
        tried += 1
    assert tried > (len(text) - again) * 0.6


@given(text=st.text(min_size=2, max_size=120), cut=st.integers(1, 119), again=st.integers(0, 40))
@settings(max_examples=400)
def test_any_text(text: str, cut: int, again: int) -> None:
    cut = min(cut, len(text) - 1)
    again = min(again, cut)
    before, after = text[:cut], text[cut - again :]
    assume(overlap(before, after) == again)
    assume(again or not (after[0].isspace() or after[0] in ".…`~"))  # what models say before they go on
    assume(again or before[-1] not in ",;.!?:")  # where a space may have been stripped
    assert joined(before, after) == text


@pytest.mark.parametrize(
    ("before", "after", "whole"),
    [
        ("", "all", "all"),
        ("all", "", "all"),
        ("The harbour was qui", "The harbour was quiet.", "The harbour was quiet."),
        ("First. The harbour was qui", "The harbour was quiet.", "First. The harbour was quiet."),
        ("The harbour was qui", "...harbour was quiet.", "The harbour was quiet."),
        ("The harbour was qui", "… harbour was quiet.", "The harbour was quiet."),
        ("The harbour was qui", "\n\nThe harbour was quiet.", "The harbour was quiet."),
        ("Code:\n```python\nx = 1\n", "```python\ny = 2\n```", "Code:\n```python\nx = 1\ny = 2\n```"),
        ("Code:\n```python\nx = 1\n", "```python\nx = 1\ny = 2\n```", "Code:\n```python\nx = 1\ny = 2\n```"),
        ("Code:\n```\nx\n```\n", "```\ny\n```", "Code:\n```\nx\n```\ny\n```"),
        ('{"a": [1, 2', '{"a": [1, 2, 3]}', '{"a": [1, 2, 3]}'),
        ('{"a": [1, ', "2, 3]}", '{"a": [1, 2, 3]}'),
        ("one, two, ", "three", "one, two, three"),
        ("one, two, ", " three", "one, two, three"),
        ("one, two,", "three", "one, two, three"),  # a server that strips what the model says
        ("It ends.", "It begins.", "It ends. It begins."),
        ("costs 1,", "000", "costs 1,000"),
        ("print(a.", "b)", "print(a.b)"),
    ],
)
def test_what_models_do(before: str, after: str, whole: str) -> None:
    assert joined(before, after) == whole


def test_a_long_text_costs_no_more_than_its_end() -> None:
    before, after = "ab" * 1_000_000, "ab" * 1_000_000
    assert overlap(before, after) == LONGEST_OVERLAP
    assert len(joined("x" * 1_000_000, "y" * 1_000_000)) == 2_000_000
