"""The panel on Colab, which starts its sessions with ipywidgets 7; Colab's module is a stand-in here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .conftest import started
from .kernel import LiveKernel

COLAB = """
import os, sys, types
import ipywidgets
os.environ.pop("AGENTLAB_FRONTEND", None)
ipywidgets.__version__ = "{version}"
output = types.ModuleType("google.colab.output")
output.enabled = 0
def enable_custom_widget_manager():
    output.enabled += 1
output.enable_custom_widget_manager = enable_custom_widget_manager
output._widgets = types.SimpleNamespace(_installed_url="https://colab.example/manager.js")
sys.modules["google.colab"] = types.ModuleType("google.colab")
sys.modules["google.colab.output"] = output
import agentlab as lab
from agentlab.testing import ScriptedProvider, say
run = lab.Agent(ScriptedProvider([say("hello")])).run("?")
result = await run
"""


@pytest.fixture(scope="module")
def kernel(kernel_python: str) -> Iterator[LiveKernel]:
    """One kernel, in which Colab's module and the version of ipywidgets change."""
    with started(kernel_python) as live:
        yield live


def test_with_ipywidgets_7_a_sentence_says_what_to_do_and_the_static_form_is_shown(kernel: LiveKernel) -> None:
    kernel.execute(COLAB.format(version="7.7.1"))
    shown = kernel.execute("run.panel()").displayed
    assert not any("application/vnd.jupyter.widget-view+json" in one for one in shown)
    text = "".join(one.get("text/html", "") for one in shown)
    assert "restart the session" in text and "hello" in text


def test_with_ipywidgets_8_the_panel_is_live_and_names_colabs_widget_manager(kernel: LiveKernel) -> None:
    kernel.execute(COLAB.format(version="8.1.9"))
    shown = kernel.execute("run.panel()").displayed
    assert any("application/vnd.jupyter.widget-view+json" in one for one in shown)
    assert kernel.value("output.enabled") == 1
    metadata = kernel.value("run.panel()._live_metadata()")
    assert metadata["application/vnd.jupyter.widget-view+json"]["colab"]["custom_widget_manager"]["url"].endswith("manager.js")
