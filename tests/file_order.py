"""The order of files for parallel tests (`make test`): the browser's from one end, the rest from the other.

The browser tests mostly wait. Run in sequence by one worker, they share a server and a page, and leave the cores to the tests
that compute; run by all workers, they would wait and compute at the same moments. Other tests wait too: for kernels to start,
for processes to be killed. So there is one worker more than a small machine has cores. A worker that finishes first takes over
files from the others: the longest files are at both ends, so that short ones are left to share.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

LONG_S = {
    "tests/browser/test_branching.py": 66,
    "tests/browser/test_lite.py": 63,
    "tests/browser/test_page.py": 58,
    "tests/browser/test_panel.py": 53,
    "tests/browser/test_accessibility.py": 52,
    "tests/browser/test_long_run.py": 46,
    "tests/browser/test_main_path.py": 39,
    "tests/browser/test_editing.py": 38,
    "tests/browser/test_browse.py": 36,
    "tests/browser/test_marimo.py": 36,
    "tests/browser/test_overview.py": 26,
    "tests/browser/test_pictures.py": 26,
    "tests/browser/test_failures.py": 22,
    "tests/browser/test_hostile_output.py": 20,
    "tests/browser/test_live_page.py": 19,
    "tests/browser/test_explore.py": 17,
    "tests/browser/test_streaming.py": 17,
    "tests/browser/test_sub_agents.py": 14,
    "tests/browser/test_notebook7.py": 14,
    "tests/browser/test_label.py": 13,
    "tests/browser/test_report_file.py": 12,
    "tests/browser/test_animation.py": 11,
    "tests/docs/test_site.py": 72,
    "tests/docs/test_examples.py": 31,
    "tests/engine/test_record_every_provider.py": 30,
    "tests/supply/test_installed.py": 30,
    "tests/soak/test_cancelling.py": 29,
    "tests/soak/test_faults_on_the_wire.py": 28,
    "tests/pyodide/test_in_pyodide.py": 26,
    "tests/package/test_typed.py": 26,
    "tests/storage/test_store_killed.py": 26,
    "tests/serving/test_command.py": 25,
    "tests/experiments/test_budget.py": 24,
    "tests/experiments/test_killed.py": 24,
    "tests/engine/test_subagents.py": 24,
    "tests/kernel/test_live_run.py": 24,
    "tests/experiments/test_report.py": 23,
    "tests/notebook/test_explore.py": 21,
    "tests/analysis/test_interval_coverage.py": 21,
    "tests/interop/test_mcp_tools.py": 21,
    "tests/notebook/test_coming.py": 20,
    "tests/analysis/test_sources.py": 19,
    "tests/providers/test_contract.py": 19,
    "tests/analysis/test_against_live_runs.py": 18,
    "tests/notebook/test_page_data.py": 17,
    "tests/soak/test_load.py": 16,
    "tests/providers/test_broken_streams.py": 16,
    "tests/soak/test_secrets_shown.py": 16,
    "tests/experiments/test_experiment.py": 16,
    "tests/serving/test_http.py": 15,
    "tests/providers/test_responses_streams.py": 15,
    "tests/experiments/test_scale.py": 14,
    "tests/plots/test_groups.py": 14,
    "tests/soak/test_faults.py": 14,
    "tests/analysis/test_compare.py": 13,
    "tests/live/test_study.py": 13,
    "tests/experiments/test_tune.py": 13,
    "tests/serving/test_scenarios.py": 13,
    "tests/plots/test_many.py": 13,
    "tests/engine/test_streams.py": 13,
    "tests/plots/test_look.py": 12,
    "tests/serving/test_schema.py": 12,
    "tests/engine/test_bodies.py": 12,
    "tests/analysis/test_backtest.py": 11,
    "tests/kernel/test_magic.py": 11,
}
"""Duration of the slowest files in a run of all on two cores. Only their order counts: a file that is not listed counts as short."""


SERVERS = {"jupyter", "notebook7", "voila", "marimo", "marimo_apps"}


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """The items by file: the browser's from the longest to the shortest, then the others from the shortest to the longest. Those of the
    browser's that need no server come last: with them, a second worker needs none either."""
    on_servers = {file_of(item) for item in items if SERVERS.intersection(getattr(item, "fixturenames", ()))}

    def place(item: pytest.Item) -> tuple[bool, bool, float]:
        file = file_of(item)
        if file.startswith("tests/browser/"):
            return False, file not in on_servers, -LONG_S.get(file, 0)
        return True, True, LONG_S.get(file, 0)

    return sorted(items, key=place)


def file_of(item: pytest.Item) -> str:
    return item.nodeid.split("::", 1)[0]


class FromTwoEnds(LoadFileScheduling):  # type: ignore[misc,unused-ignore]
    """Whole files, in collection order: from the front for the first worker, from the back for the others."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node is not next(iter(self.nodes)):
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)
