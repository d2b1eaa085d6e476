"""Errors and warnings redact their message and survive pickling."""

from __future__ import annotations

import pickle

import pytest

from agentlab import errors


@pytest.mark.parametrize(
    "kind", [errors.AgentlabError, errors.FixtureNotFoundError, errors.MalformedCassetteError, errors.AgentlabWarning]
)
def test_errors_and_warnings_redact_their_message(kind: type[Exception]) -> None:
    error = kind(f"sent sk-{'a1' * 12}\x1b[31m")
    assert str(error) == "sent REDACTED\N{REPLACEMENT CHARACTER}[31m"
    assert pickle.loads(pickle.dumps(error)).args == error.args


def test_an_error_is_pickled_with_its_attributes() -> None:
    error = pickle.loads(pickle.dumps(errors.ProviderStatusError("no", status=429, retry_after_s=2.0)))
    assert (str(error), error.status, error.retry_after_s) == ("no", 429, 2.0)
