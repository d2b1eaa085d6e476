"""Frames as users have them: read from files, joined, filtered, with other dtypes. Each gives a right answer or an error."""

from __future__ import annotations

import asyncio
import functools
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import agentlab as lab
from agentlab import MaxCost, StepCountIs
from agentlab.errors import ConfigurationError
from agentlab.testing import ScriptedProvider, call, say
from tests.analysis.run_builders import steps_of
from tests.plots.builders import look, looping, run_of

LIMITS = StepCountIs([2, 4]) | MaxCost([0.001, 0.01])
ENDS = (2, 3, 5, 2, 4, 6)
RESULTS = [run_of(looping(end=end), name) for name in ("one", "two") for end in ENDS]
STEPS, RUNS = lab.frame(RESULTS), lab.frame(RESULTS, "runs").assign(prompt_id=[f"p{place}" for place in range(6)] * 2)

OF_RUNS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "summary": lab.summary,
    "paired": lambda runs: lab.paired(runs, "cost_usd"),
    "agreement": lambda runs: lab.agreement(runs).overall,
    "stop_reasons": lab.plots.stop_reasons_data,
    "survival": lab.plots.survival_data,
    "estimates": lambda runs: lab.plots.estimates_data(runs, "cost"),
    "cost_success": lab.plots.cost_success_data,
}
OF_STEPS: dict[str, Callable[..., Any]] = {
    "backtest": lambda steps, **more: lab.backtest(steps, LIMITS, by="provider", **more),
    "suggest": lambda steps, **more: lab.suggest(steps, LIMITS, cost="tokens", by="provider", **more).frame,
    "tokens": lab.plots.tokens_data,
    "cost": lab.plots.cost_data,
    "bands": lab.plots.bands_data,
}


def through_csv(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(frame.to_csv(index=False)))


def through_parquet(frame: pd.DataFrame) -> pd.DataFrame:
    kept = io.BytesIO()
    frame.to_parquet(kept)
    return pd.read_parquet(kept)


SAME: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "CSV": through_csv,
    "CSV, all of it text": lambda frame: pd.read_csv(io.StringIO(frame.to_csv(index=False)), dtype=str),
    "Parquet": through_parquet,
    "convert_dtypes": pd.DataFrame.convert_dtypes,
    "Arrow's dtypes": lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
    "objects": lambda frame: frame.astype(object),
    "None for NA": lambda frame: frame.astype(object).where(frame.notna(), None),
    "text": lambda frame: frame.astype("string"),
    "floats": lambda frame: frame.astype({name: float for name in frame if str(frame[name].dtype) in {"Int64", "Float64"}}),
    "one index for all": lambda frame: frame.set_axis([0] * len(frame)),
    "by run_id": lambda frame: frame.set_index("run_id", drop=False),
    "a column that is called 7": lambda frame: frame.assign(more=1).rename(columns={"more": 7}),
}


