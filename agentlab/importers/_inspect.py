"""Runs out of .eval logs of Inspect: a run is an epoch of a sample, a step a call of the model with the tools that it called."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentlab.errors import ConfigurationError, StorageError
from agentlab.importers import _inspect_reader
from agentlab.importers._files import Where, files_of
from agentlab.importers._imported import Imported
from agentlab.importers._inspect_run import Told, run_of_sample
from agentlab.importers._rows import frames
from agentlab.redaction import without_keys

ENDINGS = (".eval",)
LARGEST_PART_BYTES = 512 * 2**20
"""Of a sample, unpacked: a few kilobytes of zip may hold far more."""
LOGS_AT_ONCE = 20
"""Logs that one process of Inspect reads: starting it takes two seconds, and what it has read of a log it need not keep."""


def inspect(logs: Where, *, python: str | Path | None = None) -> Imported:
    """The samples of Inspect's .eval logs: a file, a folder, a pattern or a list of them.

    They are read by Inspect's own dataframe reader, in a process of its own. `python` is the Python that has inspect-ai, where that is
    another environment than this one; without, the package is needed here: the extra `agentlab-jupyter[inspect]`.

    - a run is an epoch of a sample; `task`, `sample`, `epoch` and `log` are further columns of the runs frame, `score` is the first
      scorer's and `score.<name>` each one's, where there are several, as numbers ("C" 1, "P" 0.5, "I" and "N" 0)
    - a step is a call of a model, sub-agents' calls included, with the tools that were called; what a scorer asked a model is no step
    - input tokens include what was read from and written to a cache; an answer out of Inspect's own cache used nothing
    - `stop_reason` is the sample's limit or error, else what the last response says of it

    Raises ConfigurationError where there is no such file or no Inspect, StorageError where no log can be read.

    Example:
        >>> lab.importers.inspect("no-such-folder/")
        Traceback (most recent call last):
            ...
        agentlab.errors.ConfigurationError: inspect(…): there is nothing at 'no-such-folder/'; pass a file, a fo...
    """
    paths = files_of(logs, ENDINGS, "inspect(…)")
    source = str(paths[0]) if len(paths) == 1 else f"{len(paths):,} logs"
    return from_lines(_lines(paths, _python(python)), source)


def from_lines(lines: Iterable[Mapping[str, Any]], source: str) -> Imported:
    """The same of what the reader printed."""
    told = Told()
    runs = [
        run_of_sample(line["sample"], Path(without_keys(str(line["log"]))).stem, told)
        for line in lines
        if not told.failed_log(line)
    ]
    if not runs:
        why = f": {told.failures[0]}" if told.failures else ", they hold no samples"
        raise StorageError(f"No run can be read from {source}{why}. Expected are .eval logs as `inspect eval` writes them.")
    return Imported(*frames(runs), tuple(told.sentences()), source=source)


def _python(python: str | Path | None) -> str:
    if python is not None:
        return str(python)
    if find_spec("inspect_ai") is None:
        raise ConfigurationError(
            "Reading Inspect's logs needs the package inspect-ai: pip install 'agentlab-jupyter[inspect]'; or, where it is in another "
            "environment, pass its Python: lab.importers.inspect(…, python='/path/to/env/bin/python')."
        )
    return sys.executable


def _lines(paths: Sequence[Path], python: str) -> Iterator[dict[str, Any]]:
    """What the reader prints of these logs."""
    fit = []
    for path in paths:
        if why_not := _why_not(path):
            yield {"log": str(path), "failed": why_not}
        else:
            fit.append(path)
    for begin in range(0, len(fit), LOGS_AT_ONCE):
        some = [str(path.resolve()) for path in fit[begin : begin + LOGS_AT_ONCE]]
        isolated = [] if python == sys.executable else ["-I"]  # what is set for this environment is not for another
        yield from _printed([python, *isolated, str(Path(_inspect_reader.__file__)), *some], python)


def _why_not(path: Path) -> str:
    """Why a log is not given to Inspect, which unpacks each part of it into memory; empty where nothing is against it."""
    if not zipfile.is_zipfile(path):
        return "" if path.suffix == ".json" else "it is no zip file, as .eval logs are"
    try:
        with zipfile.ZipFile(path) as log:
            largest = max(log.infolist(), key=lambda part: part.file_size, default=None)
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        return f"it cannot be unpacked: {error}"
    if largest is not None and largest.file_size > LARGEST_PART_BYTES:
        return f"{largest.filename[:100]!r} in it unpacks to {largest.file_size:,} bytes, more than {LARGEST_PART_BYTES:,}"
    return ""


def _printed(command: Sequence[str], python: str) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryFile() as errors:
        try:
            reader = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL)  # noqa: S603
        except OSError as error:
            raise ConfigurationError(f"inspect(…, python={python!r}): it cannot be started: {error.strerror}.") from error
        with reader, contextlib.ExitStack() as done:
            done.callback(reader.kill)  # of a reader that has ended this does nothing
            for line in reader.stdout or ():
                try:
                    yield json.loads(line)
                except ValueError:  # something that was printed beside it
                    continue
            if reader.wait():
                errors.seek(0)
                last = errors.read().decode(errors="replace").strip().rpartition("\n")[2][-500:]
                if "inspect_ai" in last and "ModuleNotFoundError" in last:
                    raise ConfigurationError(
                        f"inspect(…): {python!r} has no package inspect-ai; pass the Python of one that has it."
                    )
                raise StorageError(f"Inspect could not read the logs: {last or f'it ended with {reader.returncode}'}")
