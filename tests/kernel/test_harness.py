"""A control changed in the page reaches a thread in the kernel, on both routes of its messages.

Both routes work on ipykernel 6.17, 6.31, 7.0, 7.1, 7.3 and 7.4 once the cell has returned. They differ in the thread on which
the widget's observers run, so an observer may rely on neither:

| messages sent to | before 7  | 7.0 to 7.3           | 7.4.0                                                          |
|------------------|-----------|----------------------|----------------------------------------------------------------|
| the main shell   | the main  | the main thread      | the main thread                                                |
| a subshell       | the main  | the subshell's       | the main thread first; the subshell's for the changes after it |
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .front_end import FrontEnd
from .kernel import KernelProblemError, LiveKernel

POLLING = """
import contextvars, threading, time
import ipywidgets as widgets

limit = widgets.IntText(value=10, description="limit")
seen, threads = widgets.Text(description="seen"), []
limit.observe(lambda change: threads.append(threading.current_thread().name), names="value")

def poll():
    values = [limit.value]
    while limit.value:
        if limit.value != values[-1]:
            values.append(limit.value)
            seen.value = str(values)
        time.sleep(0.01)

worker = threading.Thread(target=contextvars.copy_context().run, args=(poll,), daemon=True)
worker.start()
"""


@pytest.fixture
def kernel(tidied_kernel: LiveKernel) -> Iterator[LiveKernel]:
    """One kernel for all of these; the threads of `POLLING` end."""
    yield tidied_kernel
    tidied_kernel.execute("if 'worker' in globals(): limit.value = 0; worker.join()")


def test_a_change_in_the_page_reaches_a_thread_after_the_cell_has_returned(kernel: LiveKernel, front_end: FrontEnd) -> None:
    kernel.execute(POLLING)
    limit = front_end.model(description="limit")
    seen = front_end.model(description="seen")

    for value in (11, 12, 13):
        front_end.change(limit, value=value)
        kernel.wait(lambda value=value: str(value) in seen.state["value"], what=f"the thread to see {value}")  # type: ignore[misc]

    assert seen.state["value"] == "[10, 11, 12, 13]"
    assert kernel.value("limit.value") == 13
    threads = kernel.value("threads")
    assert len(threads) == 3
    if front_end.subshell is None:
        assert set(threads) == {"MainThread"}
    else:
        assert threads[-1].startswith("subshell-")


def test_a_change_waits_for_the_idle_of_the_previous_one(kernel: LiveKernel, front_end: FrontEnd) -> None:
    kernel.execute(POLLING)
    limit = front_end.model(description="limit")

    for value in (11, 12, 13):
        front_end.change(limit, value=value)
    assert limit.held_back == {"value": 13}

    kernel.wait(lambda: not limit.held_back and limit.under_way is not None and limit.under_way.idle)
    assert kernel.value("limit.value") == 13
    assert len(kernel.value("threads")) == 2  # 11 and 13: 12 was never sent


def test_a_click_reaches_the_kernel(kernel: LiveKernel, front_end: FrontEnd) -> None:
    kernel.execute(
        "import ipywidgets as widgets\n"
        "run, clicks = widgets.Button(description='Run'), []\n"
        "run.on_click(lambda button: clicks.append(button.description))"
    )
    pressed = front_end.click(front_end.model(description="Run"))
    kernel.wait(lambda: pressed.idle)
    assert kernel.value("clicks") == ["Run"]


def test_a_raising_cell_raises_in_the_test(kernel: LiveKernel) -> None:
    with pytest.raises(KernelProblemError, match="ZeroDivisionError"):
        kernel.execute("1 / 0")


def test_output_and_displays_belong_to_their_cell(kernel: LiveKernel) -> None:
    request = kernel.execute("print('one'); 1 + 1")
    assert request.printed == "one\n"
    assert request.displayed == [{"text/plain": "2"}]
