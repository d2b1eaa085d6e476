"""Both distributions, built and installed by pip into an empty environment: `make light`. Needs a package index.

First agentlab-core is installed and used, then agentlab-jupyter over it, and then that one is uninstalled again. Prints how many
packages and megabytes each has, for docs/start/index.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.supply.declared import CONSTRAINTS, REPOSITORY

PROGRAM = Path(__file__).with_name("core_program.py")


def size_of(site: Path) -> tuple[int, float]:
    """The number of distributions in a folder, and their megabytes."""
    return len(list(site.glob("*.dist-info"))), sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) / 1e6


def use(python: Path) -> dict[str, Any]:
    """The output of the program; fails if the core does not work."""
    done = subprocess.run([str(python), "-W", "error", str(PROGRAM), str(REPOSITORY)], check=True, capture_output=True, text=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    assert (answer["ended"], answer["stored"]) == ("stop_condition", "stop_condition")
    return answer


def main() -> int:
    """Build, install, use and uninstall."""
    with tempfile.TemporaryDirectory() as place:
        tools, clean, dist = (Path(place, name) for name in ("tools", "clean", "dist"))
        for environment in (tools, clean):
            subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        quiet = ["-m", "pip", "--quiet"]
        subprocess.run([str(tools / "bin" / "python"), *quiet, "install", "build", "hatchling"], check=True)
        build = [str(tools / "bin" / "python"), str(REPOSITORY / "release" / "build.py"), "--to", str(dist)]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        python = clean / "bin" / "python"
        (site,) = clean.glob("lib/python*/site-packages")
        pip = size_of(site)
        install = [str(python), *quiet, "install", "--no-compile", "--find-links", str(dist), "--constraint", str(CONSTRAINTS)]
        for name, needs_more in (("agentlab-core", True), ("agentlab-jupyter", False)):
            subprocess.run([*install, name], check=True)
            subprocess.run([str(python), *quiet, "check"], check=True)
            packages, megabytes = (here - before for here, before in zip(size_of(site), pip, strict=True))
            missing = [code for code, said in use(python)["expressions"].items() if "pip install agentlab-jupyter" in said]
            assert bool(missing) is needs_more, missing
            print(f"{name:17} {packages:3} packages, {megabytes:4.0f} MB; not available: {', '.join(missing) or 'nothing'}")
        subprocess.run([str(python), *quiet, "uninstall", "--yes", "agentlab-jupyter"], check=True)
        use(python)
        print("agentlab-core still works after agentlab-jupyter was uninstalled.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
