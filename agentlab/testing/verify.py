"""Runs a contract (`StorageContract`, `ProviderContract`) without pytest, in a notebook for example."""

from __future__ import annotations

import inspect
import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import SkipTest

from agentlab.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Verified:
    """The outcome of each claim: the names `kept`, and `broken` and `left_out` with their reasons.

    Example:
        >>> from agentlab.storage import MemoryStorage
        >>> class Forgetful(lab.testing.StorageContract):
        ...     lasts = False
        >>> lab.testing.verify(Forgetful, make=lambda: MemoryStorage)
        Forgetful: 13 of 13 hold
          holds     a run comes back as it was given
        ...
    """

    contract: str
    kept: tuple[str, ...]
    broken: dict[str, str]
    left_out: dict[str, str]

    @property
    def ok(self) -> bool:
        """True if every claim that was checked holds, and at least one was.

        Example:
            >>> from agentlab.storage import MemoryStorage
            >>> tried = lab.testing.verify(lab.testing.StorageContract, make=lambda: MemoryStorage)
            >>> tried.ok, list(tried.broken)
            (False, ['runs outlive the storage object'])
        """
        return bool(self.kept) and not self.broken

    def __repr__(self) -> str:
        tried = len(self.kept) + len(self.broken)
        lines = [f"{self.contract}: {len(self.kept)} of {tried} hold"]
        lines += [f"  holds     {name}" for name in self.kept]
        lines += [f"  BROKEN    {name}: {reason}" for name, reason in self.broken.items()]
        lines += [f"  left out  {name}: {reason}" for name, reason in self.left_out.items()]
        return "\n".join(lines)


def verify(contract: type, **fixtures: Callable[[], Any]) -> Verified:
    """Run the tests of a contract and return the outcome of each.

    verify(StorageContract, make=lambda: MyStorage)
    verify(ProviderContract, provider=lambda: MyProvider(…), bodies=lambda: BODIES, stream=lambda: STREAM)

    A fixture is a function without arguments, called for each test that has its name as a parameter, as in pytest. Raises
    ConfigurationError for a missing one.

    Example:
        >>> from agentlab.storage import MemoryStorage
        >>> class Forgetful(lab.testing.StorageContract):
        ...     lasts = False
        >>> lab.testing.verify(Forgetful, make=lambda: MemoryStorage).ok
        True
    """
    kept: list[str] = []
    broken: dict[str, str] = {}
    left_out: dict[str, str] = {}
    names = [name for kind in reversed(contract.__mro__) for name in vars(kind) if name.startswith("test_")]
    for name in dict.fromkeys(names):
        claim = name.removeprefix("test_").replace("_", " ")
        test = getattr(contract(), name)
        wanted = list(inspect.signature(test).parameters)
        missing = [fixture for fixture in wanted if fixture not in fixtures]
        if missing:
            raise ConfigurationError(
                f"verify({contract.__name__}) needs {missing[0]}=, a function without arguments: `{name}` uses it."
            )
        try:
            with _quiet():
                test(**{fixture: fixtures[fixture]() for fixture in wanted})
        except SkipTest as reason:
            left_out[claim] = str(reason)
        except Exception as error:
            broken[claim] = _error_line(error)
        else:
            kept.append(claim)
    return Verified(contract.__name__, tuple(kept), broken, left_out)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence agentlab's logs: contracts feed nonsense to what they test."""
    logger = logging.getLogger("agentlab")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _error_line(error: Exception) -> str:
    """Return the error's message in one line, else the line of the test that raised it."""
    line = traceback.extract_tb(error.__traceback__)[-1].line or ""
    words = str(error).partition("\n")[0] or line
    return words if isinstance(error, AssertionError) else f"{type(error).__name__}: {words}"
