"""Finds conditions that can never be met: for a tool that the agent does not have, a finish reason that no provider sends, a total that
is above the budget's limit, or with a condition that excludes them.

`never_met(settings, agent)` checks a whole RunSettings, `why_never(condition, agent)` a single condition or combination. Both report
nothing in doubt: with middleware, with a provider's own tools, and with servers whose finish reasons are not documented.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agentlab._internal.names import did_you_mean
from agentlab._internal.redaction import redact
from agentlab.errors import AgentlabWarning
from agentlab.limits.budget import TOTAL_OF, Budget, DefaultTurns
from agentlab.limits.combinators import AllOf, AnyOf, Not, Off, StopCondition
from agentlab.limits.conditions import StepCountIs
from agentlab.limits.fields import Choices, known_words, limit_fields
from agentlab.limits.settings import RunSettings
from agentlab.model.finish_reasons import FinishReason
from agentlab.providers.detectors import finish_words
from agentlab.providers.registry import capabilities
from agentlab.records.history import RunHistory

_VENDORS = ("openai", "openai-responses", "anthropic", "gemini", "bedrock")
"""Vendors whose finish reasons are all known. Others pass on those of another vendor."""
_ERROR_CODE = re.compile(r"(?i)error|limit|exceed|exhaust|overload|throttl|unavailable|timeout|denied|invalid|^\d+$")
"""Error codes, such as `overloaded_error`, are finish reasons too, and no table lists them all."""


def never_met(settings: RunSettings, agent: Any, history: RunHistory | None = None) -> tuple[str, ...]:
    """Return one remark for each condition of `stop` and each terminating tool that a run of the agent can never reach.

    A remark gives the reason, the effect on the whole condition, and a correction. `history` has the steps that a branch begins with.
    """
    tree = settings.stop
    remarks: list[str] = []
    if tree is not None:
        all_of_it = list(_conditions(tree))  # a user's condition may be unhashable
        dead = {id(one): why for one in all_of_it if (why := why_never(one, agent, history, settings.budget))}
        whole = _constant(tree, dead)
        means = {
            None: "The other conditions still count.",
            False: "The stop condition as a whole can never be met." if tree.parts else "",
            True: "The stop condition as a whole is met after the first step.",
        }[whole]
        remarks = [f"{one!r} can never be met: {dead[id(one)]} {means}".rstrip() for one in all_of_it if id(one) in dead]
    if settings.terminating is not None and _knows_its_tools(agent):
        missing = [name for name in settings.terminating.tools if name not in agent.tools]
        others = len(missing) < len(settings.terminating.tools)
        means = "The other terminating tools still count." if others else "No call can end the run."
        remarks += [f"The terminating tool {name!r} can never be called: {_no_tool([name], agent)} {means}" for name in missing]
    return tuple(dict.fromkeys(map(redact, remarks)))


def _conditions(tree: StopCondition) -> Iterator[StopCondition]:
    """Yield a tree and all conditions in it, without those that are turned off."""
    if not tree.is_off:
        yield tree
        for part in tree.parts:
            yield from _conditions(part)


def why_never(condition: StopCondition, agent: Any, history: RunHistory | None = None, budget: Budget | None = None) -> str:
    """Return why a condition can never be met in a run of the agent, and a correction; "" if it may be met."""
    if condition.parts:
        return _contradiction(condition) if isinstance(condition, AllOf) else ""
    kind, words = known_words(condition)
    if not (words or condition.total) or (history is not None and condition.read(history).met):
        return ""
    if budget is not None and condition.total is not None:
        return _over_budget(condition, budget)
    if kind == "tools" and _knows_its_tools(agent):
        answer = "" if agent.output_type is None else agent.output_type.spec.name
        return "" if any(name in agent.tools or name == answer for name in words) else _no_tool(words, agent)
    if kind == "finish reasons" and not agent.middleware:
        whys = [_no_reason(str(reason), agent.model) for reason in words]
        return whys[0] if all(whys) else ""
    return ""


def warn_of(remarks: Iterable[str], stacklevel: int) -> None:
    """Emit each remark as a warning. `stacklevel` 1 is the caller of this function."""
    for remark in remarks:
        warnings.warn(remark, AgentlabWarning, stacklevel=stacklevel + 1)


def _constant(tree: StopCondition, dead: Mapping[int, str]) -> bool | None:
    """Return the constant answer of a tree if the conditions with these ids are never met; None if the answer varies."""
    if not tree.parts or id(tree) in dead:
        return False if id(tree) in dead else None
    parts = [_constant(part, dead) for part in tree.parts if not part.is_off]
    if isinstance(tree, Not | Off):
        return None if not parts or parts[0] is None else not parts[0]
    deciding = isinstance(tree, AnyOf)
    if deciding in parts:
        return deciding
    return not deciding if parts and None not in parts else None


# Totals -----------------------------------------------------------------------------------------------------------------------


def _limit_of(condition: StopCondition) -> Any:
    """Return the limit of a condition that compares a number with it; None for any other condition."""
    limits = [getattr(condition, field.name) for field in limit_fields(condition)]
    return limits[0] if len(limits) == 1 and not isinstance(limits[0], Choices) else None


def _over_budget(condition: StopCondition, budget: Budget) -> str:
    """Return why a total cannot be reached within the budget; "" if it can. The default of max_turns yields to a larger count."""
    limit = _limit_of(condition)
    for name, total in TOTAL_OF.items():
        most = getattr(budget, name)
        if total != condition.total or most is None or isinstance(most, DefaultTurns) or limit is None or limit <= most:
            continue
        unless = "" if total == "steps" else ", unless one call exceeds both"
        return f"{name}={most} of the budget ends the run first{unless}."
    return ""


def _contradiction(tree: AllOf) -> str:
    """Return why the parts of a combination exclude each other; "" if they do not."""
    parts = [part for part in _flat(tree) if not part.is_off]
    refused = [part.parts[0] for part in parts if isinstance(part, Not)]
    for part in parts:
        for other in refused:
            if _implies(part, other):
                return f"whenever {part!r} is met, {Not(other)!r} is not."
    return ""


def _flat(tree: StopCondition) -> Iterator[StopCondition]:
    """Yield the conditions that must all be met."""
    for part in tree.parts if isinstance(tree, AllOf) else (tree,):
        if part is tree:
            yield part
        else:
            yield from _flat(part)


def _implies(one: StopCondition, other: StopCondition) -> bool:
    """True if the other condition is met whenever this one is: it is the same one, or has a lower limit or further words."""
    if one == other:
        return True
    if type(one) is not type(other) or type(one).__module__ != StepCountIs.__module__:
        return False
    least, limit = _limit_of(other), _limit_of(one)
    (_, words), (_, others) = known_words(one), known_words(other)
    if limit is None or least is None:
        return bool(words) and not isinstance(words, Choices) and set(words) <= set(others)
    return bool(limit >= least) and set(words) == set(others)


# Tools ------------------------------------------------------------------------------------------------------------------------


def _knows_its_tools(agent: Any) -> bool:
    """True if only the agent's tools can be called: no middleware adds any, and no option enables a provider's tools."""
    return not agent.middleware and not any(re.search("(?i)tool|mcp|function", name) for name in agent.options)


def _no_tool(names: Iterable[str], agent: Any) -> str:
    names = list(names)
    hint = next(filter(None, (did_you_mean(name, agent.tools) for name in names)), "")
    missing = " or ".join(map(repr, names))
    return f"the agent has no tool {missing}.{hint} Its tools: {', '.join(agent.tools) or 'none'}."


# Reasons ----------------------------------------------------------------------------------------------------------------------


def _no_reason(word: str, model: Any) -> str:
    """Return why no response of the model ends for this reason; "" if one may."""
    if word in set(FinishReason) or _ERROR_CODE.search(word) or not _is_built_in(model):
        return ""
    words = _words()
    vendors = {vendor: words[vendor] for vendor in _VENDORS if word in words[vendor]}
    if vendors and model.name in _VENDORS and model.name not in vendors and _is_at_home(model.provider):
        vendor, theirs = next(iter(vendors.items()))
        instead = "" if theirs[word] is FinishReason.UNKNOWN else f" Write {str(theirs[word])!r}, which works for every provider."
        return f"{word!r} is a finish reason of {vendor}, which {model.name} does not send.{instead}"
    known = {*map(str, FinishReason), *map(str, finish_words()), *(one for table in words.values() for one in table)}
    if word in known or word.lower() in known:
        return ""
    hint = did_you_mean(word, sorted(known))
    return f"no provider sends {word!r}.{hint} Known are {', '.join(FinishReason)}, and the providers' own finish reasons."


@functools.cache
def _words() -> Mapping[str, Mapping[str, FinishReason]]:
    """Return the finish reasons by provider and word, from the tables of their wires."""
    tables = {name: can.tables for name, can in capabilities().items()}
    return {name: {str(word): reason for table in of for word, reason in table.reasons.items()} for name, of in tables.items()}


def _is_built_in(model: Any) -> bool:
    """True if agentlab parses the model's answers, so that their finish reasons are known."""
    return type(getattr(model, "provider", model)).__module__.startswith("agentlab.")


def _is_at_home(provider: Any) -> bool:
    """True if requests go to the vendor's own server. A proxy may pass on the finish reasons of other vendors."""
    address = next((field for field in dataclasses.fields(provider) if field.name == "base_url"), None)
    return address is None or address.default == provider.base_url
