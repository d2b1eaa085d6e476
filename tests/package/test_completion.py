"""The first Tab on a run's limits in a session takes little longer than one on a text: jedi follows no types for it.

Jedi parses one file of agentlab, and keeps what it parsed for all later sessions.
"""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
import json, sys
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from tests.measured_work import calls_in

shell = InteractiveShell.instance()
shell.run_cell('''
import agentlab as lab
from agentlab.testing import ScriptedProvider
run = lab.Agent(ScriptedProvider(["Done."])).run("?")
text = "some text"
''')

def tab(code):
    with provisionalcompleter():
        return [found.text for found in shell.Completer.completions(code, len(code))]

tab("text.")  # jedi itself
found = []
calls = calls_in(lambda: found.extend(tab(sys.argv[1])))
print(json.dumps([calls, found]))
"""


def first_tab(code: str) -> tuple[int, list[str]]:
    """Return the number of function calls for the first Tab after this code in a new process, and what it offers."""
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", SCRIPT, code], capture_output=True, text=True, check=True)
    calls, found = json.loads(ended.stdout.splitlines()[-1])
    return calls, found


def test_the_first_tab_on_the_limits_of_a_run_is_quick() -> None:
    first_tab("run.limits.")  # jedi parses agentlab/agent.py, once for all sessions
    calls, found = first_tab("run.limits.")
    assert {"max_turns", "max_cost", "stop", "snapshot", "edit_condition"} <= set(found)
    plain, _ = first_tab("text.")
    assert calls < 2 * plain, (calls, plain)
