"""Steps, settings and events as text and back: equal for all values, and reported if that is impossible."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar, get_args

import pytest
from engine.builders import step
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentlab.errors import ConfigurationError, StoredError
from agentlab.limits.budget import Budget
from agentlab.limits.combinators import AllOf, AnyOf, Custom, Not, Off, StopCondition
from agentlab.limits.conditions import FinishReasonIs, HasToolCall, MaxCost, MaxTokensUsed, StepCountIs
from agentlab.limits.policies import ContinuationPolicy, TerminatingTools
from agentlab.limits.reading import Action, Decision, Reading, Remaining
from agentlab.limits.settings import RunSettings
from agentlab.model.finish_reasons import Confidence, FinishReason, StopReason, TerminationSignal
from agentlab.model.messages import NativeContent, Stop, ToolCall, ToolResult
from agentlab.model.responses import Hole, ModelResponse, RateLimit
from agentlab.model.usage import Cost, CostSource, Usage, UsageSource
from agentlab.records import events
from agentlab.records.history import RunHistory
from agentlab.records.step import ChildUse, ModelCall, Seam, StepResult
from agentlab.storage import codec

T = TypeVar("T")


def decode(kind: type[T], text: str) -> T:
    return codec.from_jsonable(kind, json.loads(text))


# Values in a step ----------------------------------------------------------------------------------------------------------------

texts = st.text(st.characters(), max_size=12) | st.just("half \ud83d")
counts = st.none() | st.integers(0, 2**70)
seconds = st.floats(0, 1e6)
money = st.decimals(0, 10**6, allow_nan=False, places=7)
jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
given_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
errors = st.none() | st.builds(StoredError, texts, texts)
usages = st.builds(Usage, counts, counts, counts, counts, counts, st.sampled_from(UsageSource))
costs = st.builds(Cost, st.none() | money, st.sampled_from(CostSource))
signals = st.builds(
    TerminationSignal,
    st.sampled_from(FinishReason),
    st.sampled_from(Confidence),
    texts,
    texts,
    st.none() | texts | st.integers(),
    texts,
    st.booleans(),
    st.dictionaries(texts, st.none() | st.integers() | texts, max_size=2),
)
tool_calls = st.builds(ToolCall, texts, texts, texts, st.booleans())
rate_limits = st.none() | st.builds(RateLimit, counts, counts, st.none() | seconds, counts, counts, st.none() | seconds)
natives = st.none() | st.builds(NativeContent, texts, jsons)
responses = st.builds(
    ModelResponse,
    texts,
    signals,
    st.lists(tool_calls, max_size=2).map(tuple),
    usages,
    texts,
    st.none() | texts,
    st.none() | texts,
    st.none() | texts,
    st.none() | money,
    natives,
    jsons,
)
holes = st.lists(st.builds(Hole, st.integers(0, 99), counts, texts, st.booleans()), max_size=2).map(tuple)
seams = st.lists(st.builds(Seam, st.integers(1, 99), st.integers(0, 10**6), texts), max_size=2).map(tuple)
children = st.builds(
    ChildUse,
    texts,
    texts,
    texts,
    texts,
    st.none() | st.sampled_from(StopReason),
    st.integers(0, 99),
    st.integers(0, 99),
    usages,
    costs,
    st.integers(0, 10**9),
    money,
)
decisions = st.builds(
    Decision,
    st.sampled_from(Action),
    texts,
    st.none() | st.sampled_from(StopReason),
    st.none() | texts,
    st.dictionaries(texts, jsons, max_size=2),
)
calls = st.builds(
    ModelCall,
    st.integers(1),
    responses,
    usages,
    costs,
    seconds,
    seconds,
    counts,
    st.integers(0, 5),
    st.booleans(),
    st.none() | decisions,
)
results = st.builds(
    ToolResult,
    texts,
    texts,
    texts,
    given_values | errors,
    st.none() | texts,
    texts,
    seconds,
    st.none() | st.builds(Stop, texts, given_values),
)
scalars = st.none() | st.integers() | st.floats(allow_nan=False) | money | texts | st.booleans()
readings = st.recursive(
    st.builds(Reading, texts, scalars, scalars, st.none() | st.booleans(), st.just(()), st.booleans()),
    lambda inner: st.builds(
        Reading, texts, met=st.none() | st.booleans(), children=st.lists(inner, min_size=1, max_size=3).map(tuple)
    ),
    max_leaves=5,
)
names = st.text("abc", min_size=1, max_size=5)
limits = st.none() | st.integers(1, 10**9)
conditions: st.SearchStrategy[StopCondition] = st.recursive(
    st.one_of(
        st.builds(StepCountIs, st.integers(1, 10**9)),
        st.builds(MaxTokensUsed, st.integers(1, 10**9)),
        st.builds(MaxCost, st.decimals("0.000001", 10**6, places=6)),
        st.lists(names, min_size=1, max_size=3).map(lambda given: HasToolCall(*given)),
        st.lists(names | st.sampled_from(FinishReason), min_size=1, max_size=3).map(lambda given: FinishReasonIs(*given)),
        names.map(lambda name: Custom(codec.MissingFunction(name), name)),
    ),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: AnyOf(*parts))
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: AllOf(*parts))
        | inner.map(Not)
        | inner.map(Off)
    ),
    max_leaves=5,
)
budgets = st.builds(
    Budget,
    max_turns=limits,
    max_calls=limits,
    max_tokens=limits,
    max_tokens_per_turn=limits,
    max_cost=st.none() | st.decimals("0.000001", 10**6, places=6),
    timeout=st.none() | st.integers(1, 1000) | st.floats(0.001, 1e6),
    missing_usage=st.sampled_from(["warn", "estimate", "fail", "charge_cap"]),
)
all_settings = st.builds(
    RunSettings,
    budgets,
    st.none() | conditions,
    st.none() | names.map(codec.MissingFunction),
    st.builds(ContinuationPolicy, max_continuations_per_turn=st.integers(0, 9), hint=names),
    st.none() | st.builds(TerminatingTools, st.lists(names, min_size=1, max_size=2, unique=True).map(tuple)),
    st.lists(names | conditions, max_size=2).map(tuple),
)
steps = st.builds(
    StepResult,
    st.integers(1, 10**6),
    st.lists(calls, max_size=2).map(tuple),
    st.lists(results, max_size=2).map(tuple),
    usages,
    costs,
    decisions,
    all_settings,
    st.builds(Remaining, counts, counts, counts, st.none() | money, st.none() | seconds),
    st.none() | readings,
    seconds,
    seconds,
    st.none() | st.sampled_from(StopReason),
    errors,
    st.none() | responses,
    st.lists(children, max_size=2).map(tuple),
    seams,
)
often = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@given(steps)
@often
def test_a_step_is_restored_equal(one: StepResult) -> None:
    text = codec.encode(one)
    assert text.isascii()
    again = decode(StepResult, text)
    assert again == one
    assert codec.encode(again) == text


@given(all_settings)
@often
def test_settings_are_restored_equal(one: RunSettings) -> None:
    again = decode(RunSettings, codec.encode(one))
    assert again == one
    assert repr(again) == repr(one)


@given(conditions)
@often
def test_restored_conditions_give_the_same_readings(one: StopCondition) -> None:
    again = decode(RunSettings, codec.encode(RunSettings(stop=one))).stop
    assert again == one
    assert (again.may_wait, again.is_off) == (one.may_wait, one.is_off)


def event_of(kind: type[events.Event]) -> st.SearchStrategy[events.Event]:
    known = {"settings": all_settings, "before": all_settings, "after": all_settings, "result": results, "tool_call": tool_calls}
    by_type = {"float": seconds, "int": st.integers(0, 99), "str": texts, "bool": st.booleans(), "int | None": counts}
    by_type["float | None"] = st.none() | seconds
    by_type |= {"str | None": st.none() | texts}
    by_type |= {
        "FinishReason": st.sampled_from(FinishReason),
        "str | int | None": st.none() | texts | st.integers(),
        "ContinuationOutcome": st.sampled_from(get_args(events.ContinuationOutcome)),
        "Remaining": st.builds(Remaining, counts, counts, counts, st.none() | money, st.none() | seconds),
        "Remaining | None": st.none() | st.builds(Remaining, counts, counts, counts, st.none() | money, st.none() | seconds),
        "ChildUse": children,
        "tuple[Seam, ...]": seams,
        "tuple[Hole, ...]": holes,
        "RateLimit | None": rate_limits,
    }
    given = [each for each in dataclasses.fields(kind) if not each.kw_only]
    return st.builds(kind, *[known[each.name] if each.name in known else by_type[str(each.type)] for each in given], run_id=texts)


NOT_BY_THEMSELVES = (events.StepCompleted, events.RunEnded, events.TextReceived)


@pytest.mark.parametrize("kind", [one for one in codec.EVENT_KINDS.values() if one not in NOT_BY_THEMSELVES])
@given(st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_events_are_restored_equal(kind: type[events.Event], data: st.DataObject) -> None:
    event = data.draw(event_of(kind))
    text = json.dumps(codec.event_to_jsonable(event))
    assert codec.events_from_jsonable([json.loads(text)], []) == [event]


def test_the_step_of_a_step_completed_event_is_that_of_the_history() -> None:
    history = RunHistory([step(1), step(2)])
    event = events.StepCompleted(1.5, history[1], history.usage, run_id="r1")
    kept = codec.event_to_jsonable(event)
    assert kept["step"] == 2
    (again,) = codec.events_from_jsonable([kept], history)
    assert again == event
    assert again.step is history[1]  # type: ignore[attr-defined]


OF_AN_EARLIER_VERSION: list[tuple[dict[str, Any], events.Event]] = [
    (
        {"event": "TurnStarted", "at_s": 0.5, "turn": 2, "budget_remaining": {"turns": 19}},
        events.StepStarted(0.5, 2, Remaining(turns=19)),
    ),
    (
        {"event": "CallRetried", "at_s": 0.6, "turn": 2, "attempt": 1, "wait_s": 0.1, "reason": "HTTP 529"},
        events.CallRetried(0.6, 2, 1, 0.1, "HTTP 529"),
    ),
    ({"event": "Nudged", "at_s": 0.7, "turn": 2, "consecutive": 1, "allowed": 3}, events.Nudged(0.7, 2, 1, 3)),
    (
        {"event": "TurnCompleted", "at_s": 0.8, "step": 2, "cumulative_usage": {"input_tokens": 7}},
        events.StepCompleted(0.8, step(2), Usage(input_tokens=7)),
    ),
]


@pytest.mark.parametrize(("stored", "event"), OF_AN_EARLIER_VERSION, ids=[one["event"] for one, _ in OF_AN_EARLIER_VERSION])
def test_an_event_of_an_earlier_version_that_counted_turns_is_read(stored: dict[str, Any], event: events.Event) -> None:
    assert codec.events_from_jsonable([stored], [step(1), step(2)]) == [event]


def test_an_event_of_a_newer_version_is_skipped() -> None:
    assert codec.events_from_jsonable([{"event": "RunDreamt", "at_s": 1.0}], []) == []


# Values without a text form ------------------------------------------------------------------------------------------------------


class Sulky:
    """Has no public content."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    __hash__ = None  # type: ignore[assignment]


