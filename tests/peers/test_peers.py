"""The table of features matches the observations, and agentlab's own column is true of the current code."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from tests.benchmarks.peers.setup import PACKAGES, REQUIREMENTS
from tests.peers.drivers import agentlab_
from tests.peers.driving import observe
from tests.peers.judged import RULES, cells
from tests.peers.read import BETTER, NAMES, READ, ROWS
from tests.peers.server import as_events, as_response, running, scenarios
from tests.peers.table import PAGE, README, cell, page, readme_part, recorded, with_part

RECORD = recorded()
BOUNDS = {"columns": 7, "rows": 14}


def test_the_readme_has_the_table_of_observations() -> None:
    readme = README.read_text(encoding="utf-8")
    assert with_part(readme, readme_part(RECORD)) == readme, "run make peers ARGS=--write"


def test_the_page_has_all_observations() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(RECORD), "run make peers ARGS=--write"


def test_agentlab_does_what_its_column_says() -> None:
    with running() as root:
        facts = asyncio.run(observe("agentlab", root, agentlab_.SCENARIOS))
    assert json.loads(json.dumps(facts)) == RECORD["peers"]["agentlab"]["facts"]


def test_the_observed_versions_are_the_pinned_ones() -> None:
    pinned = dict(re.findall(r"^([\w-]+)(?:\[\w+\])?==(\S+)$", REQUIREMENTS.read_text(), re.MULTILINE))
    pinned |= json.loads((PACKAGES / "package.json").read_text())["dependencies"]
    observed = {name: version for peer in RECORD["peers"].values() for name, version in peer["versions"].items()}
    assert observed == {name: pinned[name] for name in observed}


def test_every_cell_is_there_and_the_table_is_small_enough_to_read() -> None:
    for who in NAMES:
        for row in ROWS:
            assert cell(RECORD, who, row).text
        assert not READ[who].keys() - ROWS.keys()
        assert not READ[who].keys() & cells(RECORD["peers"][who]["facts"]).keys(), "observed cells are not documented as read"
    assert set(RULES) <= set(ROWS)
    assert set(BETTER) == set(NAMES) - {"agentlab"}, "each has a line on its strengths"
    rows = [line for line in readme_part(RECORD).splitlines() if line.startswith("|")]
    assert len(rows) - 2 <= BOUNDS["rows"] and rows[1].count("---") <= BOUNDS["columns"]


def test_a_failed_driver_gives_no_cell() -> None:
    with pytest.raises(ValueError, match="limit"):
        cells({"limit": {"failed": "ImportError: no such name"}})


def test_executing_a_cut_tool_call_is_reported() -> None:
    """The rule is the same for all, so it must be able to report any framework, including this one."""
    facts = RECORD["peers"]["agentlab"]["facts"]
    ran = {**facts, "cut_call": {**facts["cut_call"], "forecasts": ["Gr"]}, "no_usage": {**facts["no_usage"], "usage": [0, 0]}}
    assert cells(ran)["cut_call"].text == "run, with the partial text"
    assert cells(ran)["no_usage"].text == "0"


def test_both_wires_have_the_same_answers() -> None:
    half = scenarios()["cut_call"][0]
    response = as_response(half)
    (call,) = response["output"]
    assert call["arguments"] == half["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    assert response["status"] == "incomplete" and response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert as_events(response).rstrip().splitlines()[-2] == b"event: response.incomplete"
    assert "usage" not in as_response(scenarios()["no_usage"][0])
