"""Tab completes what agentlab takes as text: `provider:model` in `lab.Agent("…")` and in `%%agent`, a provider in `lab.Provider("…")`.

A matcher of IPython's second kind (https://ipython.readthedocs.io/en/stable/api/generated/IPython.core.completer.html): it is asked at
every completion, so it looks at the text before it does anything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

import agentlab
from agentlab.agent import Agent
from agentlab.magics import models
from agentlab.magics.options import FLAGS
from agentlab.tools import Tool

_CALLED = re.compile(r"""(?P<what>[A-Za-z_][\w.]*)\(\s*(?:(?:model|name)\s*=\s*)?(?P<mark>["'])(?P<begun>[^"'\n]*)\Z""")
"""The first argument of a call, a text that is not closed."""
_MODEL = re.compile(r"""(?P<before>[^\n]*?)\bmodel\s*=\s*(?P<mark>["'])(?P<begun>[^"'\n]*)\Z""")
_PROVIDER_BEFORE = re.compile(r"""\bProvider\(\s*["']([^"'\n]+)["'][^()\n]*\Z""")
_TAKE_A_MODEL = ("Agent", "with_model")
_USUAL = ("lab", "agentlab")
_MAGIC = re.compile(r"\A\s*%%agent(?P<words>[ \t][^\n]*)\Z")
_ATTRIBUTE = "_agentlab_matcher"


def register(shell: Any) -> None:
    """Add the matcher to this IPython."""
    if not hasattr(shell, _ATTRIBUTE):
        setattr(shell, _ATTRIBUTE, matcher(shell.user_ns))
        shell.Completer.custom_matchers.append(getattr(shell, _ATTRIBUTE))


def unregister(shell: Any) -> None:
    """Take it away again."""
    ours = shell.__dict__.pop(_ATTRIBUTE, None)
    if ours in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.remove(ours)


def matcher(names: Mapping[str, Any]) -> Callable[[CompletionContext], SimpleMatcherResult]:
    """The matcher for these variables."""

    @context_matcher(identifier="agentlab.models")  # type: ignore[untyped-decorator]
    def agentlab_models(context: CompletionContext) -> SimpleMatcherResult:
        lines = context.full_text.split("\n")[: context.cursor_line + 1]
        before = "\n".join([*lines[:-1], lines[-1][: context.cursor_position]])
        begun, found = completed(before, names)
        return {
            "completions": [SimpleCompletion(one, type="agentlab") for one in found],
            "matched_fragment": begun,
            "suppress": bool(found),
            "ordered": True,
        }

    made: Callable[[CompletionContext], SimpleMatcherResult] = agentlab_models
    return made


def completed(before: str, names: Mapping[str, Any]) -> tuple[str, list[str]]:
    """What is begun in front of the cursor, and what it can become; nothing where agentlab has nothing to say."""
    if (line := _MAGIC.match(before)) is not None:
        return _in_the_magic(line["words"], names)
    if (call := _CALLED.search(before)) is not None:
        kind = _ours(call["what"], names, before)
        if kind == "Provider":
            return call["begun"], [one for one in models.providers() if one.startswith(call["begun"])]
        return call["begun"], models.fitting(call["begun"], names) if kind in _TAKE_A_MODEL else []
    if (named := _MODEL.search(before)) is not None:
        begun = named["begun"]
        provider = _PROVIDER_BEFORE.search(before[: named.start("begun") - 1])
        if provider is not None:
            prefix = f"{provider[1]}:"
            return begun, [one.removeprefix(prefix) for one in models.fitting(prefix + begun, names)]
        if any(word in before for word in (".fork(", "Agent(")):
            return begun, models.fitting(begun, names)
    return "", []


def _ours(path: str, names: Mapping[str, Any], before: str) -> str:
    """The last word of `lab.Agent`, where that is agentlab's; before the import has been run, as far as the text says so."""
    *heads, last = path.split(".")
    if last == "with_model":
        return last
    if not heads:
        return last if names.get(last, getattr(agentlab, last, None)) is getattr(agentlab, last, names) else ""
    if len(heads) != 1:
        return ""
    known = names.get(heads[0])
    is_ours = known is agentlab or (known is None and (heads[0] in _USUAL or f"agentlab as {heads[0]}" in before))
    return last if is_ours else ""


def _in_the_magic(words: str, names: Mapping[str, Any]) -> tuple[str, list[str]]:
    *earlier, last = re.split(r"[ \t=]", words)
    option = earlier[-1] if earlier else ""
    if last.startswith("-"):
        return last, [flag for flag in FLAGS if flag.startswith(last)]
    if option == "--agent":
        return last, _variables(names, last, lambda value: isinstance(value, Agent))
    if option == "--tools":
        begun = last.rpartition(",")[2]
        return begun, _variables(names, begun, _is_a_tool)
    if option.startswith("--") and option != "--stream":
        return "", []  # a path, which IPython completes; a number; code
    return last, models.fitting(last, names)


def _variables(names: Mapping[str, Any], begun: str, fits: Callable[[object], bool]) -> list[str]:
    mine = {name: value for name, value in tuple(names.items()) if name.startswith(begun) and not name.startswith("_")}
    return sorted(name for name, value in mine.items() if fits(value))


def _is_a_tool(value: object) -> bool:
    return isinstance(value, Tool) or (callable(value) and getattr(value, "__module__", None) == "__main__")
