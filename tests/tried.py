"""Tests that are tried with many random generators, and JSON that a generator builds.

For data that a generator builds, Hypothesis can neither search more cleverly nor shrink what it finds, and drawing nested JSON with it
takes several times as long as the code under test.
"""

from __future__ import annotations

import functools
import inspect
import os
import random
from collections.abc import Callable, Sequence
from typing import Any

ODD: tuple[Any, ...] = (
    *(None, False, True, 0, 1, 2, 3, -1, 2**70, -(2**70), 1.5, -0.0, 1e308, float("nan"), float("inf"), float("-inf")),
    *("", "x", "é 😀", "\x00", "\ud800", "\ufeff", "\n\n", '"', "{", [], {}, [[]], {"": None}),
)


def tried(times: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test with this many random generators as its `chance`: the same ones on every run of CI, others elsewhere."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def test_all(**given: Any) -> None:
            first = 0 if "CI" in os.environ else random.randrange(2**32)
            for seed in range(first, first + times):
                try:
                    test(**given, chance=random.Random(seed))
                except Exception as error:
                    error.add_note(f"chance = random.Random({seed})")
                    raise

        signature = inspect.signature(test)
        rest = [one for name, one in signature.parameters.items() if name != "chance"]
        test_all.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return test_all

    return decorate


def odd_json(chance: random.Random, keys: Sequence[str], words: Sequence[str], depth: int = 0) -> Any:
    """JSON with these names and words in all the wrong places."""
    kind = chance.random() * (1 + depth / 3)
    if kind < 0.75:
        return {chance.choice(keys): odd_json(chance, keys, words, depth + 1) for _ in range(chance.randrange(6))}
    if kind < 0.95:
        return [odd_json(chance, keys, words, depth + 1) for _ in range(chance.randrange(4))]
    return chance.choice(ODD if chance.random() < 0.5 else words)