@pytest.mark.parametrize("change", SAME.values(), ids=list(SAME))
@pytest.mark.parametrize("what", [*OF_RUNS, *OF_STEPS])
def test_a_frame_from_a_file_or_a_join_gives_the_same_answer(what: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    ask, frame = (OF_RUNS[what], RUNS) if what in OF_RUNS else (OF_STEPS[what], STEPS)

    pd.testing.assert_frame_equal(ask(change(frame)), unchanged(what), check_dtype=False)


@functools.cache
def unchanged(what: str) -> pd.DataFrame:
    """The answer for the frame as it is."""
    return OF_RUNS[what](RUNS) if what in OF_RUNS else OF_STEPS[what](STEPS)


@pytest.mark.parametrize("what", OF_RUNS)
def test_duplicated_runs_count_once(what: str) -> None:
    pd.testing.assert_frame_equal(OF_RUNS[what](pd.concat([RUNS, RUNS])), unchanged(what))


@pytest.mark.parametrize("what", OF_RUNS)
def test_different_runs_with_one_id_are_an_error_with_a_remedy(what: str) -> None:
    other = RUNS.assign(cost_usd=RUNS["cost_usd"] * 2)

    with pytest.raises(ConfigurationError, match=r"run_id='.+' occurs twice, with different values.*assign\(run_id="):
        OF_RUNS[what](pd.concat([RUNS, other]))
    with pytest.raises(ConfigurationError, match="occurs twice, with different values"):
        lab.backtest(STEPS, LIMITS, runs=pd.concat([RUNS, other]))


def test_conflicting_steps_of_a_run_are_an_error_in_plots_and_equal_ones_count_once() -> None:
    other = STEPS.assign(cumulative_tokens=STEPS["cumulative_tokens"] + 1)

    for data in (lab.plots.tokens_data, lab.plots.bands_data):
        with pytest.raises(ConfigurationError, match=r"run_id='.+', step=1(\.0)? occurs twice, with different values"):
            data(pd.concat([STEPS, other]))
        pd.testing.assert_frame_equal(data(pd.concat([STEPS, STEPS])), data(STEPS))
    with pytest.raises(ConfigurationError, match="has step 1 where step 2 was expected"):
        lab.backtest(pd.concat([STEPS, STEPS]), LIMITS)


@pytest.mark.parametrize("what", [*OF_RUNS, *OF_STEPS])
def test_a_duplicated_column_is_an_error_with_a_remedy(what: str) -> None:
    ask, frame = (OF_RUNS[what], RUNS) if what in OF_RUNS else (OF_STEPS[what], STEPS)

    with pytest.raises(ConfigurationError, match=r"two columns 'provider': keep one, frame.loc"):
        ask(pd.concat([frame, frame[["provider"]]], axis=1))


@pytest.mark.parametrize("what", ["summary", "paired", "estimates", "cost_success"])
def test_text_in_a_number_column_is_an_error_not_unknown(what: str) -> None:
    with pytest.raises(ConfigurationError, match=r"'cost_usd' has '0,002', which is not a number.*decimal=','"):
        OF_RUNS[what](RUNS.assign(cost_usd="0,002"))


@pytest.mark.parametrize("what", ["backtest", "cost"])
def test_text_in_the_step_column_is_an_error(what: str) -> None:
    money = STEPS.assign(**dict.fromkeys(("cost_usd", "cumulative_cost_usd", "known_cost_usd"), "€0.01"))

    with pytest.raises(ConfigurationError, match=r"has '€0\.01', which is not a number"):
        OF_STEPS[what](money)


def test_non_finite_values_are_unknown() -> None:
    endless = STEPS.assign(**dict.fromkeys(("cost_usd", "cumulative_cost_usd", "known_cost_usd"), np.inf))

    assert lab.backtest(endless, StepCountIs(2))["cost_mean"].isna().all()
    assert not lab.suggest(endless, LIMITS)
    assert lab.plots.cost_data(endless)["cost_usd"].isna().all()
    assert lab.summary(RUNS.assign(cost_usd=np.inf))["cost_unknown"].tolist() == [1.0, 1.0]
    lab.plots.cost(endless).figure.draw_without_rendering()


@pytest.mark.parametrize(
    ("step", "message"),
    [("first", "'step' has 'first', which is not a number"), (1.5, "Step 1.5 is not a whole number")],
    ids=str,
)
def test_a_fractional_step_number_is_an_error(step: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        lab.backtest(STEPS.assign(step=step), LIMITS)


def test_a_hand_made_table_needs_few_columns() -> None:
    own = pd.DataFrame(
        {"provider": ["a", "b", "b"], "terminated": [True, True, pd.NA], "total_tokens": [5, 6, pd.NA], "cost_usd": pd.NA}
    )

    assert lab.summary(own)[["runs", "not_ended"]].to_numpy().tolist() == [[1, 0], [2, 1]]
    own = own.assign(
        prompt_id=["p", "p", "q"], stop_reason=["completed", "completed", pd.NA], truncated=pd.NA, steps=[1, 2, pd.NA]
    )
    assert lab.paired(own, "total_tokens")["difference"].item() == 1
    assert lab.agreement(own).overall[["same", "left_out"]].to_numpy().tolist() == [[1, 1]]
    assert "1 not ended" in lab.plots.comparison(own).alt


# Two frames that do not match -------------------------------------------------------------------------------------------------


def test_filtered_steps_are_not_taken_for_runs_without_steps() -> None:
    some = STEPS[STEPS["provider"] == "one"]

    with pytest.raises(ConfigurationError, match=r"took 2 steps, of which 0 are in the steps frame.*runs\[runs\['run_id'\]"):
        lab.backtest(some, LIMITS, runs=RUNS)
    with pytest.raises(ConfigurationError, match=r"took 6 steps, of which 5 are in the steps frame"):
        lab.backtest(STEPS.iloc[:-1], LIMITS, runs=RUNS)
    fitting = RUNS[RUNS["run_id"].isin(some["run_id"])]
    assert lab.backtest(some, StepCountIs(2), runs=fitting)["runs"].item() == 6


def test_a_smaller_runs_frame_selects_among_the_steps() -> None:
    assert lab.backtest(STEPS, StepCountIs(2), runs=RUNS.iloc[:4])["runs"].item() == 4


def test_ids_of_different_dtypes_are_reported() -> None:
    numbered = steps_of([2, 3], [True, True], ids=["1", "2"])

    with pytest.raises(
        ConfigurationError, match="The steps belong to none of these runs: run_id is '1' in the steps and 1 in runs="
    ):
        lab.backtest(numbered, StepCountIs(2), runs=pd.DataFrame({"run_id": [1, 2]}))


def test_a_group_column_that_clashes_with_the_answer_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="by='stop_reason': the result has a column of that name"):
        lab.backtest(STEPS, LIMITS, runs=RUNS, by="stop_reason", per="run")
    assert lab.backtest(STEPS, StepCountIs(2), runs=RUNS, by="stop_reason")["stop_reason"].tolist() == ["completed"]
    with pytest.raises(ConfigurationError, match="by='unknown': the result has a column of that name"):
        lab.backtest(STEPS, LIMITS, runs=RUNS.assign(unknown="x"), by=["provider", "unknown"])


def test_a_goal_read_from_a_file_is_accepted() -> None:
    written = pd.read_csv(io.StringIO(RUNS.to_csv(index=False)), dtype=str)

    expected = lab.backtest(STEPS, LIMITS, runs=RUNS, goal="terminated")
    pd.testing.assert_frame_equal(lab.backtest(STEPS, LIMITS, runs=written, goal="terminated"), expected)


# Sub-agents, and runs that never began ------------------------------------------------------------------------------------------


@functools.cache
def with_sub_agents() -> lab.Store:
    """Runs of two providers, each of which calls a sub-agent of the same provider."""
    store = lab.Store()

    def boss(name: str) -> lab.Agent:
        scout = lab.Agent(ScriptedProvider(looping(end=3), name=name, model="small"), tools=[look])
        called = [call("scout", {"task": "go and look"}, tokens=(40, 10), cost="0.001"), say("done", tokens=(5, 5), cost="0.001")]
        return lab.Agent(ScriptedProvider(called, name=name), tools=[scout.as_tool("scout", "Looks.")], observers=[store])

    async def go() -> None:
        for place in range(6):
            for name in ("one", "two"):
                await boss(name).run(f"task {place}")

    asyncio.run(go())
    return store


@pytest.mark.parametrize("what", OF_RUNS)
def test_the_runs_of_sub_agents_are_no_runs_of_a_group(what: str) -> None:
    runs = with_sub_agents().frame("runs")
    alone = runs[runs["called_by"].isna()]

    assert (len(runs), len(alone)) == (24, 12)
    pd.testing.assert_frame_equal(OF_RUNS[what](runs), OF_RUNS[what](alone))


def test_plots_of_runs_with_sub_agents_show_the_runs_that_called_them() -> None:
    store = with_sub_agents()
    runs, steps = store.frame("runs"), store.frame("steps")
    alone = runs[runs["called_by"].isna()]
    theirs = steps[steps["run_id"].isin(alone["run_id"])]

    assert lab.plots.comparison(store).alt == lab.plots.comparison(alone, theirs).alt
    several = lab.plots.small_multiples
    assert several(lab.plots.survival, store, by="model").alt == several(lab.plots.survival, alone, by="model").alt


@pytest.mark.parametrize("what", OF_STEPS)
def test_the_steps_of_sub_agents_count_once_in_those_of_their_callers(what: str) -> None:
    store = with_sub_agents()
    runs, steps = store.frame("runs"), store.frame("steps")
    theirs = steps[steps["run_id"].isin(runs["run_id"][runs["called_by"].isna()])]
    expected = OF_STEPS[what](theirs)

    assert (len(steps), len(theirs)) == (60, 24)
    pd.testing.assert_frame_equal(OF_STEPS[what](steps), expected)
    pd.testing.assert_frame_equal(OF_STEPS[what](through_csv(steps)), expected, check_dtype=False)
    if what not in ("backtest", "suggest"):  # these read a store's runs too
        pd.testing.assert_frame_equal(OF_STEPS[what](store), expected)


def test_the_steps_of_sub_agents_without_their_callers_are_drawn() -> None:
    steps = with_sub_agents().frame("steps")
    called = steps[steps["called_by"].notna()]

    assert lab.plots.tokens_data(called)["run_id"].nunique() == 12


@pytest.mark.parametrize("ask", [OF_STEPS["backtest"], OF_STEPS["suggest"]], ids=["backtest", "suggest"])
def test_a_store_its_frames_and_an_import_of_it_have_the_same_runs(ask: Callable[..., Any]) -> None:
    store = with_sub_agents()
    answer = ask(store)

    assert answer["runs"].tolist() == [6] * len(answer)
    pd.testing.assert_frame_equal(ask(lab.importers.store(store)), answer)
    pd.testing.assert_frame_equal(ask(store.frame("steps"), runs=store.frame("runs")), answer)


def test_runs_that_never_began_are_left_out_of_frames_too() -> None:
    never = pd.concat([RUNS.assign(state="ended"), RUNS.iloc[:3].assign(run_id=["x", "y", "z"], state="not_started", steps=0)])

    pd.testing.assert_frame_equal(lab.backtest(STEPS, LIMITS, runs=never), lab.backtest(STEPS, LIMITS, runs=RUNS))
    assert lab.suggest(STEPS, LIMITS, runs=never, cost="tokens").runs == len(RUNS)


# Error messages ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (STEPS["step"], "A Series is not a record of runs"),
        (STEPS.to_dict("records"), "A list is not a record of runs"),
        ("x" * 9_000, "'xxx"),
        (None, "None is not a record of runs"),
    ],
    ids=["series", "records", "text", "None"],
)
def test_a_value_that_is_no_record_is_named_in_one_line(given: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        lab.backtest(given, LIMITS)
    assert str(caught.value).startswith(message) and len(str(caught.value)) < 250 and "\n" not in str(caught.value)


def test_errors_name_the_function_and_plain_values() -> None:
    with pytest.raises(ConfigurationError, match=r"lab\.plots\.cost_success\(\) needs the column terminated"):
        lab.plots.cost_success(RUNS.drop(columns="terminated"))
    twice = pd.concat([RUNS, RUNS.assign(run_id="second " + RUNS["run_id"])]).assign(repeat=1)
    with pytest.raises(ConfigurationError, match="repeat=1: add the column that distinguishes them"):
        lab.agreement(twice)


# Everything that lab.frame accepts --------------------------------------------------------------------------------------------


def recorded() -> dict[str, Any]:
    """The same runs in every form that a user may have, with their frames as `made`."""
    store = lab.Store()
    agents = {
        name: lab.Agent(ScriptedProvider(looping(end=end), name=name), tools=[look], name=name)
        for name, end in (("one", 2), ("two", 3))
    }

    async def go() -> dict[str, Any]:
        both = lab.Lockstep([agent.run("go", observers=[store]) for agent in agents.values()])
        results = await both
        study = lab.Experiment(agents, ["go"], name="study")
        return {
            "a list of results": list(results),
            "a tuple of runs": both.runs,
            "an iterator": Again(results),
            "a lockstep": both,
            "a store": store,
            "an import": lab.importers.store(store),
            "an experiment": await study.run(progress=False),
        }

    return asyncio.run(go())


class Again:
    """Results one after the other, as from a generator, restarted for each test."""

    def __init__(self, results: Any) -> None:
        self.results = results

    def __call__(self) -> Any:
        """A new iterator."""
        return iter(self.results)


FORMS = recorded()
TAKES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "summary": ("runs", lab.summary),
    "paired": ("runs", lambda runs: lab.paired(runs, "total_tokens")),
    "agreement": ("runs", lambda runs: lab.agreement(runs).overall),
    "termination_report": ("termination", lab.termination_report),
    "termination_report, in sum": ("termination", lambda runs: lab.termination_report(runs, summary=True)),
    **{name: ("steps", getattr(lab.plots, name)) for name in ("tokens", "tokens_data", "cost", "cost_data", "curves")},
    **{name: ("steps", getattr(lab.plots, name)) for name in ("bands", "bands_data")},
    **{name: ("runs", getattr(lab.plots, name)) for name in ("stop_reasons", "stop_reasons_data", "survival", "survival_data")},
    **{
        name: ("runs", getattr(lab.plots, name))
        for name in ("estimates", "estimates_data", "cost_success", "cost_success_data", "frontier", "frontier_data")
    },
    **{name: ("events", getattr(lab.plots, name)) for name in ("timeline", "timeline_data")},
    **{
        f"small_multiples, {of.__name__}": (what, functools.partial(lab.plots.small_multiples, of))
        for of, what in ((lab.plots.tokens, "steps"), (lab.plots.survival, "runs"), (lab.plots.stop_reasons, "runs"))
    },
}
OTHERWISE = {
    *("comparison", "tree", "tree_data", "what_if", "what_if_data", "PlotAxes", "PlotFigure", "small_multiples"),
    *("tuning", "tuning_data"),
}
"""Names of lab.plots that are tested below, take no recorded runs, or are listed above under another name."""


