"""Where runs are stored: a SQLite file, memory, or a class of your own that passes `agentlab.testing.StorageContract`.

base         the interface of a storage; `memory` and `sqlite` implement it
codec        steps, settings and events as JSON, without keys, and back
interrupted  sub-agents and tools of a step that was interrupted with its process
writer       records one run, step by step, while it runs
loader       rebuilds a stored run
store        `lab.Store`, which people use
frames       stored runs as DataFrames
parquet      stored runs as Parquet files, and back
"""

from typing import TYPE_CHECKING

from agentlab._internal.lazy import only
from agentlab.storage.base import Storage, StoredHead, StoredRun, StoredStep, check_order, check_writer
from agentlab.storage.memory import MemoryStorage
from agentlab.storage.sqlite import SqliteStorage

__all__ = ["MemoryStorage", "SqliteStorage", "Storage", "StoredHead", "StoredRun", "StoredStep", "check_order", "check_writer"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = only(__name__, __all__)
