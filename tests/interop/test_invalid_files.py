"""Invalid input to an importer: an error names it, and the file stays unchanged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentlab as lab
from agentlab.errors import ConfigurationError, StorageError

READERS: dict[str, Callable[[Any], Any]] = {
    "store": lab.importers.store,
    "parquet": lab.importers.parquet,
    "otel": lab.importers.otel,
    "inspect": lab.importers.inspect,
}


@pytest.mark.parametrize("given", [None, 5, 2.5], ids=repr)
@pytest.mark.parametrize("reader", READERS)
def test_an_invalid_path_is_named(reader: str, given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"pass a|pass the path"):
        READERS[reader](given)


def test_an_empty_file_is_no_store_and_stays_empty(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.touch()

    with pytest.raises(ConfigurationError, match="the file is empty"):
        lab.importers.store(path)
    assert path.read_bytes() == b""


def test_a_byte_order_mark_before_spans_is_ignored(tmp_path: Path) -> None:
    spans = {"resourceSpans": [{"scopeSpans": [{"spans": [{
        "traceId": "a" * 32, "spanId": "b" * 16, "name": "chat m", "startTimeUnixNano": "1", "endTimeUnixNano": "2000000001",
        "attributes": [
            {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
            {"key": "gen_ai.request.model", "value": {"stringValue": "m"}},
            {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "7"}},
            {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "3"}},
        ],
    }]}]}]}  # fmt: skip
    plain, marked = tmp_path / "plain.jsonl", tmp_path / "marked.jsonl"
    plain.write_text(json.dumps(spans), encoding="utf-8")
    marked.write_text(json.dumps(spans), encoding="utf-8-sig")

    for path in (plain, marked):
        made = lab.importers.otel(path)
        assert made.steps["total_tokens"].tolist() == [10] and not any("broken" in note for note in made.notes)


def test_a_broken_piece_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    path.write_text("hello\n", encoding="utf-8")

    with pytest.raises(StorageError, match="it has 1 broken piece, the first at"):
        lab.importers.otel(path)