GIVEN: dict[str, tuple[Any, Any]] = {
    "json": ({"a": [1, 2.5, None, True, "ü"]}, {"a": [1, 2.5, None, True, "ü"]}),
    "tuple": ((1, 2), "(1, 2)"),
    "number-keys": ({1: 2}, "{1: 2}"),
    "nan": ([float("nan")], "[nan]"),
    "decimal": (Decimal("1.50"), "1.50"),
    "exception": (ValueError("bad"), StoredError("ValueError", "bad")),
    "sulky": (Sulky(), "<Sulky, whose text raised RuntimeError>"),
    "looks-like-ours": ({"exception": "x", "message": "y"}, {"exception": "x", "message": "y"}),
    "none": (None, None),
}


@pytest.mark.parametrize("case", GIVEN)
def test_a_functions_return_value_is_stored_unchanged_or_as_text(case: str) -> None:
    value, expected = GIVEN[case]
    result = ToolResult("c", "tool", "text", value, stop=Stop("s", value))
    again = decode(ToolResult, codec.encode(result))
    assert again.value == expected
    assert again.stop == Stop("s", expected)


def test_a_circular_value_is_stored_as_text() -> None:
    circle: list[Any] = []
    circle.append(circle)
    assert decode(ToolResult, codec.encode(ToolResult("c", "t", "", circle))).value == "[[...]]"


