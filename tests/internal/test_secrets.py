"""Which keys are remembered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentlab._internal import secrets as known_keys
from agentlab._internal.redaction import redact


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = dict(known_keys._sent)
    yield
    known_keys._sent.clear()
    known_keys.remember(before)
    known_keys._update_spellings()


def key(number: int) -> str:
    return "plain" + f"{number:012d}"


def is_known(value: str) -> bool:
    return redact(f"<{value}>") != f"<{value}>"


def test_the_least_recently_sent_key_is_forgotten_first() -> None:
    known_keys.remember([key(0), key(1)])
    for number in range(2, known_keys.MAX_REMEMBERED + 1):
        known_keys.remember([key(0)])
        known_keys.remember([key(number)])
    assert is_known(key(0)), "sent all the time"
    assert not is_known(key(1))
    assert is_known(key(2))
    assert len(known_keys._sent) == known_keys.MAX_REMEMBERED


def test_a_possible_word_is_not_remembered() -> None:
    known_keys.remember(["short1", "password", "a b c d e f g h 1", "123456789012345"])
    assert not {"short1", "password", "a b c d e f g h 1", "123456789012345"} & set(known_keys._sent)
