"""`%%agent` in IPython in a terminal, without a page: the run finishes, and its text is shown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
TERMINAL = """
from IPython.terminal.interactiveshell import TerminalInteractiveShell
shell = TerminalInteractiveShell.instance(colors="nocolor", simple_prompt=True)
for cell in (
    "%load_ext agentlab",
    "import agentlab as lab; made = lab.Agent(lab.testing.ScriptedProvider(['It rains.']))",
    "%%agent --agent made --max-turns 3 --name rainy\\nWhere does it rain?",
    "print('found:', rainy.result.text, rainy.limits.max_turns, rainy is _run)",
    "%%agent opena:x\\nhi",
    "lab.Budget(max_turns=0)",
    "lab.Budgt",
    "made",
):
    shell.run_cell(cell)
"""


def test_a_terminal_shows_the_end_as_text(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "IPYTHONDIR": str(tmp_path), "HOME": str(tmp_path)}
    command = [sys.executable, "-c", TERMINAL]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    assert "RunResult(completed, terminated, 1 step" in output
    assert "found: It rains. 3 True" in output
    assert "UsageError: %%agent: No provider 'opena'. Did you mean 'openai'?" in output
    assert "(inside agentlab: " in output and "whole_number" not in output
    assert "Did you mean 'Budget'?" in output and "_PLACE_OF" not in output
    assert "Agent(scripted:script, budget=Budget(max_turns=20))" in output
    assert "<table>" not in output
