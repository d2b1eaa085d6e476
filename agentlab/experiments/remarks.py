"""What a person should know about the results of an experiment, in sentences: failures, scores, the budget, what has changed."""

from __future__ import annotations

import json
from collections.abc import Iterator

from agentlab.amounts import counted
from agentlab.experiments.execute import detail_of
from agentlab.experiments.results import ExperimentResults
from agentlab.experiments.standing import Standing
from agentlab.printable import one_line


def remarks(results: ExperimentResults, *, scoring: bool, rescored: int = 0) -> Iterator[str]:
    """One sentence or two for each thing that is not as it should be. `rescored` runs had a score of an earlier score function."""
    yield from _of_failures(results)
    if scoring:
        yield from _of_scores(results.standing, rescored)
    yield from _of_the_budget(results)
    yield from _of_changes(results.standing)


def _of_failures(results: ExperimentResults) -> Iterator[str]:
    failed = [one for one in results.standing if one.failed or one.run_id in results.problems]
    if failed:
        first = failed[0]
        why = results.problems.get(first.run_id) or detail_of(first.kept)
        why = why.partition("\n")[0].rstrip(".")
        again = "run()" if first.run_id in results.problems else "run(retry=True)"
        yield (
            f"{len(failed)} of {counted(len(results.standing), 'run')} failed, the first, {first.run_id}: {why}. "
            f"Try again with {again}; until then they count as failures."
        )


def _of_scores(standing: tuple[Standing, ...], rescored: int) -> Iterator[str]:
    notes = [json.loads(one.score) for one in standing if one.score is not None]
    errors = [note["error"] for note in notes if "error" in note]
    if errors:
        yield (
            f"{counted(len(errors), 'run')} {'has' if len(errors) == 1 else 'have'} no score: {one_line(errors[0], 300).rstrip('.')} "
            "(see score_error); run(retry=True) tries again."
        )
    without = [one.parts for one in standing if one.parts is not None and "score" not in one.parts]
    if without:
        keys = [repr(key) for key in dict.fromkeys(key for parts in without for key in parts)]
        more = f", {keys[0]}: …" if keys else ""
        yield (
            f"{counted(len(without), 'score')} {'is a dict' if len(without) == 1 else 'are dicts'} without 'score' "
            f"(there is {', '.join(keys) or 'nothing'}): the column `score` is NA there, and no rate of success is known. "
            f'Have the function return {{"score": …{more}}}.'
        )
    whole = [value.get("score") if isinstance(value, dict) else value for value in (note.get("score") for note in notes)]
    unknown = len(notes) - len(errors) - len(without)
    if unknown and not any(value is not None for value in whole):  # where some are, None may be meant
        yield (
            f"{counted(unknown, 'score')} {'is' if unknown == 1 else 'are'} None, or not a number: no score is known. Have the "
            "function return a number or a bool."
        )
    if rescored:
        yield f"{counted(rescored, 'score')} of another version of the score function {_were(rescored)} made anew."


def _of_the_budget(results: ExperimentResults) -> Iterator[str]:
    if not results.left_out:
        return
    not_begun = [one for one in results.standing if one.run_id in results.left_out and one.kept is None]
    no_score = [one for one in results.standing if one.run_id in results.left_out and one.state == "ended"]
    held = len(results.left_out) - len(not_begun) - len(no_score)
    parts = [
        f"{counted(len(not_begun), 'run')} {_were(len(not_begun))} left out" if not_begun else "",
        f"{counted(held, 'run')} {_were(held)} held back after the last finished step" if held else "",
        f"{counted(len(no_score), 'run')} {'have' if len(no_score) != 1 else 'has'} no score yet" if no_score else "",
    ]
    why = next(iter(results.left_out.values()))
    yield (
        f"{' and '.join(part for part in parts if part)}, since {why}. To go on, set study.budget or "
        "study.max_runs, and run it again."
    )


def _of_changes(standing: tuple[Standing, ...]) -> Iterator[str]:
    changed = [one for one in standing if one.changed]
    if changed:
        names = list(dict.fromkeys(name for one in changed for name in one.changed))
        yield (
            f"{counted(len(changed), 'run')} of the store {_were(len(changed))} made by other code of {', '.join(names)} than there is "
            "now, see the column `changed`: to compare like with like, give the experiment another name=…."
        )
    replayed = sum(one.replayed is True for one in standing)
    live = sum(one.replayed is False for one in standing)
    if replayed and live:
        yield f"{replayed} runs are replays of recordings and {live} are live: the column `replayed` says which."


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
