"""The wheel alone, in a clean environment without a network: the demo, the course in JupyterLab, the README's first block."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.docs.test_readme import block_of
from tests.notebooks.course import texts
from tests.supply.declared import declared
from tests.supply.wheels import NO_NETWORK, link

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, installed by pip, and exactly the packages that it and JupyterLab need; no network."""
    place = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    (site,) = place.glob("lib/python*/site-packages")
    link(list(declared(["lab"]).values()), site)
    (place / "share").mkdir(exist_ok=True)
    (place / "share" / "jupyter").symlink_to(Path(sys.prefix) / "share" / "jupyter")  # JupyterLab's pages
    (site / "no_network.py").write_text(NO_NETWORK)
    (site / "no_network.pth").write_text("import no_network\n")
    install = [sys.executable, "-m", "pip", "--python", str(place), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True)
    return place


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: Path) -> dict[str, str]:
    """The environment variables of a newcomer: an empty home, no keys, nothing of this clone; the kernel is that of `clean`."""
    kernel = {
        "argv": [str(clean / "bin" / "python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "language": "python",
    }
    folder = tmp_path / "jupyter" / "kernels" / "clean"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps({**kernel, "display_name": "clean"}))
    for name in [name for name in os.environ if name.startswith(("JUPYTER", "JPY_", "IPYTHON", "PYTHON", "AGENTLAB_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    return dict(os.environ)


CHECKED = """
assert str(result.conditions_met[0]) == 'HasToolCall(finalize): 1 call'
import agentlab
print(agentlab.__file__)
"""


def execute(notebook: nbformat.NotebookNode, folder: Path) -> None:
    """Run all cells in the clean environment; raises the error of the first that fails."""
    NotebookClient(notebook, kernel_name="clean", timeout=250, resources={"metadata": {"path": str(folder)}}).execute()


def test_the_demo_runs_as_a_command(clean: Path, environment: dict[str, str], tmp_path: Path) -> None:
    reached = "import socket; socket.create_connection(('192.0.2.1', 80), 1)"
    python = [str(clean / "bin" / "python"), "-c", reached]
    assert (
        "there is no network in this test: 192.0.2.1"
        in subprocess.run(python, capture_output=True, text=True, check=False).stderr
    )
    command = [str(clean / "bin" / "agentlab"), "demo"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nclaude-sonnet-4-6, at most $0.005  cost_budget         2   1,384  $0.0070\n" in done.stdout


@pytest.fixture
def course(clean: Path, environment: dict[str, str], tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """`python -m agentlab lab` in an empty folder: the folder that it makes, and the address of JupyterLab."""
    place = tmp_path / "empty"
    place.mkdir()
    options = ["--no-browser", "--IdentityProvider.token=", "--ServerApp.port=0"]
    command = [str(clean / "bin" / "python"), "-m", "agentlab", "lab", "--", *options]
    with (tmp_path / "log.txt").open("w+") as log:
        server = subprocess.Popen(command, cwd=place, env=environment, stdout=log, stderr=log)
        try:
            address = None
            while address is None or not answers(address[0]):  # it is logged before the server listens
                assert server.poll() is None, Path(log.name).read_text()
                time.sleep(0.1)
                address = re.search(r"http://(?:127\.0\.0\.1|localhost):[1-9]\d*/", Path(log.name).read_text())
            yield place / "agentlab-course", address[0]
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()


def answers(address: str) -> bool:
    try:
        return bool(get(f"{address}api"))
    except OSError:
        return False


def get(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return json.load(answer)


@pytest.mark.filterwarnings("default")  # of the kernel process and of its client
def test_the_course_opens_and_its_first_notebook_and_the_first_block_of_the_readme_run(
    course: tuple[Path, str], clean: Path
) -> None:
    folder, address = course
    assert {one["name"] for one in get(f"{address}api/contents/")["content"]} == {"notebooks", "fixtures"}
    listed = {one["name"] for one in get(f"{address}api/contents/notebooks")["content"]}
    assert listed >= {f"{path.name}" for path in (folder / "notebooks").glob("*.ipynb")} >= {"01_quickstart.ipynb"}
    for path in sorted((folder / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        links = re.findall(r"\]\((?!\w+:|#)([^)\s#]+)", "\n".join(texts(notebook)))
        assert [link for link in links if not (folder / "notebooks" / link).exists()] == []
        paths = re.findall(r"\.\./fixtures/[\w./-]*", "\n".join(cell.source for cell in notebook.cells))
        assert [one for one in paths if not (folder / "notebooks" / one.rstrip(".")).exists()] == []
    notebook = nbformat.read(folder / "notebooks" / "01_quickstart.ipynb", as_version=4)
    # One kernel for both: to start it and to import what they show takes as long as all of their cells.
    before = [nbformat.v4.new_code_cell(code) for code in (block_of("What it looks like"), CHECKED, "%reset -f")]
    notebook.cells[:0] = before
    execute(notebook, folder / "notebooks")
    assert before[1].outputs[0].text.startswith(str(clean))
