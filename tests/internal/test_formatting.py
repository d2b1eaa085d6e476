"""Numbers in sentences: measured values are rounded, limits are shown as they were set, and the data are unchanged."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentlab as lab
from agentlab.limits.reading import Reading
from agentlab.testing import ScriptedProvider, call

READ: list[tuple[str, Any, Any, str]] = [
    ("timeout", 3.102248117000272, 3.0, "timeout 3.1 s of 3 s"),
    ("timeout", 0.05123456, 0.05, "timeout 0.0512 s of 0.05 s"),
    ("timeout", 0.000051234, 0.0000001, "timeout 0.0000512 s of 0.0000001 s"),
    ("timeout", 125.34567, 120.0, "timeout 2 min 5 s of 2 min"),
    ("timeout", 60.000001, 60, "timeout 1 min of 1 min"),
    ("timeout", 7300.2, 7200.0, "timeout 2 h 1 min 40 s of 2 h"),
    ("timeout", 0.0, 1.0, "timeout 0 s of 1 s"),
    ("max_cost", Decimal("0.0300"), Decimal("0.025"), "max_cost $0.03 of $0.025"),
    ("MaxCost", Decimal("0.014346123456"), Decimal("0.050"), "MaxCost $0.014346 of $0.05"),
    ("MaxCost", Decimal("0.0299999999"), Decimal("0.03"), "MaxCost $0.029999 of $0.03"),
    ("MaxCost", Decimal("0.00000012345"), Decimal("1E-7"), "MaxCost $0.000000123 of $0.0000001"),
    ("MaxCost", Decimal("1234.5"), Decimal(1000), "MaxCost $1,234.50 of $1,000.00"),
    ("MaxCost", Decimal(0), Decimal("0.1"), "MaxCost $0.00 of $0.10"),
    ("max_tokens", 10050, 10_000, "max_tokens 10050 of 10000"),
    ("Doubt", 0.1 + 0.2, 0.25, "Doubt 0.3 of 0.25"),
    ("Doubt", 123456.789, 99999.5, "Doubt 123457 of 99999.5"),
    ("Doubt", 1.5e-9, None, "Doubt 0.0000000015"),
    ("Doubt", float("inf"), None, "Doubt inf"),
    ("Doubt", True, None, "Doubt True"),
    ("Doubt", "0.30000000000000004", None, "Doubt 0.30000000000000004"),
    ("Doubt", Decimal("2.50"), None, "Doubt 2.5"),
    ("max_tokens", None, 10, "max_tokens unknown of 10"),
]


@pytest.mark.parametrize(("name", "value", "limit", "expected"), READ)
def test_a_reading_is_formatted_without_meaningless_digits(name: str, value: Any, limit: Any, expected: str) -> None:
    reading = Reading(name, value, limit)
    assert str(reading) == expected
    assert (reading.value, reading.limit) == (value, limit)


NUMBERS = st.integers(-(10**15), 10**15) | st.floats(-1e15, 1e15) | st.decimals(-(10**15), 10**15)


@given(
    st.sampled_from(["timeout", "max_cost", "MaxCost", "Doubt"]),
    st.none() | st.booleans() | NUMBERS | st.text(),
    st.none() | st.booleans() | NUMBERS | st.text(),
)
def test_every_reading_can_be_formatted(name: str, value: Any, limit: Any) -> None:
    assert str(Reading(name, value, limit)).startswith(name)


@pytest.mark.usefixtures("fake_time")
@pytest.mark.parametrize("limit", [0.2, 0.25])
def test_a_timeout_message_has_few_digits_and_the_value_all_of_them(limit: float) -> None:
    @lab.tool
    async def wait() -> str:
        """Waits."""
        await asyncio.sleep(0.15)
        return "waited"

    async def main() -> lab.RunResult:
        run = lab.Agent(ScriptedProvider([call("wait")] * 9), tools=[wait]).run("go", budget=lab.Budget(timeout=limit))
        return await run

    result = asyncio.run(main())
    assert result.stop_reason == "timeout"
    assert result.detail == f"Budget reached: timeout {limit} s."


def test_a_time_limit_reached_between_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> lab.RunResult:
        run = lab.Agent(ScriptedProvider(["done"])).run("go", budget=lab.Budget(timeout=3))
        monkeypatch.setattr(type(run.timeline.clock), "elapsed_s", lambda clock: 3.102248117000272)
        return await run

    assert asyncio.run(main()).detail == "Budget reached: timeout 3.1 s of 3 s."
