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
    "tests/browser/test_page.py": 90,
    "tests/browser/test_lite.py": 60,
    "tests/browser/test_panel.py": 45,
    "tests/browser/test_marimo.py": 42,
    "tests/browser/test_accessibility.py": 35,
    "tests/browser/test_long_run.py": 33,
    "tests/browser/test_overview.py": 30,
    "tests/browser/test_editing.py": 30,
    "tests/browser/test_branching.py": 25,
    "tests/browser/test_main_path.py": 18,
    "tests/browser/test_animation.py": 18,
    "tests/browser/test_failures.py": 12,
    "tests/browser/test_live_page.py": 12,
    "tests/browser/test_explore.py": 12,
    "tests/browser/test_hostile_output.py": 10,
    "tests/browser/test_voila.py": 7,
    "tests/soak/test_cancelling.py": 45,
    "tests/supply/test_installed.py": 40,
    "tests/experiments/test_executors.py": 38,
    "tests/docs/test_site.py": 35,
    "tests/soak/test_faults_on_the_wire.py": 35,
    "tests/kernel/test_magic.py": 30,
    "tests/soak/test_load.py": 30,
    "tests/experiments/test_experiment.py": 28,
    "tests/soak/test_secrets.py": 27,
    "tests/docs/test_examples.py": 25,
    "tests/experiments/test_killed.py": 25,
    "tests/storage/test_store_killed.py": 22,
    "tests/analysis/test_against_live_runs.py": 22,
    "tests/providers/test_responses_streams.py": 20,
    "tests/soak/test_secrets_shown.py": 18,
    "tests/storage/test_store.py": 17,
    "tests/package/test_typed.py": 16,
    "tests/providers/test_signal_registry.py": 14,
    "tests/plots/test_groups.py": 13,
    "tests/soak/test_faults.py": 11,
    "tests/engine/test_record_every_provider.py": 10,
    "tests/providers/test_contract.py": 10,
    "tests/peers/test_peers.py": 10,
    "tests/serving/test_schema.py": 9,
    "tests/serving/test_command.py": 9,
    "tests/plots/test_look.py": 9,
    "tests/engine/test_control.py": 9,
    "tests/notebook/test_explore.py": 8,
    "tests/providers/test_any_json.py": 8,
    "tests/engine/test_subagents.py": 8,
    "tests/kernel/test_live_run.py": 7,
    "tests/serving/test_http.py": 7,
    "tests/analysis/test_suggest.py": 6,
    "tests/soak/test_hostile_files.py": 6,
    "tests/notebook/test_ending.py": 6,
    "tests/plots/test_tree.py": 6,
}
"""Approximate duration of the slowest files, alone. Only their order counts: a file that is not listed counts as short."""


def from_browser_to_rest(item: pytest.Item) -> tuple[bool, float]:
    """The sort key of the files: the browser's from the longest to the shortest, then the others from the shortest up."""
    file = item.nodeid.split("::", 1)[0]
    is_of_browser = item.get_closest_marker("browser") is not None
    return not is_of_browser, -LONG_S.get(file, 0) if is_of_browser else LONG_S.get(file, 0)


class FromTwoEnds(LoadFileScheduling):  # type: ignore[misc,unused-ignore]
    """Whole files, in collection order: from the front for the first worker, from the back for the others."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node is not next(iter(self.nodes)):
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)
