"""The recordings that come with agentlab, for `lab.replay("sample:trip")`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from agentlab._internal.names import did_you_mean
from agentlab.errors import FixtureNotFoundError

PREFIX = "sample:"

_ABOUT = MappingProxyType(
    {
        "board": "an image in the prompt, tools of an MCP server, a typed answer; written by hand, for openai",
        "essay": "an essay cut off at a cap of 80 output tokens, and one with 500; written by hand, for openai, anthropic, gemini",
        "local": "13 kinds of ends of a real model, Gemma 3 270M; recorded from llama.cpp's server",
        "question": "one question, one tool call, whole and streamed; written by hand, for six providers",
        "runaway": "a search for an umbrella that is not there; written by hand, for openai, anthropic, gemini",
        "scout": "a planner that calls a second agent; written by hand, for openai",
        "trip": "a day trip planned with three tools; written by hand, for openai, anthropic, gemini",
    }
)


def samples() -> Mapping[str, str]:
    """Return the names of the recordings that come with agentlab, each with what it shows and where it comes from.

    Example:
        >>> list(lab.samples())
        ['board', 'essay', 'local', 'question', 'runaway', 'scout', 'trip']
        >>> lab.samples()["trip"]
        'a day trip planned with three tools; written by hand, for openai, anthropic, gemini'
        >>> with lab.replay("sample:trip"):
        ...     result = await agent.run(TASK)
    """
    return _ABOUT


def sample(name: str) -> Path:
    """Return the folder of a recording. Raises FixtureNotFoundError for an unknown name."""
    if name not in _ABOUT:
        guess = did_you_mean(PREFIX + name, [PREFIX + one for one in _ABOUT], 0.8)
        raise FixtureNotFoundError(f"{PREFIX + name!r} is not one of the samples: {', '.join(_ABOUT)}.{guess}")
    package = Path(__file__).parents[1]
    installed = package / "samples"
    return (installed if installed.exists() else package.parent / "fixtures") / name  # in a clone, they are beside the package
