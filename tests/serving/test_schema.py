"""Schemathesis sends every request that the OpenAPI document allows, and others: no 5xx, and every answer as documented.

Its own command runs it against a real server, so that all its phases are included: examples, the document's edge cases, random
bodies.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import agentlab as lab

from .builders import parrot, serving

ACCEPTED = "[checks.positive_data_acceptance]\nexpected-statuses = ['2xx', 401, 403, 404, 409, 424]\n"
"""Answers to a request that the document allows; 424 is a run that ended at a limit of the request."""


def test_every_answer_is_as_documented(tmp_path: Path) -> None:
    """With a token: without one, a server gives the same answers, and a 401 to nobody."""
    command = [str(Path(sys.executable).with_name("schemathesis")), "run", "--max-examples", "18", "--no-color"]
    command += ["--generation-deterministic", "--header", "Authorization:Bearer open-sesame"]
    with serving(parrot(budget=lab.Budget(max_turns=20)), token="open-sesame") as client:
        (tmp_path / "schemathesis.toml").write_text(ACCEPTED)
        document = tmp_path / "openapi.json"
        document.write_text(client.get("/openapi.json", headers={"authorization": "Bearer open-sesame"}).text)
        done = subprocess.run(
            [*command, str(document), "--url", str(client.base_url)],
            capture_output=True, text=True, check=False, cwd=tmp_path, timeout=110,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "5 selected / 5 total" in done.stdout
