"""Record the study of the notebooks: `make record-local`.

Runs every task of `fixtures/study/tasks.jsonl` with both models, at two temperatures and two output caps, on three wires, and
writes each request and response as it came into `fixtures/study`. It can be interrupted and started again: a finished run is not
repeated, an unfinished one goes on after its last step. On two cores it takes about two hours.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import sys
from pathlib import Path

import pandas as pd

import agentlab as lab

from .llama_server import GEMMA, QWEN, ServedModel, find_local_model, llama_server
from .record import PORT, REPOSITORY, environment, origin, say

sys.path.insert(0, str(REPOSITORY / "notebooks"))

import study

SLOTS = 8
"""The number of runs at once."""

STORE = REPOSITORY / "build" / "study.db"
"""What is finished. Delete it to record everything again."""


HASHES = Path(__file__).with_name("study_frames.json")
"""The hashes of the frames of the recorded runs: a replay gives the same frames."""


def recording(agent: lab.Agent) -> Path:
    """The file with the recordings of an agent."""
    return study.FOLDER / f"{agent.name.replace(' ', '-')}.json.gz"


def origin_of(served: ServedModel, python: Path) -> dict[str, object]:
    """The origin that is stored in each recording."""
    file = find_local_model(served, python).model
    return {
        **origin(python, served),
        "model_file_sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "server": f"{SLOTS} slots, prompts' common beginnings kept",
    }


TIMES = {"begun_at", "called_at", "detection_s", "duration_s", "elapsed_s", "recording", "replayed", "started_s"}
"""Columns of the frames with what differs between a recording and its replay: times, and where the response was."""


def experiment(agent: lab.Agent, **more: object) -> lab.Experiment:
    """All tasks of an agent under both caps."""
    return lab.Experiment({agent.name: agent}, study.tasks(), study.SETTINGS, name=agent.name, score=study.solved, **more)  # type: ignore[arg-type]


def hashes(results: lab.ExperimentResults) -> dict[str, str]:
    """The hash of each frame, without the columns of TIMES."""
    frames = {"runs": results.runs, "steps": results.steps, "calls": results.calls, "tools": results.tools}
    return {name: _hash(frame.drop(columns=TIMES & {*frame.columns})) for name, frame in frames.items()}


def _hash(frame: pd.DataFrame) -> str:
    values = frame.astype(object).where(frame.notna(), None)
    text = json.dumps([[*values.columns], values.to_numpy().tolist()], default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def known_hashes() -> dict[str, dict[str, str]]:
    """The hashes of the frames of the recorded runs, by agent."""
    return json.loads(HASHES.read_text()) if HASHES.exists() else {}


async def record(agent: lab.Agent, source: dict[str, object]) -> None:
    """Run what is left of an agent's tasks."""
    STORE.parent.mkdir(exist_ok=True)
    with lab.record(recording(agent), origin=source):
        results = await experiment(agent, store=STORE).run(concurrency=SLOTS)
    HASHES.write_text(json.dumps(known_hashes() | {agent.name: hashes(results)}, indent=1) + "\n")
    solved = results.runs["score"].sum()
    say(f"{agent.name:24} {len(results.runs)} runs, {solved:g} solved, {recording(agent).stat().st_size / 1e3:.0f} kB")


def main() -> None:
    """Start the server of each model and record."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--python", type=Path, help="an environment that has the server and the models; default: .venv-local")
    arguments.add_argument("--model", choices=tuple(study.MODELS), help="one model; default: both")
    arguments.add_argument("--wire", choices=study.WIRES, help="one wire; default: all")
    given = arguments.parse_args()
    python = given.python or environment()
    for served in (GEMMA, QWEN):
        agents = [one for one in study.agents().values() if one.model.model == served.name]
        agents = [
            one for one in agents if given.wire in (None, one.name.split()[-1]) and given.model in (None, one.name.split()[0])
        ]
        if agents:
            with llama_server(python, served, port=PORT, threads=2, slots=SLOTS):
                for agent in agents:
                    asyncio.run(record(agent, origin_of(served, python)))


if __name__ == "__main__":
    main()
