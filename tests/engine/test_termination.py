"""The decision table: what follows from a response."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlab.engine.termination import DecisionContext, is_cut_off
from agentlab.engine.termination import decide as decide_on
from agentlab.limits.reading import Action, Decision
from agentlab.model.finish_reasons import FinishReason, StopReason
from agentlab.model.messages import ToolCall
from agentlab.model.responses import ModelResponse
from agentlab.testing import say

WHOLE = ToolCall("1", "look", '{"q": "x"}')
HALF = ToolCall("2", "look", '{"q": "x')
OPEN = ToolCall("3", "look", '{"q": "x"}', closed=False)
WRONG = ToolCall("4", "look", '{"q": x}')
BARE = ToolCall("5", "look", "")


def decide(response: ModelResponse) -> Decision:
    return decide_on(response.signal, DecisionContext(response))


R, A, S = FinishReason, Action, StopReason
TABLE = {
    "error": (R.ERROR, "text", [], A.ABORT, S.ERROR),
    "error-with-calls": (R.ERROR, "", [WHOLE], A.ABORT, S.ERROR),
    "filtered": (R.CONTENT_FILTERED, "text", [], A.ABORT, S.CONTENT_FILTERED),
    "filtered-with-calls": (R.CONTENT_FILTERED, "", [WHOLE], A.ABORT, S.CONTENT_FILTERED),
    "cancelled": (R.CANCELLED, "text", [], A.ABORT, S.CANCELLED),
    "paused": (R.PAUSED, "text", [], A.RESUME, None),
    "paused-with-calls": (R.PAUSED, "", [WHOLE], A.EXECUTE_TOOLS, None),
    "paused-with-half-a-call": (R.PAUSED, "", [HALF], A.ABORT, S.TRUNCATED),
    "context-window": (R.CONTEXT_WINDOW_EXCEEDED, "text", [], A.ABORT, S.TRUNCATED),
    "context-window-with-calls": (R.CONTEXT_WINDOW_EXCEEDED, "", [WHOLE], A.ABORT, S.TRUNCATED),
    "cap": (R.MAX_TOKENS, "text", [], A.ABORT, S.TRUNCATED),
    "cap-with-whole-calls": (R.MAX_TOKENS, "", [WHOLE, WHOLE], A.EXECUTE_TOOLS, None),
    "cap-with-half-a-call": (R.MAX_TOKENS, "", [WHOLE, HALF], A.ABORT, S.TRUNCATED),
    "cap-with-an-open-block": (R.MAX_TOKENS, "", [OPEN], A.ABORT, S.TRUNCATED),
    "cap-with-no-arguments": (R.MAX_TOKENS, "", [BARE], A.ABORT, S.TRUNCATED),
    "cap-with-wrong-json": (R.MAX_TOKENS, "", [WRONG], A.EXECUTE_TOOLS, None),
    "calls": (R.TOOL_CALLS, "", [WHOLE], A.EXECUTE_TOOLS, None),
    "calls-without-arguments": (R.TOOL_CALLS, "", [BARE], A.EXECUTE_TOOLS, None),
    "calls-with-wrong-json": (R.TOOL_CALLS, "", [WRONG], A.EXECUTE_TOOLS, None),
    "calls-with-half-a-call": (R.TOOL_CALLS, "", [HALF], A.ABORT, S.TRUNCATED),
    "calls-under-stop": (R.END_TURN, "text", [WHOLE], A.EXECUTE_TOOLS, None),
    "calls-under-unknown": (R.UNKNOWN, "", [WHOLE], A.EXECUTE_TOOLS, None),
    "calls-announced-and-none-there": (R.TOOL_CALLS, "", [], A.ABORT, S.ERROR),
    "calls-announced-and-text-there": (R.TOOL_CALLS, "text", [], A.COMPLETE, S.COMPLETED),
    "end": (R.END_TURN, "text", [], A.COMPLETE, S.COMPLETED),
    "end-without-text": (R.END_TURN, "", [], A.COMPLETE, S.COMPLETED),
    "stop-sequence": (R.STOP_SEQUENCE, "text", [], A.COMPLETE, S.COMPLETED),
    "unknown-with-text": (R.UNKNOWN, "text", [], A.COMPLETE, S.COMPLETED),
    "unknown-and-empty": (R.UNKNOWN, "", [], A.ABORT, S.ERROR),
}


@pytest.mark.parametrize(("reason", "text", "calls", "action", "stop_reason"), TABLE.values(), ids=TABLE.keys())
def test_every_row_of_the_decision_table(
    reason: FinishReason, text: str, calls: list[ToolCall], action: Action, stop_reason: StopReason | None
) -> None:
    decision = decide(say(text, finish=reason, calls=calls))
    assert (decision.action, decision.stop_reason) == (action, stop_reason)
    assert decision.reason
    assert (decision.suggestion is not None) is (action in (Action.ABORT, Action.COMPLETE))
    assert (decision.suggestion == "stop") is (action is Action.COMPLETE)


def test_every_finish_reason_is_in_the_table() -> None:
    assert {row[0] for row in TABLE.values()} == set(FinishReason)


def test_the_providers_own_finish_reason_is_reported() -> None:
    response = say(finish=FinishReason.CONTENT_FILTERED)
    explained = replace(response, signal=replace(response.signal, message="Blocked for SAFETY."))
    assert decide(explained).reason == "Blocked for SAFETY."


@given(st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.text(max_size=5), st.none()), max_size=3), st.data())
def test_every_proper_prefix_of_arguments_is_cut_off(arguments: dict[str, object], data: st.DataObject) -> None:
    import json

    text = json.dumps(arguments)
    length = data.draw(st.integers(1, len(text) - 1))
    assert not is_cut_off(ToolCall("1", "f", text))
    assert is_cut_off(ToolCall("1", "f", text[:length]))
    assert is_cut_off(ToolCall("1", "f", text, closed=False))
