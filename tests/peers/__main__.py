"""Runs every framework through the scenarios and prints the results: `python -m tests.peers [--write] [--only NAME …]`."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks.peers.setup import peers_node, peers_python
from tests.peers.read import IN_README, NAMES
from tests.peers.server import running
from tests.peers.table import PAGE, README, RECORD, ROOT, page, readme_part, recorded, table, versions, with_part

IN_JAVASCRIPT = {"ai-sdk": "ai_sdk.mjs", "openrouter": "openrouter.mjs"}
PATIENCE_S = 600


def command(who: str) -> list[str]:
    """The command that runs the driver of one framework in its environment."""
    if who in IN_JAVASCRIPT:
        return [str(peers_node()), IN_JAVASCRIPT[who]]
    python = sys.executable if who == "agentlab" else str(peers_python())
    return [python, "-m", f"tests.peers.drivers.{who.replace('-', '_')}_"]


def surroundings() -> dict[str, str]:
    """The environment without keys and with telemetry turned off."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().endswith(("_KEY", "_TOKEN", "_SECRET"))}
    return {**kept, "PYTHONPATH": str(ROOT), "LANGSMITH_TRACING": "false", "DO_NOT_TRACK": "1", "INSPECT_DISPLAY": "none"}


def observe(who: str, root: str) -> dict[str, Any]:
    """Run one driver. Raise with its output if it did not finish."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "facts.json"
        asked = command(who)
        here = peers_node().parents[2] if who in IN_JAVASCRIPT else ROOT
        done = subprocess.run(
            [*asked, root, str(file)],
            cwd=here,
            env=surroundings(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        if not file.exists():
            raise RuntimeError(f"The driver of {who} broke off:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        seen: dict[str, Any] = json.loads(file.read_text())
        return seen


def main() -> int:
    """Run, print, and write if requested."""
    parser = argparse.ArgumentParser(prog="python -m tests.peers", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the record, the README's table and docs/peers.md")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES), help="the others stay as they are in the record")
    options = parser.parse_args()
    peers: dict[str, Any] = dict(recorded()["peers"]) if RECORD.exists() else {}
    with running() as root:
        for who in options.only:
            print(f"{who} …", flush=True)
            peers[who] = observe(who, root)
    record = {"date": datetime.datetime.now(datetime.UTC).date().isoformat(), "peers": {who: peers[who] for who in NAMES}}
    for who in options.only:
        print(f"\n{NAMES[who]}, {versions(record, [who])}")
        for scenario, facts in peers[who]["facts"].items():
            print(f"  {scenario}: {json.dumps(facts, ensure_ascii=False)}")
    others = [who for who in NAMES if who not in IN_README]
    print("\n" + table(record, IN_README) + "\n\n" + table(record, ["agentlab", *others]))
    if options.write:
        RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        README.write_text(with_part(README.read_text(encoding="utf-8"), readme_part(record)), encoding="utf-8")
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(record), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
