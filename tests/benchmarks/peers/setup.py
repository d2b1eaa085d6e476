"""Makes the peers' environment, so that what they need never mixes with what this project needs."""

import os
import subprocess
import venv
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
ENVIRONMENT = ROOT / ".venv-peers"


@cache
def peers_python() -> Path:
    """The interpreter that has the peers. Installs them where they are not there yet or their versions have changed."""
    python = ENVIRONMENT / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    installed = ENVIRONMENT / "installed.txt"  # a copy of the requirements, written last: it says that all went well
    wanted = REQUIREMENTS.read_text()
    if not installed.exists() or installed.read_text() != wanted:
        print("Installing the peers, once:", ", ".join(wanted.split()), flush=True)
        venv.create(ENVIRONMENT, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-qq", "--requirement", REQUIREMENTS], check=True)
        installed.write_text(wanted)
    return python


if __name__ == "__main__":
    print(peers_python())
