"""Prints the table of goals as measured now: `python -m tests.benchmarks [--only SUBJECT …] [--no-peers] [--json FILE]`."""

import argparse
import importlib
import json
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from subprocess import CalledProcessError

from tests.benchmarks.peers.setup import peers_python
from tests.benchmarks.table import Row, render

SUBJECTS = (
    "scripted_loop",
    "loopback",
    "stream_events",
    "signals",
    "replay",
    "what_if",
    "suggest_coverage",
    "frames",
    "interval_coverage",
    "coverage",
    "panel",
    "store",
    "experiments",
    "many_runs",
)
"""The light ones first: imports of one subject are memory that the garbage collector has to walk in the next."""


def main() -> int:
    """Run the subjects one after the other; return 1 if one of them broke, regardless of the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, default=SUBJECTS, help="leave the other subjects out")
    parser.add_argument("--no-peers", action="store_true", help="measure floors and agentlab only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there as well")
    options = parser.parse_args()
    with_peers = not options.no_peers
    if with_peers:
        try:
            peers_python()
        except (OSError, CalledProcessError) as failure:
            print(f"The peers could not be installed and are left out: {failure}", file=sys.stderr)
            with_peers = False
    rows: list[Row] = []
    broken = False
    for subject in options.only:
        started = time.monotonic()
        print(f"{subject} …", flush=True)
        try:
            rows.extend(importlib.import_module(f"tests.benchmarks.{subject}").rows(with_peers))
        except Exception:  # one broken subject must not cost the figures of the others
            traceback.print_exc()
            broken = True
        print(f"  {time.monotonic() - started:.0f} s", flush=True)
    print("\n" + render(rows))
    verdicts = Counter(row.verdict for row in rows if row.at_most is not None)
    print(", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common()))
    if options.json:
        options.json.write_text(json.dumps([row.as_dict() for row in rows], indent=2) + "\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
