"""`python -m agentlab demo` and `lab`: what they print, and what they write."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentlab.__main__ import INSTRUCTIONS, MODELS, PROMPT, main
from agentlab.errors import ConfigurationError
from agentlab.notebook.course import lay_out
from tests.fixtures.scenarios import SCENARIOS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")


def test_the_demo_is_the_scenario_of_its_recording() -> None:
    trip = next(one for one in SCENARIOS if one.name == "trip")
    assert (PROMPT, INSTRUCTIONS, len(MODELS)) == (trip.prompt, trip.instructions, len(trip.providers))


@pytest.mark.usefixtures("narrow")
def test_the_demo_shows_steps_reasons_and_a_lower_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for shown in (
        "Step 1: 237 tokens, $0.0003",
        '  get_weather({"city":"Graz","day":"2027-06-12"})',
        '    {"city":"Graz","sky":"rain","high_c":17}',
        "Stopped (stop_condition): Stop condition met:",
        "Stopped (cost_budget): Budget reached: max_cost $0.007008 of",
        "  python -m agentlab lab",
    ):
        assert shown in lines
    assert sum(line.startswith("Step ") for line in lines) == 4 + 4 + 5 + 2
    assert any(line.endswith("...") for line in lines)
    assert max(map(len, lines)) <= 60
    assert "\x1b" not in "".join(lines)  # no terminal, no styles


@pytest.mark.usefixtures("narrow")
def test_the_demo_prints_to_any_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert main(["demo"]) == 0
    sys.stdout.flush()
    assert b"sunny with 24 ?C" in written.getvalue()


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(("variables", "styled"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_the_demo_has_styles_in_a_terminal_only(variables: dict[str, str], styled: bool) -> None:
    import pty

    parent, child = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    command = [sys.executable, "-m", "agentlab", "demo"]
    with subprocess.Popen(command, cwd=ROOT, env=environment | variables, stdout=child, stdin=child) as running:
        os.close(child)
        text = b""
        while b"agentlab lab" not in text:
            text += os.read(parent, 65536)
        os.close(parent)
        assert running.wait() == 0
    assert (b"\x1b[1m" in text) is styled


def test_the_course_is_copied_and_changed_files_are_kept(tmp_path: Path) -> None:
    assert lay_out(tmp_path) == []
    notebook, recording = tmp_path / "notebooks" / "01_quickstart.ipynb", tmp_path / "fixtures" / "trip" / "openai.yaml"
    assert notebook.read_bytes() == (ROOT / "notebooks" / "01_quickstart.ipynb").read_bytes()
    notebook.write_text("mine")
    recording.unlink()
    assert lay_out(tmp_path) == ["notebooks/01_quickstart.ipynb"]
    assert notebook.read_text() == "mine"
    assert recording.exists()


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = tmp_path / "file"
    taken.touch()
    with pytest.raises(ConfigurationError, match=f"The course cannot be copied to {taken}: .*Name another folder"):
        lay_out(taken)
    assert main(["lab", str(taken)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_without_jupyterlab_the_course_is_copied_and_the_sentence_says_what_to_install(tmp_path: Path) -> None:
    check = "import sys; sys.modules['jupyterlab'] = None; from agentlab.__main__ import main; sys.exit(main(['lab', 'here']))"
    done = subprocess.run(
        [sys.executable, "-c", check], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert 'JupyterLab is not installed: pip install "agentlab-jupyter[lab]"' in done.stderr
    assert (tmp_path / "here" / "notebooks" / "01_quickstart.ipynb").exists()
