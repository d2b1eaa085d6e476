"""Storage of runs: a SQLite file, memory, or a class of your own that passes `agentlab.testing.StorageContract`.

May import: `agent`, `run`, `engine` and what is below them.

    base     what a storage has to do
    sqlite   runs in a file
    memory   runs in memory
    codec    steps, settings and events as JSON, without keys, and back
    store    `lab.Store`, which people use
    writer   records one run while it runs
    loader   rebuilds a run, also of an interrupted step
    frames   stored runs as DataFrames
    parquet  stored runs as Parquet files, and back
"""

from typing import TYPE_CHECKING

from agentlab._internal.lazy import only
from agentlab.storage.base import Storage, StoredHead, StoredRun, StoredStep, check_order, check_writer
from agentlab.storage.memory import MemoryStorage
from agentlab.storage.sqlite import SqliteStorage

__all__ = ["MemoryStorage", "SqliteStorage", "Storage", "StoredHead", "StoredRun", "StoredStep", "check_order", "check_writer"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = only(__name__, __all__)
