"""Stores runs: in a SQLite file, in memory, or in a class of your own that passes `agentlab.testing.StorageContract`.

May import: `agent`, `run`, `engine` and what is below them.

    base     the `Storage` protocol, and runs in memory
    sqlite   stores runs in a SQLite file
    codec    encodes steps, settings and events as JSON without API keys, and decodes them
    store    `lab.Store`, the interface for users
    writer   records one run while it runs
    loader   rebuilds a stored run, also one that was interrupted within a step
    listing  the runs of a store at a glance
    frames   stored runs as DataFrames
    parquet  exports stored runs as Parquet files, and imports them
"""

from typing import TYPE_CHECKING

from agentlab._internal.names import module_hooks
from agentlab.storage.base import MemoryStorage, Storage, StoredHead, StoredRun, StoredStep, check_order, check_writer
from agentlab.storage.sqlite import SqliteStorage

__all__ = ["MemoryStorage", "SqliteStorage", "Storage", "StoredHead", "StoredRun", "StoredStep", "check_order", "check_writer"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = module_hooks(__name__, __all__)
