"""Which worker runs which file when tests run side by side (`make test`): the browser's from one end, the rest from the other.

The browser tests wait most of the time. Run by one worker one after another they share a server and a page, and leave the other
core to the tests that compute; run by both workers, they would wait and compute at the same moments. Whoever is done first takes
over from the other: the longest files stand at both ends, so that what is left to share are the short ones.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

LONG_S = {}
"""About how long the slowest files take, alone. Only their order counts: a file that is not here is taken for a short one."""


def from_browser_to_rest(item: pytest.Item) -> tuple[bool, float]:
    """What the files are sorted by: the browser's from the longest to the shortest, then the others from the shortest up."""
    file = item.nodeid.split("::", 1)[0]
    is_of_browser = item.get_closest_marker("browser") is not None
    return not is_of_browser, -LONG_S.get(file, 0) if is_of_browser else LONG_S.get(file, 0)


class FromTwoEnds(LoadFileScheduling):  # type: ignore[misc,unused-ignore]
    """Whole files, in the order they were collected in: from the front for the first worker, from the back for the others."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node is not next(iter(self.nodes)):
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)
