"""The observations in the words of the table, by the same rules for every framework, including this one.

`Cell.ran` is True if `make peers` ran the scenario. If a framework has no driver for a scenario, there is no cell here: facts
from its documentation are in `read.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.peers.driving import STEPS

Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of the table. `ran` is True if it was run, not only read."""

    text: str
    ran: bool = True

    def __str__(self) -> str:
        return self.text if self.ran else f"*{self.text}*"


def at_the_limit(seen: Facts) -> str | None:
    facts = seen.get("limit")
    if facts is None:
        return None
    if facts["came_back"] == "result":
        return "its result" + (f", with `{_name(facts['how'])}`; else an exception" if facts.get("otherwise") else "")
    kept = f"; the steps by `{facts['kept_by']}`" if facts.get("kept_by") else ""
    return f"an exception{kept}"


def which_limit(seen: Facts) -> str | None:
    facts = seen.get("which")
    if facts is None:
        return None
    limit_text = str(facts.get("says") or "")
    if facts.get("as_data"):
        return "as data" + (", with the value" if any("value=" in one for one in facts.get("met", ())) else "")
    if any(sign.isdigit() for sign in limit_text):
        return "in a sentence"
    return "only that a limit was reached" if limit_text else "no"


def joined(seen: Facts) -> str | None:
    facts = seen.get("which")
    return facts["joined"] if facts else None


def edited(seen: Facts) -> str | None:
    facts = seen.get("edit")
    if facts is None:
        return None
    if facts["searches"] <= 3:
        return "no"
    return (
        "yes, by a custom function"
        if "custom function" in facts["how"]
        else f"yes, `{facts['how'].split(' = ')[0].split(',')[0]}`"
    )


def not_reported(seen: Facts) -> str | None:
    facts = seen.get("no_usage")
    if facts is None:
        return None
    if facts["came_back"] == "exception":
        return "an exception"
    usage = facts["usage"]
    summed = (facts.get("total") or {}).get("totalTokens")
    if usage is None or usage == [None, None]:
        return "unknown" if summed is None else f"unknown; {summed} in the sum"
    return str(usage[0])


def cut_call(seen: Facts) -> str | None:
    half, bare = seen.get("cut_call"), seen.get("cut_before_arguments")
    if half is None or bare is None:
        return None
    if half["forecasts"]:
        return "run, with the partial text"
    if bare["forecasts"]:
        return "not run; run if truncated before its arguments"
    return "not run"


def cut_answer(seen: Facts) -> str | None:
    facts = seen.get("cut_text")
    if facts is None:
        return None
    text = facts.get("text") or ""
    if text.endswith("THE-REST.") and text.startswith("Night trains"):
        return "continued"
    if facts["requests"] > 1:
        return "requested again"
    return "returned truncated, with the reason" if facts.get("told") else "returned truncated"


def one_step(seen: Facts) -> str | None:
    step, fork = seen.get("step"), seen.get("fork")
    if step is None:
        return None
    if step["after_one"] != 1:
        return "no"
    return "yes; yes" if fork and fork["from"] == 1 and fork["more"] else "yes; not tried"


def killed(seen: Facts) -> str | None:
    facts = seen.get("killed")
    if facts is None:
        return None
    whole = facts["died"] == 9 and facts["before"] == 3
    return f"yes; {13 - facts['kept'] - 1} of 3 answers requested again" if whole else "no"


def within_budget(seen: Facts) -> str | None:
    facts = seen.get("sub_agent")
    if facts is None:
        return None
    if facts["requests"] > STEPS:
        return "no"
    return "yes, if you pass it on" if "given in the call" in facts["how"] else "yes"


RULES: Mapping[str, Callable[[Facts], str | None]] = {
    "limit": at_the_limit,
    "which": which_limit,
    "joined": joined,
    "edit": edited,
    "no_usage": not_reported,
    "cut_call": cut_call,
    "cut_text": cut_answer,
    "step": one_step,
    "killed": killed,
    "sub_agent": within_budget,
}
"""The rule for each row, from observations to text."""


def cells(facts: Mapping[str, Facts]) -> dict[str, Cell]:
    """Return the cells of one framework that were run. Raise ValueError if a driver failed: our failure is no observation."""
    failed = {name: one["failed"] for name, one in facts.items() if "failed" in one}
    if failed:
        raise ValueError(f"These scenarios failed to run: {failed}.")
    judged = {row: rule(facts) for row, rule in RULES.items()}
    return {row: Cell(text) for row, text in judged.items() if text is not None}


def _name(how: str) -> str:
    return how.partition("(")[0]
