"""A script that answers with something else says what to write."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

import agentlab as lab
from agentlab.errors import ConfigurationError
from agentlab.testing import ScriptedProvider, say


async def later(request: lab.ModelRequest, index: int) -> lab.ModelResponse:
    return say("Done.")


ANSWERS: dict[str, tuple[Any, str]] = {
    "a dict": ([{"text": "hi"}], "The script's answer 1 is {'text': 'hi'}: write a text, say(…), call(…)"),
    "nothing": ([None], "The script's answer 1 is None: write a text, say(…), call(…)"),
    "a forgotten return": (lambda request, index: None, "The script's answer 1 is None: write"),
    "a class of exceptions": ([TimeoutError], "The script's answer 1 is <class 'TimeoutError'>: write"),
    "an async script": (later, "The script's answer 1 is <coroutine object later"),
    "a number": (5, "ScriptedProvider(5): pass a list of answers, or a function."),
    "a text": ("hi", "ScriptedProvider('hi'): pass a list of answers, or a function."),
}


@pytest.mark.parametrize(("script", "message"), ANSWERS.values(), ids=ANSWERS)
def test_a_script_of_other_values_is_an_error_that_says_what_to_write(script: Any, message: str) -> None:
    async def ended() -> lab.RunResult:
        return await lab.Agent(ScriptedProvider(script)).run("?")

    with pytest.raises(ConfigurationError, match=re.escape(message)):
        asyncio.run(ended())
