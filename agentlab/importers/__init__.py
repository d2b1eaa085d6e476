"""Runs that other tools recorded, as the frames that agentlab's own runs have, to plot, compare and backtest.

    lab.importers.inspect("logs/")             .eval logs of Inspect: a run is an epoch of a sample
    lab.importers.otel("spans.jsonl")          OpenTelemetry GenAI spans as JSON lines: a run is an `invoke_agent` span, or a trace
    lab.importers.parquet("exported/")         what `store.export` wrote, or a steps.parquet of your own
    lab.importers.store("runs.db")             a store of agentlab

Each gives an `Imported`: `.steps`, `.runs` and `.notes`. The frames have the columns of `lab.frame(results)` and `lab.frame(results,
"runs")`; what a record does not say is NA, never 0 and never guessed, and `.notes` tells in sentences what was left out.

What is read is text from outside: nothing in it is executed, and no path in it is opened.
"""

from typing import TYPE_CHECKING

from agentlab.importers._imported import Imported
from agentlab.importers._inspect import inspect
from agentlab.importers._otel import otel
from agentlab.importers._own import parquet, store
from agentlab.no_such_name import only

__all__ = ["Imported", "inspect", "otel", "parquet", "store"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = only(__name__, __all__)
