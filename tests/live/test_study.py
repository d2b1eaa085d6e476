"""The recorded study, replayed: the same frames as the recording gave, for every agent."""

from __future__ import annotations

import asyncio
import calendar
import datetime
import json

import pytest

import agentlab as lab
from agentlab.transport.cassette import load_cassette

from .record_study import experiment, hashes, known_hashes, recording, study

AGENTS = {name: study.agents()[name] for name in known_hashes()}
"""The agents that were recorded."""


def replayed(agent: lab.Agent) -> lab.ExperimentResults:
    with lab.replay(recording(agent)):
        return asyncio.run(experiment(agent).run(concurrency=8, progress=False))


@pytest.mark.parametrize("name", AGENTS)
def test_a_replay_gives_the_frames_of_the_recording(name: str) -> None:
    results = replayed(AGENTS[name])
    assert len(results.runs) == 2 * len(study.tasks())
    assert results.runs["stop_reason"].ne("error").all()
    assert hashes(results) == known_hashes()[name]


@pytest.mark.parametrize("name", AGENTS)
def test_a_recording_says_where_it_comes_from(name: str) -> None:
    cassette = load_cassette(recording(AGENTS[name]))
    origin = cassette.origin
    assert isinstance(origin, dict)
    assert "llama.cpp" in origin["from"]
    assert len(origin["model_file_sha256"]) == 64
    for interaction in cassette.interactions:
        sent = json.loads(interaction.body)
        assert sent["model"] == study.MODELS[name.partition(" ")[0]] == json.loads(interaction.response.body)["model"]
        assert sent["temperature"] == study.TEMPERATURES[name.split()[1]]


def test_both_models_are_recorded_and_each_recording_has_its_hashes() -> None:
    assert {file.name for file in study.FOLDER.glob("*.gz")} == {recording(agent).name for agent in AGENTS.values()}
    for model in study.MODELS:
        assert {f"{model} {how} chat" for how in study.TEMPERATURES} <= AGENTS.keys()


def test_the_recordings_are_small() -> None:
    assert sum(file.stat().st_size for file in study.FOLDER.iterdir()) <= 6_000_000


# The answers, worked out again without the tools -------------------------------------------------------------------------------

TARGETS = {
    "sum-1": 347 + 586, "sum-2": 1250 - 378, "product-1": 48 * 27, "product-2": 24 * 17, "divide-1": 1026 / 18, "divide-2": 97.5 / 13,
    "percent-1": 0.15 * 260, "percent-2": 0.65 * 120, "chain-1": 19 * 6 - 47, "chain-2": (215 + 389) / 4, "chain-3": 85 - 4 * 12.5,
    "chain-4": 140 * 2.5 + 90, "chain-5": (14 * 15 + 90) / 12 - 5, "average": (72 + 85 + 91 + 64) / 4, "area": 6.4 * 5, "power": 2**12,
    "write-1": 9 * 9, "write-2": 8 + 80,
}  # fmt: skip
SHOP = {
    "price-1": study.PRICES["soup"], "price-2": study.PRICES["juice"], "stock-1": study.STOCK["cake"], "stock-2": study.STOCK["apple"],
    "order-1": 3 * 2.9, "order-2": 12 * 0.8, "order-3": 2.1 + 3.7, "order-4": 2 * 5.4 + 5 * 1.5, "change-1": 20 - 2 * 4.6,
    "change-2": 5 - 2.9, "left-1": study.STOCK["coffee"] - 25, "value-1": 9 * 3.7, "write-3": study.PRICES["tea"],
    "write-4": study.STOCK["cake"], "long-1": (15 * 60 + 25) - (11 * 60 + 20), "long-2": (9 * 60 + 20) - 8 * 60,
    "count-1": len(study.TRAINS["Vienna", "Linz"]), "count-2": len(study.TRAINS["Linz", "Salzburg"]),
}  # fmt: skip
DAYS = {
    "weekday-1": "Sunday", "weekday-2": "Thursday", "weekday-3": "Thursday", "due-1": "Tuesday",
    "add-1": "2026-12-16", "add-2": "2027-03-12", "add-3": "2026-09-23", "due-2": "2027-07-02",
    "between-1": 106, "between-2": 68,
}  # fmt: skip

MOVED = {"add-1": ("2026-11-01", 45), "add-2": ("2027-02-10", 30), "add-3": ("2027-01-01", -100), "due-2": ("2027-05-03", 60)}


def test_the_answers_are_right() -> None:
    targets = {task.id: task.target for task in study.tasks()}
    for name, target in (TARGETS | SHOP).items():
        assert targets[name] == pytest.approx(target), name
    assert {name: targets[name] for name in DAYS} == DAYS
    for name, (start, number) in MOVED.items():
        assert datetime.date.fromordinal(datetime.date.fromisoformat(start).toordinal() + number).isoformat() == targets[name]
    for name, day in {
        "weekday-1": "2027-03-14",
        "weekday-2": "2026-12-24",
        "weekday-3": "2024-02-29",
        "due-1": "2026-11-03",
    }.items():
        assert calendar.day_name[datetime.date.fromisoformat(day).weekday()] == targets[name]
    for name, (start, end) in {"between-1": ("2026-06-01", "2026-09-15"), "between-2": ("2027-12-24", "2028-03-01")}.items():
        assert datetime.date.fromisoformat(end).toordinal() - datetime.date.fromisoformat(start).toordinal() == targets[name]
    assert (targets["cheaper-1"], study.PRICES["tea"] < study.PRICES["juice"]) == ("tea", True)
    assert (targets["cheaper-2"], study.PRICES["cake"] < study.PRICES["sandwich"]) == ("sandwich", True)
    assert (targets["enough-1"], study.STOCK["sandwich"] < 30) == ("no", True)
    assert (targets["enough-2"], study.STOCK["apple"] > 100) == ("yes", True)
    for name in ("first-1", "last-1", "after-1", "after-2", "arrive-1", "arrive-2", "name-1", "name-2"):
        assert any(targets[name] in train for trains in study.TRAINS.values() for train in trains), name


@pytest.mark.parametrize(
    ("given", "target", "right"),
    [
        ("9.6", 9.6, True), ("It is 9.60 EUR.", 9.6, True), ("12 * 0.8", 9.6, False), ("1,296", 1296, True), ("", 5, False),
        ("tea", "tea", True), ("Tea is cheaper.", "tea", True), ("teapot", "tea", False), ("juice", "tea", False),
        ("no trains.", ["unknown", "no trains"], True), ("It leaves at 09:15.", "09:15", True), ("09:150", "09:15", False),
        ("a long story about tea and a train that never ends", "tea", False),
    ],
)  # fmt: skip
def test_what_counts_as_right(given: str, target: object, right: bool) -> None:
    class Ended:
        output = given

    assert study.solved(Ended(), lab.Task("?", target=target)) is right  # type: ignore[arg-type]


def test_an_answer_that_was_not_handed_in_is_not_right() -> None:
    class Ended:
        output = None
        text = "9.6"

    assert study.solved(Ended(), lab.Task("?", target=9.6)) is False  # type: ignore[arg-type]


def test_the_calculator_takes_nothing_but_arithmetic() -> None:
    assert study.calculate.function("3 * (4 + -5) / 2") == -1.5
    for hostile in ("__import__('os')", "'a' * 9", "2 ** 9", "abs(3)", "[1][0]", "x", "True + 1"):
        with pytest.raises((ValueError, SyntaxError)):
            study.calculate.function(hostile)