def comparable(made: Any) -> Any:
    """The answer of a function in a form that can be compared."""
    return made.to_dict("list") if isinstance(made, pd.DataFrame) else made.alt


def given(form: str) -> Any:
    return FORMS[form]() if isinstance(FORMS[form], Again) else FORMS[form]


def test_every_plot_is_tested_with_every_form() -> None:
    assert set(lab.plots.__all__) == ({*TAKES} & {*lab.plots.__all__}) | OTHERWISE


DRAWN = [name for name in TAKES if (name in lab.plots.__all__ and not name.endswith("_data")) or "multiples" in name]
"""They take what their data take: for them an iterator, which must be read once only, and one other form each are enough."""

ACCEPTED = [(name, form) for name in TAKES if name not in DRAWN for form in FORMS]
ACCEPTED += [(name, form) for name in DRAWN for form in ("an iterator", [*FORMS][DRAWN.index(name) % len(FORMS)])]


@pytest.mark.parametrize(("name", "form"), dict.fromkeys(ACCEPTED))
def test_functions_accept_the_source_of_a_frame(name: str, form: str) -> None:
    what, function = TAKES[name]
    if form == "an import" and what in ("events", "termination"):
        with pytest.raises(ConfigurationError, match="pass a run"):
            function(given(form))
        return
    assert repr(comparable(function(given(form)))) == of_a_frame(name, form if form == "an experiment" else "a list of results")


