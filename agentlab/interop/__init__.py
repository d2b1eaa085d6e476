"""Runs that other tools recorded, as the frames that agentlab's own runs have, to plot, compare and backtest.

    lab.importers.inspect("logs/")             .eval logs of Inspect: a run is an epoch of a sample
    lab.importers.otel("spans.jsonl")          OpenTelemetry GenAI spans as JSON lines: a run is an `invoke_agent` span, or a trace
    lab.importers.parquet("exported/")         what `store.export` wrote, or a steps.parquet of your own
    lab.importers.store("runs.db")             a store of agentlab

Each gives an `Imported`: `.steps`, `.runs` and `.notes`. The frames have the columns of `lab.frame(results)` and `lab.frame(results,
"runs")`; what a record does not say is NA, never 0 and never guessed, and `.notes` tells in sentences what was left out.

What is read is text from outside: nothing in it is executed, and no path in it is opened.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentlab.no_such_name import no_such_name

if TYPE_CHECKING:
    from agentlab.interop.import_inspect import inspect
    from agentlab.interop.import_otel import otel
    from agentlab.interop.import_own import parquet, store
    from agentlab.interop.rows import Imported

_MODULE_OF = {  # imported when first used: they load pandas, which OpenTelemetry's observer does without
    "Imported": "agentlab.interop.rows",
    "inspect": "agentlab.interop.import_inspect",
    "otel": "agentlab.interop.import_otel",
    "parquet": "agentlab.interop.import_own",
    "store": "agentlab.interop.import_own",
}

__all__ = ["Imported", "inspect", "otel", "parquet", "store"]


def __getattr__(name: str) -> Any:
    """A public name, whose file is imported when it is first used."""
    if name not in _MODULE_OF:
        raise no_such_name("agentlab.importers", name, __all__)
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
