"""Coverage-guided fuzzing: `make fuzz`, or `python -m tests.fuzz.with_atheris --seconds 60 --provider all` with atheris installed.

Each provider is fuzzed in a separate process that starts from our fixtures and reports libFuzzer's counts. A failed property
does not end the run: it is kept, once per place in the code, with the bytes that caused it, under test-output/fuzz.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import re
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from zlib import crc32

OUTPUT = Path(__file__).parents[2] / "test-output" / "fuzz"
LONGEST_BYTES = 20_000
SLOWEST_S = 20
"""An input that takes longer is a finding too."""


def main() -> int:
    """Fuzz each provider in turn; return 1 if a property failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for all providers together")
    parser.add_argument("--provider", default="all")
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)
    given, rest = parser.parse_known_args()
    if given.inside:
        fuzz(given.provider, Path(given.inside), rest)
        return 0
    from tests.fuzz.wires import PROVIDERS

    names = PROVIDERS if given.provider == "all" else tuple(given.provider.split(","))
    seconds = max(2, round(given.seconds / len(names)))
    print(f"{'provider':<22}{'executions':>12}{'coverage':>10}{'new':>7}{'findings':>10}", flush=True)
    found = sum(run(name, seconds) for name in names)
    if found:
        print(f"The findings are in {OUTPUT}.")
    return 1 if found else 0


def run(provider: str, seconds: int) -> int:
    """Fuzz one provider in a separate process; print a line and return the number of failed properties."""
    from tests.fuzz.seeds import seeds

    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus")
        corpus.mkdir()
        for seed in seeds(provider):
            Path(corpus, f"{crc32(seed.body):08x}").write_bytes(seed.body)
        findings = Path(folder, "findings.jsonl")
        command = [sys.executable, "-m", "tests.fuzz.with_atheris", "--provider", provider, "--inside", str(findings)]
        options = [f"-max_total_time={seconds}", f"-max_len={LONGEST_BYTES}", f"-timeout={SLOWEST_S}", "-rss_limit_mb=0"]
        done = subprocess.run([*command, *options, f"-artifact_prefix={folder}/", str(corpus)], capture_output=True, check=False)
        output = done.stderr.decode("utf-8", "replace")
        failures = [json.loads(line) for line in findings.read_text().splitlines()] if findings.exists() else []
        crashed = re.search(r"Done \d+ runs", output) is None
    executions = re.search(r"Done (\d+) runs", output)
    begun, covered = re.search(r"INITED cov: (\d+)", output), re.findall(r"cov: (\d+)", output)
    new = int(covered[-1]) - int(begun[1]) if begun and covered else 0
    count = executions[1] if executions else "?"
    print(f"{provider:<22}{count:>12}{covered[-1] if covered else '?':>10}{new:>7}{len(failures) + crashed:>10}", flush=True)
    for failure in failures:
        print(f"  {failure['file']}: {failure['error']}")
    if crashed:
        print("\n".join(output.splitlines()[-30:]))
    return len(failures) + crashed


def fuzz(provider: str, findings: Path, options: list[str]) -> None:
    """Run the fuzzer; libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["agentlab.providers"]):
        from tests.fuzz import mutations, properties, seeds  # and with them the providers
    logging.disable(logging.CRITICAL)
    others = [seed.body for seed in seeds.all_seeds()]
    known: set[str] = set()

    def test_one_input(data: bytes) -> None:
        chance = random.Random(crc32(data))
        places = [chance.randrange(len(data) + 1) for _ in range(chance.randrange(8))]
        for body in (data, data[: mutations.place(chance, data)]):
            try:
                properties.check_anything(provider, body, places, chance.choice((None, None, 0, 5, 80)))
            except Exception as error:
                _keep(error, body)

    def _keep(error: Exception, data: bytes) -> None:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        finding = f"{type(error).__name__} in {frame.name}, line {frame.lineno}: {frame.line}"
        if finding in known:
            return
        known.add(finding)
        OUTPUT.mkdir(parents=True, exist_ok=True)
        file = OUTPUT / f"{provider}-{crc32(data):08x}"
        file.write_bytes(data)
        with findings.open("a") as lines:
            lines.write(json.dumps({"file": file.name, "error": f"{finding} {str(error)[:200]}"}) + "\n")

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.5:
            return bytes(atheris.Mutate(data, max_size))
        return mutations.mutated(chance, data, chance.choice(others))[:max_size]

    atheris.Setup([sys.argv[0], *options], test_one_input, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