def test_numpy_numbers_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    reading = Reading("mine", numpy.float64(0.5), None, True)
    assert decode(Reading, codec.encode(reading)).value == 0.5


@dataclass(frozen=True, slots=True)
class Own(StopCondition):
    """A custom condition."""

    share: float = 0.5
    words: tuple[str, ...] = ("a",)

    def read(self, history: RunHistory) -> Reading:
        return Reading("Own", 0.1, self.share, False)


class Both(AllOf):
    """A custom combination."""


def test_custom_conditions_are_restored_if_their_module_exists() -> None:
    stop = Own(0.25, ("b", "c")) | Both(StepCountIs(3), Own())
    again = decode(RunSettings, codec.encode(RunSettings(stop=stop))).stop
    assert again == stop
    assert repr(again) == repr(stop)


def test_missing_conditions_are_known_by_name() -> None:
    text = codec.encode(RunSettings(stop=Own() | StepCountIs(3)))
    for changed in (text.replace("test_codec", "nowhere"), text.replace('"share":0.5', '"share":{"decimal":1}')):
        stop = decode(RunSettings, changed).stop
        assert repr(stop) == "AnyOf(Custom(Own), StepCountIs(steps=3))"
        assert stop is not None
        with pytest.raises(ConfigurationError, match=r"Only the name of 'Own' was stored"):
            stop.read(RunHistory())


@pytest.mark.parametrize("text", ["[]", "{}", "null", "3", '{"index": "one"}', '{"index": 1, "calls": 5}', "{", '{"index": 1}'])
def test_other_text_is_no_step(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(StepResult, text)


def test_values_missing_in_an_older_text_get_their_defaults() -> None:
    kept = json.loads(codec.encode(step()))
    kept["invented_later"] = 5
    assert decode(StepResult, json.dumps(kept)) == step()
