"""Known vulnerabilities of the pinned versions: `make audit`.

pip-audit asks the package index's advisory database, in a separate environment, `.venv-audit`. It counts a package that it
could not look up as one without faults, so it is first asked about a version with a well-known fault: if it does not find that,
nothing was looked up, and this script says so. The exit status is 1 if a fault was found, otherwise 0; with `--must-look-up` 2
if nothing could be looked up.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.supply.declared import CONSTRAINTS, REPOSITORY, pins

ENVIRONMENT = REPOSITORY / ".venv-audit"
TOOL = "pip-audit==2.10.1"
KNOWN_FAULT = "pyyaml==5.3"
"""CVE-2020-1747: arbitrary code from a YAML file. Looked up, never installed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """pip-audit's report: the faults by package, the number of packages it looked up, and those that it could not."""

    faults: tuple[str, ...]
    looked_up: int
    skipped: tuple[str, ...]


def read(text: str) -> Answer:
    """Parse pip-audit's JSON. Raise ValueError for anything else."""
    try:
        listed = json.loads(text)["dependencies"]
        skipped = tuple(one["name"] for one in listed if "skip_reason" in one)
        faults = tuple(
            f"{one['name']} {one['version']}: {', '.join([fault['id'], *fault['aliases']])}"
            + (f"; mended in {', '.join(fault['fix_versions'])}" if fault["fix_versions"] else "; not mended yet")
            for one in listed
            for fault in one.get("vulns", ())
        )
        return Answer(faults, len([one["name"] for one in listed]) - len(skipped), skipped)
    except (KeyError, TypeError) as error:
        raise ValueError(f"this is no answer of pip-audit ({type(error).__name__}: {error}): {text[:200]!r}") from error


def verdict(known: Answer | None, answer: Answer | None, *, must_look_up: bool = False) -> tuple[int, str]:
    """The exit status and the message. `known` is the answer about the known fault, None if there was none."""
    if known is None or not known.faults:
        return (2 if must_look_up else 0), (
            f"NOT AUDITED: no advisory database can be reached from here (the known fault of {KNOWN_FAULT} was not found). "
            "Nothing is known of the pinned versions; run `make audit` where there is one."
        )
    if answer is None:
        return 2, "NOT AUDITED: the database was there and then gave no answer about the pins. Try again."
    lines = [f"{answer.looked_up} pinned versions were looked up: {len(answer.faults)} known vulnerabilities."]
    lines += [f"  {fault}" for fault in answer.faults]
    if answer.skipped:
        lines.append(f"{len(answer.skipped)} could not be looked up: {', '.join(answer.skipped)}.")
    status = 1 if answer.faults else 2 if answer.skipped and must_look_up else 0
    return status, "\n".join(lines)


def ask(requirements: Path) -> Answer | None:
    """pip-audit's output for a file of pins; None if it has none."""
    command = [str(ENVIRONMENT / "bin" / "pip-audit"), "--requirement", str(requirements), "--no-deps", "--disable-pip"]
    done = subprocess.run(
        [*command, "--format", "json", "--progress-spinner", "off"], capture_output=True, text=True, check=False
    )
    try:
        return read(done.stdout)
    except ValueError:
        return None


def main(arguments: list[str]) -> int:
    """Audit constraints.txt."""
    pins(CONSTRAINTS)
    if not (ENVIRONMENT / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--clear", str(ENVIRONMENT)], check=True)
        python = str(ENVIRONMENT / "bin" / "python")
        with_uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python, TOOL]
        if subprocess.run(
            with_uv, stderr=subprocess.DEVNULL, check=False
        ).returncode:  # it is not there, or does not know the index
            subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", TOOL], check=True)
        (ENVIRONMENT / "ready").touch()
    with tempfile.TemporaryDirectory() as place:
        first = Path(place) / "known.txt"
        first.write_text(f"{KNOWN_FAULT}\n")
        known = ask(first)
    answer = ask(CONSTRAINTS) if known is not None and known.faults else None
    status, lines = verdict(known, answer, must_look_up="--must-look-up" in arguments)
    print(lines)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