@functools.cache
def of_a_frame(name: str, form: str) -> str:
    """The answer for the frame. It is the same for every form except the experiment, which made its own runs."""
    what, function = TAKES[name]
    return repr(comparable(function(lab.frame(given(form), what))))


@pytest.mark.filterwarnings("ignore:.*one group of provider:agentlab.errors.AgentlabWarning")
@pytest.mark.parametrize("name", [name for name in TAKES if "multiples" not in name])
def test_a_single_run_or_result_is_accepted(name: str) -> None:
    what, function = TAKES[name]
    run, result = FORMS["a lockstep"].runs[0], FORMS["a list of results"][0]
    expected = repr(comparable(function(lab.frame(result, what))))
    assert repr(comparable(function(run))) == expected
    assert name in DRAWN or repr(comparable(function(result))) == expected


@pytest.mark.parametrize("name", TAKES)
def test_a_source_without_runs_is_refused_with_advice(name: str) -> None:
    for wrong in (7, None, "runs", {"a": 1}, [1], pd.Series([1])):
        with pytest.raises(ConfigurationError, match=r"pass (a run|what agent\.run)"):
            TAKES[name][1](wrong)


@pytest.mark.parametrize("form", ["an iterator", "an import", "an experiment"])
def test_a_comparison_makes_both_of_its_frames(form: str) -> None:
    assert lab.plots.comparison(given(form)).alt == of_both_frames(form if form == "an experiment" else "a list of results")


@functools.cache
def of_both_frames(form: str) -> str:
    """The answer for the frames, which are the same for every form except the experiment."""
    return lab.plots.comparison(lab.frame(given(form), "runs"), lab.frame(given(form))).alt


@pytest.mark.parametrize("form", [form for form in FORMS if form != "an import"])
def test_a_tree_accepts_every_source_of_whole_runs(form: str) -> None:
    assert len(lab.plots.tree_data(given(form))) >= 2
    assert lab.plots.tree(given(form)).alt.startswith("Tree of")


@pytest.mark.parametrize("wrong", [RUNS, FORMS["an import"], 7], ids=["frame", "import", "number"])
def test_a_tree_does_not_accept_frames(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"lab.plots.tree\(\) cannot show .*pass a run.*a store, or the results"):
        lab.plots.tree(wrong)


def test_a_lockstep_can_be_backtested() -> None:
    both = FORMS["a lockstep"]
    assert comparable(lab.backtest(both, LIMITS)) == comparable(lab.backtest(list(both.results), LIMITS))
