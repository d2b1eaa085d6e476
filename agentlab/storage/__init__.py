"""Where runs are kept: a SQLite file, memory, or a class of your own that passes `agentlab.testing.StorageContract`.

store        `lab.Store`: what a person keeps runs with
keeper       one run, kept step by step while it goes on
rebuild      a run put together again
children     the runs of its sub-agents, to be looked at
frames       what is kept, as DataFrames
parquet      as files for other tools, and back
cut_off      what sub-agents used in a step that was cut off with its process
run_json     steps and settings as text
but_for_keys how keys are taken out of what is kept, and how it is known again without them
writers      which process writes to a run
base         what a storage has to do; `memory` and `sqlite` are two
"""

from typing import TYPE_CHECKING

from agentlab.no_such_name import only
from agentlab.storage.base import Storage, StoredHead, StoredRun, StoredStep, check_order, check_writer
from agentlab.storage.memory import MemoryStorage
from agentlab.storage.sqlite import SqliteStorage

__all__ = ["MemoryStorage", "SqliteStorage", "Storage", "StoredHead", "StoredRun", "StoredStep", "check_order", "check_writer"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = only(__name__, __all__)
