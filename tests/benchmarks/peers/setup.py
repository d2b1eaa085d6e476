"""Makes the peers' environment, so that the peers' dependencies never mix with this project's."""

import os
import shutil
import subprocess
import venv
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
CONSTRAINTS = Path(__file__).with_name("constraints.txt")
"""The peers' dependencies, as in `pip freeze`, so that an environment made next year is the same."""
ENVIRONMENT = ROOT / ".venv-peers"
PACKAGES = ROOT / "tests" / "peers" / "node"
NODE = ROOT / ".venv-peers-node"


@cache
def peers_python() -> Path:
    """The interpreter that has the peers. Installs them if they are missing or their versions changed."""
    python = ENVIRONMENT / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    installed = ENVIRONMENT / "installed.txt"  # a copy of the requirements, written last: it marks a complete installation
    wanted = REQUIREMENTS.read_text()
    asked = wanted + CONSTRAINTS.read_text()
    if not installed.exists() or installed.read_text() != asked:
        print("Installing the peers, once:", ", ".join(wanted.split()), flush=True)
        venv.create(ENVIRONMENT, clear=True, with_pip=True)
        command = [python, "-m", "pip", "install", "-qq", "--constraint", CONSTRAINTS, "--requirement", REQUIREMENTS]
        subprocess.run(command, check=True)
        installed.write_text(asked)
    return python


@cache
def peers_node() -> Path:
    """The Node that has the JavaScript peers, itself one of their packages: the system's may be too old."""
    node = NODE / "node_modules" / ".bin" / "node"
    wanted = (PACKAGES / "package.json").read_text()
    installed = NODE / "package.json"
    if not node.exists() or not installed.exists() or installed.read_text() != wanted:
        if shutil.which("npm") is None:
            raise OSError("npm is not there: install Node, or leave the peers in JavaScript out with --only.")
        print("Installing the peers in JavaScript, once.", flush=True)
        shutil.rmtree(NODE, ignore_errors=True)
        NODE.mkdir()
        (NODE / "package.json").write_text(wanted)
        command = ["npm", "install", "--silent", "--no-package-lock", "--no-audit", "--no-fund"]
        subprocess.run(command, cwd=NODE, check=True)
    for program in PACKAGES.glob("*.mjs"):  # Node finds the packages beside them
        shutil.copy(program, NODE)
    return node


if __name__ == "__main__":
    print(peers_python())
