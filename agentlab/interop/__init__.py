"""Other tools' formats: runs recorded elsewhere as agentlab's frames, to plot, compare and backtest, and runs as OpenTelemetry spans.

    lab.importers.inspect("logs/")             .eval logs of Inspect: a run is an epoch of a sample
    lab.importers.otel("spans.jsonl")          OpenTelemetry GenAI spans as JSON lines: a run is an `invoke_agent` span, or a trace
    lab.importers.parquet("exported/")         an export of `store.export`, or your own steps.parquet
    lab.importers.store("runs.db")             a store of agentlab

Each returns an `Imported`: `.steps`, `.runs` and `.notes`. The frames have the columns of `lab.frame(results)` and `lab.frame(results,
"runs")`; values that a record lacks are NA, never 0 and never guessed, and `.notes` lists what was left out. Nothing in a record is
executed, and no path in it is opened.

The exporter is `otel_export` (`lab.telemetry`). May import everything up to storage.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentlab._internal.lazy import no_such_name

if TYPE_CHECKING:
    from agentlab.interop.import_inspect import inspect
    from agentlab.interop.import_otel import otel
    from agentlab.interop.import_own import parquet, store
    from agentlab.interop.rows import Imported

_MODULE_OF = {  # imported when first used: they load pandas, which the exporter does not need
    "Imported": "agentlab.interop.rows",
    "inspect": "agentlab.interop.import_inspect",
    "otel": "agentlab.interop.import_otel",
    "parquet": "agentlab.interop.import_own",
    "store": "agentlab.interop.import_own",
}

__all__ = ["Imported", "inspect", "otel", "parquet", "store"]


def __getattr__(name: str) -> Any:
    """Import a public name on first access."""
    if name not in _MODULE_OF:
        raise no_such_name("agentlab.importers", name, __all__)
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
