"""Merging pieces of a text: an exact continuation is never changed, and certain repetitions are dropped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentlab.engine.continuation import FEWEST_WORDS, overlap, repeated

from .merge_texts import KINDS, TEXTS, borders, doubled, found, found_in_language, joined
from .script_texts import RECORDS, SONGS, SPACED, UNSPACED

EVERYTHING = {**TEXTS, **SPACED, **UNSPACED, **SONGS, **RECORDS}

often = settings(max_examples=300, deadline=None)


# An exact continuation ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("text", EVERYTHING.values(), ids=EVERYTHING.keys())
def test_an_exact_continuation_is_never_changed(text: str, times: int) -> None:
    for whole in (text * times, text.rstrip() * times, " ".join([text.strip()] * times)):
        assert [cut for cut in range(len(whole) + 1) if joined(whole[:cut], whole[cut:]) != whole] == []


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_a_continuation_in_three_pieces_is_never_changed(text: str) -> None:
    ends = borders(text)
    for first, second in zip(ends, ends[7:], strict=False):
        assert joined(joined(text[:first], text[first:second]), text[second:]) == text


def test_a_continuation_of_source_code_is_never_changed() -> None:
    tried = 0
    for path in sorted(Path(json.__file__).parents[1].glob("*.py"))[:40]:
        text = path.read_text(encoding="utf-8", errors="replace")
        cuts = doubled(text)
        tried += len(cuts)
        assert [cut for cut in cuts if joined(text[:cut], text[cut:]) != text] == [], path.name
    assert tried > 100


@given(
    st.text("ab \n", max_size=200)
    | st.text("01,[] \n", max_size=200)
    | st.text("a.|-` \n", max_size=200)
    | st.text("小船慢、。 \n", max_size=200),
    st.data(),
)
@often
def test_a_text_of_few_different_characters_is_never_changed(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    assert joined(text[:cut], text[cut:]) == text


WORDS = ("one", "two", "three", "Four", "five", "six", "of", "the", "I", "12", "x_1")


@given(
    st.lists(st.sampled_from(WORDS), max_size=60), st.integers(1, 4), st.sampled_from([" ", "\n", ", ", ",", "\t", "; ", " | "])
)
@often
def test_a_sequence_of_repeated_words_is_never_changed(words: list[str], times: int, between: str) -> None:
    whole = between.join(words * times)
    assert [cut for cut in range(len(whole) + 1) if joined(whole[:cut], whole[cut:]) != whole] == []


chinese = st.text("港口很安静所有的小船还在石墙之间睡觉码头上没有人把它们叫醒，。 ", max_size=60)


@given(
    st.text(min_size=1, max_size=60) | chinese, st.text(max_size=60) | chinese, st.text(max_size=60) | chinese, st.integers(1, 3)
)
@example(part="A B C D E F G H", head="", tail="", times=2)
@often
def test_a_text_that_repeats_itself_after_a_border_is_never_changed(part: str, head: str, tail: str, times: int) -> None:
    whole = f"{head}\n" + f"{part}\n" * times + tail
    assert [cut for cut in range(len(whole) + 1) if joined(whole[:cut], whole[cut:]) != whole] == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("It costs 5", "50 EUR"),
        ("1000", "000 EUR"),
        ("run", "ning"),
        ("https:/", "/example.org"),
        ("one, two,", "three"),
        ("example.", "Org"),
        ("It ends.", "It begins."),
        ("a\n", "\nb"),
        ("| a | b |\n|---|", "---|\n"),
        ("        return None\n", "        return None\n"),
        ("ha ha ", "ha ha ha"),
        ("Row, row, row your boat,\n", "Row, row, row your boat,\nand again"),
        ("one two three four five ", "one two three four five six"),
        ("    number of people here", "    number of people here\n"),
        ("Total amount of sales,", "Total amount of sales,day"),
        (r"\alpha + \beta + \gamma + \delta", r"\alpha + \beta + \gamma + \delta^2"),
        ('<td class="a">one two three</td>', '<td class="a">one two three</td><td>'),
        ("assert Eq(frac(x), p_r).has(Eq)\n    assert Eq(frac(r), n", "p_r).has(Eq)\n    assert Eq(frac(r), np_r)"),
        ("I thought that you would", "... I thought that you would come."),
        ("The harbour of the town was qui", "\nThe harbour of the town was quiet."),
        ("Docs:\n```markdown\n", "```markdown\nnested\n```"),
        ("Code:\n```python\nx = 1\n", "```python\ny = 2\n```"),
        ("# One\n```python\nx = 1\n```\nAs in", "```python\nAs in x\n```"),
        ("ABC DEF GHI JKL MNO", "ABC DEF GHI JKL MNO PQR"),
        ("See https://example.org/the/old/harbour", "See https://example.org/the/old/harbour/plan"),
        ("哈哈哈哈哈哈哈哈哈哈", "哈哈哈哈哈哈哈哈哈哈笑"),
        ("所有的小船还在石墙之间睡觉，没有人醒来。", "所有的小船还在石墙之间睡觉，没有人醒来。"),
        ("所有的小船还在石墙之间睡觉，没有人醒来。他说", "所有的小船还在石墙之间睡觉，没有人醒来。他说完就走了。"),
        ("鼠牛虎兔龙蛇马羊猴鸡狗猪", "鼠牛虎兔龙蛇马羊猴鸡狗猪完"),
        ("共一二三四五六七八九十百千万亿零壹贰叁肆", "共一二三四五六七八九十百千万亿零壹贰叁肆伍"),
    ],
)
def test_a_possible_coincidence_is_kept(before: str, after: str) -> None:
    assert joined(before, after) == before + after


# Repetitions --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "whole"),
    [
        ("", "all", "all"),
        ("all", "", "all"),
        ("First. The harbour was very qui", "The harbour was very quiet.", "First. The harbour was very quiet."),
        ("The harbour was very quiet", "The harbour was very quiet that day.", "The harbour was very quiet that day."),
        ("He came. It had been sold in 20", "It had been sold in 2024.", "He came. It had been sold in 2024."),
        ("First. It was late that day.", "It was late that day. Then", "First. It was late that day. Then"),
        ("and all the small boats were", "the small boats were asleep", "and all the small boats were asleep"),
        ("It ends.\n- the first of all the it", "- the first of all the items", "It ends.\n- the first of all the items"),
        ("# The history of all harb", "# The history of all harbours", "# The history of all harbours"),
        ('{"name": "the old harbour", "boats": [1, 2', '{"name": "the old harbour", "boats": [1, 22]}', None),
        (
            "他来了。所有的小船还在石墙之间睡觉，码头上没有人愿",
            "所有的小船还在石墙之间睡觉，码头上没有人愿意。",
            "他来了。所有的小船还在石墙之间睡觉，码头上没有人愿意。",
        ),
        (
            "その朝、小さな船はみな石の壁のあいだでまだ眠って",
            "小さな船はみな石の壁のあいだでまだ眠っていた。",
            "その朝、小さな船はみな石の壁のあいだでまだ眠っていた。",
        ),
        ("เช้าวันนั้น เรือลำเล็กทุกลำยังคงหลับ", "เรือลำเล็กทุกลำยังคงหลับอยู่", "เช้าวันนั้น เรือลำเล็กทุกลำยังคงหลับอยู่"),
        ("그날 이른 아침 항구는 아주 조용", "그날 이른 아침 항구는 아주 조용했다.", None),
        ("كانت كل القوارب الصغيرة نائ", "كانت كل القوارب الصغيرة نائمة.", None),
        ("उस सुबह सभी छोटी नावें सो रही", "उस सुबह सभी छोटी नावें सो रही थीं।", None),
        ("Code:\n```python\nx = compute", "```python\nx = computed(1)\n", "Code:\n```python\nx = computed(1)\n"),
        ("```python\nif a:\n    x = compute", "```python\nx = computed(1)\n", "```python\nif a:\n    x = computed(1)\n"),
    ],
)
def test_a_certain_repetition_is_dropped(before: str, after: str, whole: str | None) -> None:
    assert joined(before, after) == (after if whole is None else whole)


def test_the_share_of_true_repetitions_that_is_found() -> None:
    share = {(kind, name): found(text, kind) for kind in KINDS for name, text in TEXTS.items()}
    at_least = {
        ("the line", "prose"): 0.6,
        ("the sentence", "prose"): 0.55,
        ("the line and the one before", "prose"): 0.85,
        ("6 words", "prose"): 0.5,
        ("the whole answer", "prose"): 0.9,
        ("the whole answer", "Python"): 0.7,  # objects and functions may follow each other without a space, after their brackets
        ("the whole answer", "CSV"): 0.75,
        ("the whole answer", "Markdown"): 0.6,
        ("the whole answer", "JSON"): 0.3,
    }
    for case, least in at_least.items():
        dropped, tried = share[case]
        assert dropped / tried >= least, case
    assert all(share["2 words", name][0] == 0 for name in TEXTS)
    assert all(share[kind, "0/1 matrix"][0] == 0 for kind in KINDS)


@pytest.mark.parametrize(
    ("language", "sentence", "whole"),
    [
        *[(language, 0.55 if language not in ("Georgian", "Korean") else 0.45, 0.7) for language in SPACED],
        ("Chinese", 0.2, 0.55),
        ("Japanese", 0.4, 0.7),
        ("Thai", 0.9, 0.9),
    ],
)
def test_repetitions_are_found_in_each_language(language: str, sentence: float, whole: float) -> None:
    text = {**SPACED, **UNSPACED}[language]
    assert found_in_language(text, "the sentence") >= sentence
    assert found_in_language(text, "the whole answer") >= whole


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12), st.text(max_size=20), st.text(max_size=20))
@often
def test_only_repetitions_are_dropped(words: list[str], head: str, tail: str) -> None:
    before, after = f"{head} {' '.join(words)}", f"{' '.join(words)}{tail}"
    again = after[: repeated(before, after)]
    assert before.endswith(again)
    assert not again or len(set(again.split())) >= FEWEST_WORDS


# Speed --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["ab", "x", "word ", "one two three four\n", "```python\nx = 1\n"])
def test_a_long_repetitive_text_is_kept(unit: str) -> None:
    piece = (unit * 60_000)[:60_000]
    assert joined(piece, piece + "end") == piece + piece + "end"


def test_a_repetition_of_a_whole_long_answer_is_found() -> None:
    long = " ".join(f"The boat number {number} was asleep." for number in range(4_000)) + " The harb"
    assert joined(long, f"{long}our was quiet.") == f"{long}our was quiet."


@given(st.text("ab", max_size=40), st.text("ab", max_size=40))
@often
def test_the_overlap_is_the_longest(before: str, after: str) -> None:
    lengths = [length for length in range(min(len(before), len(after)) + 1) if before.endswith(after[:length])]
    assert overlap(before, after) == max(lengths)
