"""Holds a class of tests against something, without pytest: what `StorageContract` and `ProviderContract` ask, in a notebook."""

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
    """What became of each claim: `kept` by name, `broken` and `left_out` with what was said of it.

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
        """Whether every claim that was tried holds, and at least one was.

        Example:
            >>> from agentlab.storage import MemoryStorage
            >>> tried = lab.testing.verify(lab.testing.StorageContract, make=lambda: MemoryStorage)
            >>> tried.ok, list(tried.broken)
            (False, ['what was written lasts'])
        """
        return bool(self.kept) and not self.broken

    def __repr__(self) -> str:
        tried = len(self.kept) + len(self.broken)
        lines = [f"{self.contract}: {len(self.kept)} of {tried} hold"]
        lines += [f"  holds     {name}" for name in self.kept]
        lines += [f"  BROKEN    {name}: {said}" for name, said in self.broken.items()]
        lines += [f"  left out  {name}: {said}" for name, said in self.left_out.items()]
        return "\n".join(lines)


def verify(contract: type, **fixtures: Callable[[], Any]) -> Verified:
    """Run the tests of a contract and tell what became of each.

    verify(StorageContract, make=lambda: MyStorage)
    verify(ProviderContract, provider=lambda: MyProvider(…), bodies=lambda: BODIES, stream=lambda: STREAM)

    A fixture is a function without arguments, called anew for each test that has its name as an argument, as pytest would. Raises
    ConfigurationError for one that is missing.

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
                f"verify({contract.__name__}) needs {missing[0]}=, a function without arguments: `{name}` asks for it."
            )
        try:
            with _quiet():
                test(**{fixture: fixtures[fixture]() for fixture in wanted})
        except SkipTest as reason:
            left_out[claim] = str(reason)
        except Exception as error:
            broken[claim] = _said(error)
        else:
            kept.append(claim)
    return Verified(contract.__name__, tuple(kept), broken, left_out)


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing logged by agentlab meanwhile: a contract feeds nonsense to what it tests, which tells of it."""
    logger = logging.getLogger("agentlab")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _said(error: Exception) -> str:
    """The error in one line: what it says, else the line of the test that it comes from."""
    line = traceback.extract_tb(error.__traceback__)[-1].line or ""
    words = str(error).partition("\n")[0] or line
    return words if isinstance(error, AssertionError) else f"{type(error).__name__}: {words}"
