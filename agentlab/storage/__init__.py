"""Where runs are kept: a SQLite file, memory, or a class of your own that passes `agentlab.testing.StorageContract`."""

from agentlab.storage.base import Storage, StoredHead, StoredRun, StoredStep, check_order, check_writer
from agentlab.storage.memory import MemoryStorage
from agentlab.storage.sqlite import SqliteStorage

__all__ = ["MemoryStorage", "SqliteStorage", "Storage", "StoredHead", "StoredRun", "StoredStep", "check_order", "check_writer"]
