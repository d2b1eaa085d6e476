"""Formats of other tools: imports runs that were recorded elsewhere, exports runs as OpenTelemetry spans, and calls MCP servers.

    lab.importers.inspect("logs/")             .eval logs of Inspect: a run is an epoch of a sample
    lab.importers.otel("spans.jsonl")          OpenTelemetry GenAI spans as JSON lines: a run is an `invoke_agent` span, or a trace
    lab.importers.parquet("exported/")         an export of `store.export`, or your own steps.parquet
    lab.importers.store("runs.db")             a store of agentlab

Each returns an `Imported` with `.steps`, `.runs` and `.notes`. The frames have the columns of `lab.frame(results)` and
`lab.frame(results, "runs")`; values that a record lacks are NA, never 0 and never guessed, and `.notes` lists the data that were left
out. Nothing in a record is executed, and no path in it is opened.

May import: `storage` and what is below it.

    rows             the frames of imported runs, and helpers of all importers
    import_own       imports stores of agentlab and their exports
    import_inspect   imports .eval logs of Inspect
    inspect_reader   a separate program that reads the logs with Inspect's library
    import_otel      imports OpenTelemetry GenAI spans
    spans            reads spans from JSON, and their GenAI attributes
    otel_export      exports runs as spans and metrics (`lab.telemetry`)
    otel_spans       the exported spans and metrics of one run, and the links between runs
    otel_attributes  the names of spans, metrics and attributes
    mcp_tools        the tools of MCP servers, for `lab.tools.from_mcp`: connection, calls, recording and replay
"""

from typing import TYPE_CHECKING

from agentlab._internal.names import module_hooks
from agentlab.interop.import_inspect import inspect
from agentlab.interop.import_otel import otel
from agentlab.interop.import_own import parquet, store
from agentlab.interop.rows import Imported

__all__ = ["Imported", "inspect", "otel", "parquet", "store"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = module_hooks("agentlab.importers", __all__)
