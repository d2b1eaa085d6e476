"""The kernel tests on several versions of ipykernel: `make kernels`.

Each version gets a small environment, `.venv-kernel-VERSION`, with that ipykernel and its dependencies; everything else comes
from the current environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
VERSIONS = ("6.31.0", "7.1.0", "7.4.0")


def environment(version: str) -> Path:
    """The Python of an environment with this ipykernel, made if it is missing."""
    folder = REPOSITORY / f".venv-kernel-{version}"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", f"ipykernel=={version}"], check=True)
        ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
        packages = Path(subprocess.run([str(python), "-c", ask], capture_output=True, text=True, check=True).stdout.strip())
        (packages / "rest.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")  # after its own packages
        (folder / "ready").touch()
    return python


def main() -> int:
    """Run tests/kernel once for each version."""
    pythons = os.pathsep.join(str(environment(version)) for version in VERSIONS)
    command = [sys.executable, "-m", "pytest", str(Path(__file__).parent), *sys.argv[1:]]
    return subprocess.run(command, env={**os.environ, "AGENTLAB_KERNEL_PYTHONS": pythons}, cwd=REPOSITORY, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
