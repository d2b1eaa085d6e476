"""The course as a JupyterLite site: opened in Chromium, with no other server than the site's own."""

from __future__ import annotations

import functools
import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.pyodide.environment import unreachable
from tests.supply.declared import REPOSITORY

ENVIRONMENT = ".venv-lite"
START_MS = 300_000
"""Python compiles its packages in the browser: 30 s, and several times that on a loaded machine."""

EXECUTE = """async code => {
    const output = [];
    const notebook = window.jupyterapp.shell.currentWidget;
    const future = notebook.sessionContext.session.kernel.requestExecute({code});
    future.onIOPub = ({content}) => output.push(content.text ?? content.evalue ?? content.data?.["text/plain"] ?? "");
    await future.done;
    return output.join("");
}"""
AGENT = '''
from datetime import date
import agentlab as lab

def get_weather(city: str, day: date) -> dict[str, object]:
    """The weather forecast for a city."""
    return {"city": city, "sky": "rain", "high_c": 17}

def finalize(answer: str) -> str:
    """Hand in the final answer."""
    return answer

agent = lab.Agent("anthropic:claude-sonnet-4-6", tools=[get_weather, finalize], instructions="Plan day trips.")
with lab.replay("sample:trip", match="order"):
    run = agent.run("Graz or Salzburg?", stop=lab.HasToolCall("finalize"), budget=lab.Budget(max_cost=0.05))
step = await run.step()
run.limits.max_cost = 0.10
result = await run
other = await run.fork(at=1, model="openai:gpt-5.4-mini")
print(step.index, len(result.history), result.stop_reason, other.stop_reason)
'''
STUDY = """
import study
with lab.replay(study.FOLDER / "qwen-cool-chat.json"):
    started = study.agent("qwen", "cool", "chat").run(study.tasks()["long-1"].prompt, **study.SETTINGS["long"]).start()
print((await started).output)
"""
STORE = """
from tempfile import mkdtemp
try:
    lab.Store("runs.db")
except lab.errors.StorageError as error:
    print(error)
with lab.Store(f"{mkdtemp()}/runs.db") as store:
    store.keep(run)
    print(store.load(run.id).result.stop_reason)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the built site, served on loopback."""
    folder = tmp_path_factory.mktemp("site") / "lite"
    build = [f"{ENVIRONMENT}/bin/python", "release/lite.py", "--to", str(folder)]
    for command in (["make", f"PYTHON={sys.executable}", f"{ENVIRONMENT}/.lite"], build):
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        output = done.stdout + done.stderr
        if done.returncode and (cause := unreachable(output)):
            pytest.skip(f"JupyterLite cannot be downloaded: {cause}")
        assert done.returncode == 0, output
    handler = functools.partial(Files, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Files(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def page(browser: Browser, site: str) -> Iterator[Page]:
    """The quickstart, open in the site. No request leaves this machine."""

    def expose(route: Route) -> None:
        config = route.fetch().json()
        config["jupyter-config-data"]["exposeAppInBrowser"] = True
        route.fulfill(json=config)

    context = browser.new_context()
    context.route(lambda address: not address.startswith(site), lambda route: route.abort())
    context.route(re.compile(r"/jupyter-lite\.json"), expose)
    page = context.new_page()
    page.goto(f"{site}lab/index.html?path=notebooks/01_quickstart.ipynb")
    yield page
    context.close()


@pytest.mark.timeout(900)  # the first run downloads 60 MB
def test_the_site_shows_the_course_with_its_outputs(page: Page) -> None:
    expect(page.locator(".jp-Notebook").get_by_role("heading", name="Quickstart")).to_be_visible(timeout=START_MS)
    names = page.locator(".jp-DirListing-itemText").all_inner_texts()
    assert {path.name for path in (REPOSITORY / "notebooks").glob("*.ipynb")} <= set(names)
    saved = page.locator(".jp-OutputArea-output", has_text="The arguments are not valid, nothing was executed.").first
    saved.scroll_into_view_if_needed()
    expect(saved).to_be_visible()


@pytest.mark.timeout(600)
def test_its_kernel_replays_runs(page: Page) -> None:
    expect(page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]")).to_be_visible(timeout=START_MS)
    assert page.evaluate(EXECUTE, AGENT) == "1 4 stop_condition stop_condition\n"
    assert page.evaluate(EXECUTE, STUDY).strip()


def test_a_store_is_kept_outside_the_folder_of_the_notebooks(page: Page) -> None:
    said = page.evaluate(EXECUTE, STORE)
    assert said.endswith("pass a file elsewhere, such as /tmp/runs.db.\nstop_condition\n")


def test_pip_finds_agentlab_in_the_site(page: Page) -> None:
    version = 'from importlib.metadata import version\nprint(version("agentlab-jupyter"))'
    assert page.evaluate(EXECUTE, f"%pip install agentlab-jupyter\n{version}").endswith("0.1.0\n")


def test_what_needs_pyodides_own_server_says_so(page: Page) -> None:
    said = page.evaluate(EXECUTE, "result.to_frame()")
    assert "No module named 'numpy'" in said
