"""Storages for runs: their common contract, and the particulars of a SQLite file: other formats, faults, processes."""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import os
import pickle
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentlab.errors import StorageError
from agentlab.storage import MemoryStorage, SqliteStorage, StoredRun
from agentlab.storage.sqlite import APPLICATION_ID, MIGRATIONS, VERSION
from agentlab.testing import StorageContract
from agentlab.testing.contracts import head, steps


class TestMemory(StorageContract):
    lasts = False

    @pytest.fixture
    def make(self) -> Callable[[], MemoryStorage]:
        return MemoryStorage


class TestSqlite(StorageContract):
    @pytest.fixture
    def make(self, tmp_path: Path) -> Callable[[], SqliteStorage]:
        return lambda: SqliteStorage(tmp_path / "runs.db")


class TestSqliteInMemory(StorageContract):
    lasts = False

    @pytest.fixture
    def make(self) -> Callable[[], SqliteStorage]:
        return lambda: SqliteStorage(":memory:")


def is_sound(path: Path) -> bool:
    database = sqlite3.connect(path)
    try:
        return bool(database.execute("PRAGMA integrity_check").fetchone() == ("ok",))
    finally:
        database.close()


def test_a_storage_that_is_freed_closes_its_connection(tmp_path: Path) -> None:
    storage = SqliteStorage(tmp_path / "runs.db")
    database = storage._database
    del storage
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        database.execute("SELECT 1")


# Read-only disks ---------------------------------------------------------------------------------------------------------------

READS = """
import json, sys
from agentlab.errors import StorageError
from agentlab.storage import SqliteStorage
from agentlab.testing.contracts import head, steps

storage = SqliteStorage(sys.argv[1])
found = [[run.head.run_id, run.steps] for run in storage.runs()], storage.notes("remark"), len(storage.steps("run"))
refused = []
for write in (
    lambda: storage.begin(head("new")), lambda: storage.note("run", "remark", "x"), lambda: storage.delete("run"),
    lambda: storage.claim("run", "w2", instead_of="w1"), lambda: storage.add("run", "w1", steps(3)),
):
    try:
        write()
    except StorageError as error:
        refused.append(str(error))
storage.close()
print(json.dumps([*found, refused]))
"""


def read_where_nothing_can_be_written(path: Path) -> Any:
    """What a process reads from the file on a disk mounted read-only, which applies to root too."""
    program = [sys.executable, "-W", "error", "-c", READS, str(path)]
    mounted = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    kept = {one.name: one.read_bytes() for one in path.parent.iterdir()}
    if subprocess.run(["unshare", "--map-root-user", "--mount", "true"], check=False, capture_output=True).returncode == 0:
        program = ["unshare", "--map-root-user", "--mount", "sh", "-c", mounted, str(path.parent), *program]
    else:
        assert os.getuid(), "root needs `unshare --mount` for this test"
        path.parent.chmod(0o555)
    done = subprocess.run(program, check=False, capture_output=True, text=True)
    path.parent.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert {one.name: one.read_bytes() for one in path.parent.iterdir() if not one.name.endswith("-shm")} == {
        name: data for name, data in kept.items() if not name.endswith("-shm")
    }
    return json.loads(done.stdout)


def kept_file(path: Path, how: str) -> None:
    """A file with one run of two steps, left by a process that closed it or was killed."""
    if how == "of-an-earlier-version":
        raw(
            path, *MIGRATIONS[0], "PRAGMA user_version = 1", f"PRAGMA application_id = {APPLICATION_ID}",
            "INSERT INTO runs (number, run_id, begun_at, writer, head) VALUES (1, 'run', 1.5, 'w1', '{}')",
            "INSERT INTO steps VALUES (1, 1, '{}', '{}'), (1, 2, '{}', '{}')",
        )  # fmt: skip
        return
    storage = SqliteStorage(path)
    storage.begin(head("run"), steps(1, 2))
    storage.note("run", "remark", "seen")
    if how == "closed":
        storage.close()
        return
    left = {end: Path(f"{path}{end}").read_bytes() for end in ("", "-wal", "-shm")}
    storage.close()
    for end, data in left.items():
        if end != "-shm" or how == "killed":
            Path(f"{path}{end}").write_bytes(data)


@pytest.mark.parametrize("how", ["closed", "killed", "killed-and-copied", "of-an-earlier-version"])
def test_a_file_on_a_read_only_disk_can_be_read(tmp_path: Path, how: str) -> None:
    path = tmp_path / "disk" / "runs.db"
    path.parent.mkdir()
    kept_file(path, how)
    runs, notes, count, refused = read_where_nothing_can_be_written(path)
    assert (runs, count) == ([["run", 2]], 2)
    assert notes == ({} if how == "of-an-earlier-version" else {"run": "seen"})
    assert len(refused) == 5
    assert all(str(path) in reported and "cannot be written to" in reported for reported in refused)


# Formats -----------------------------------------------------------------------------------------------------------------------


def raw(path: Path, *statements: str) -> None:
    database = sqlite3.connect(path)
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()


def test_a_file_of_an_earlier_version_is_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    raw(
        path,
        *MIGRATIONS[0],
        "PRAGMA user_version = 1",
        f"PRAGMA application_id = {APPLICATION_ID}",
        "INSERT INTO runs (number, run_id, begun_at, writer, head) VALUES (1, 'run', 1.5, 'w1', '{}'), (2, 'empty', 2, 'w', '')",
        "INSERT INTO steps VALUES (1, 1, '{\"row\":1}', '{\"body\":1}'), (1, 2, '{\"row\":2}', '{\"body\":2}')",
    )
    for _ in range(2):
        storage = SqliteStorage(path)
        assert storage.runs(["run"]) == [StoredRun(head(), 2, None)]
        assert storage.runs(["empty"])[0].steps == 0
        assert storage.steps("run") == steps(1, 2)
        storage.close()
    storage = SqliteStorage(path)
    storage.add("run", "w1", steps(3), "end")
    assert storage.runs(["run"]) == [StoredRun(head(), 3, "end")]
    storage.close()


def test_a_newer_file_is_refused_and_left_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    SqliteStorage(path).close()
    raw(path, f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(
        StorageError, match=rf"newer agentlab \(format {VERSION + 1}; this version reads up to {VERSION}\): update agentlab"
    ):
        SqliteStorage(path)
    database = sqlite3.connect(path)
    assert database.execute("PRAGMA user_version").fetchone() == (VERSION + 1,)
    database.close()


def test_a_foreign_database_is_refused_and_left_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    raw(path, "CREATE TABLE runs (a)")
    before = path.read_bytes()
    with pytest.raises(StorageError, match="database of another program"):
        SqliteStorage(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"Dear diary, " * 1000, b"SQLite format 3\0" + b"\xff" * 4000], ids=["text", "header"])
def test_a_file_that_is_no_database_is_refused_and_left_unchanged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "diary"
    path.write_bytes(content)
    with pytest.raises(StorageError, match="damaged, or not a database"):
        SqliteStorage(path)
    assert path.read_bytes() == content


def test_an_empty_file_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "runs.db").touch()
    SqliteStorage(tmp_path / "runs.db").close()


# Faults ------------------------------------------------------------------------------------------------------------------------


def test_a_damaged_page_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    storage = SqliteStorage(path)
    storage.begin(head(), steps(*range(1, 2001)))
    storage.close()
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xee" * (len(content) - 8192)
    path.write_bytes(content)
    storage = SqliteStorage(path)
    with pytest.raises(StorageError, match=r"cannot be read: .*malformed"):
        storage.steps("run")
    with pytest.raises(StorageError):
        storage.add("run", "w1", steps(2001))
    storage.close()


@pytest.mark.parametrize(
    "where", ["no/such/folder/runs.db", ".", "/proc/runs.db"], ids=["no-folder", "a-folder", "read-only-folder"]
)
def test_an_unwritable_place_is_reported(tmp_path: Path, where: str) -> None:
    with pytest.raises(StorageError, match="Pass a file in a folder that exists and that you may write to"):
        SqliteStorage(tmp_path / where)


def test_a_closed_storage_says_so(tmp_path: Path) -> None:
    storage = SqliteStorage(tmp_path / "runs.db")
    storage.close()
    for do in (storage.runs, lambda: storage.steps("run"), lambda: storage.begin(head()), lambda: list(storage.rows())):
        with pytest.raises(StorageError, match=r"was closed: open it again with Store\("):
            do()


@pytest.mark.parametrize("is_replaced", [False, True], ids=["deleted", "replaced"])
def test_a_file_that_was_deleted_is_not_written_any_more(tmp_path: Path, is_replaced: bool) -> None:
    path = tmp_path / "runs.db"
    storage = SqliteStorage(path)
    storage.begin(head(), steps(1))
    path.rename(tmp_path / "away.db")  # with -wal and -shm left behind
    new = SqliteStorage(path) if is_replaced else None
    for do in (storage.runs, lambda: storage.steps("run"), lambda: storage.add("run", "w1", steps(2)), lambda: [*storage.rows()]):
        with pytest.raises(StorageError, match=r"was deleted or replaced after it was opened: open it again with Store\("):
            do()
    if new is None:
        (tmp_path / "away.db").rename(path)
        storage.add("run", "w1", steps(2))
        assert storage.steps("run") == steps(1, 2)
    else:
        new.begin(head(run_id="other"), steps(1))
        storage.close()
        new.add("other", "w1", steps(2))
        assert SqliteStorage(path).steps("other") == new.steps("other") == steps(1, 2)
        new.close()
    assert is_sound(path)


def test_a_full_disk_refuses_the_whole_write_and_loses_nothing(tmp_path: Path) -> None:
    storage = SqliteStorage(tmp_path / "runs.db")
    storage.begin(head(), steps(1))
    (pages,) = storage._database.execute("PRAGMA page_count").fetchone()
    storage._database.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageError, match=r"database or disk is full. Free some space"):
        storage.add("run", "w1", steps(*range(2, 500)), "end")
    assert storage.runs() == [StoredRun(head(), 1, None)]
    storage._database.execute("PRAGMA max_page_count = 1000000")
    storage.add("run", "w1", steps(*range(2, 500)), "end")
    assert storage.runs() == [StoredRun(head(), 499, "end")]
    storage.close()
    assert is_sound(tmp_path / "runs.db")


A_SMALL_DISK = """
import resource, signal, sys
from agentlab.errors import StorageError
from agentlab.storage import SqliteStorage
from agentlab.testing.contracts import head, steps
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
storage = SqliteStorage(sys.argv[1])
storage.begin(head())
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, -1))
kept = 0
try:
    while True:
        storage.add("run", "w1", steps(kept + 1))
        kept += 1
except StorageError as error:
    print(error, file=sys.stderr)
resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
storage.add("run", "w1", steps(kept + 1))
print(kept + 1)
"""


def test_a_file_at_the_systems_size_limit_keeps_its_content(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    done = subprocess.run([sys.executable, "-c", A_SMALL_DISK, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "cannot be written to" in done.stderr
    storage = SqliteStorage(path)
    assert storage.runs()[0].steps == int(done.stdout) > 10
    assert storage.steps("run") == steps(*range(1, int(done.stdout) + 1))
    storage.close()
    assert is_sound(path)


# Processes ---------------------------------------------------------------------------------------------------------------------

WRITE = """
import sys
import threading
from agentlab.storage import SqliteStorage
from agentlab.testing.contracts import head, steps
storage = SqliteStorage(sys.argv[1])
for run in range(10):
    run_id = f"{sys.argv[2]}-{run}"
    storage.begin(head(run_id))
    for step in range(1, 21):
        storage.add(run_id, "w1", steps(step), "end" if step == 20 else None)
"""


def test_processes_write_into_one_file_concurrently(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"  # it does not exist: they all try to create it
    command = [sys.executable, "-W", "error", "-c", WRITE, str(path)]
    writing = [subprocess.Popen([*command, str(number)], stderr=subprocess.PIPE) for number in range(3)]
    assert [(one.communicate()[1], one.returncode) for one in writing] == [(b"", 0)] * 3
    storage = SqliteStorage(path)
    assert sorted((run.head.run_id, run.steps, run.end) for run in storage.runs()) == [
        (f"{number}-{run}", 20, "end") for number in range(3) for run in range(10)
    ]
    assert all(storage.steps(run.head.run_id) == steps(*range(1, 21)) for run in storage.runs())
    storage.close()
    assert is_sound(path)


def test_a_file_that_another_process_is_creating_is_waited_for(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")  # which SQLite does not wait for when it switches to WAL
        ends = threading.Timer(0.2, other.execute, ["COMMIT"])
        ends.start()
        SqliteStorage(tmp_path / "runs.db").close()
        ends.join()


def test_a_forked_process_opens_the_file_for_itself(tmp_path: Path) -> None:
    storage = SqliteStorage(tmp_path / "runs.db")
    storage.begin(head(), steps(1))

    def child() -> None:
        storage.add("run", "w1", steps(2))
        os._exit(0)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 0
    storage.add("run", "w1", steps(3))
    assert storage.steps("run") == steps(1, 2, 3)
    storage.close()
    assert is_sound(tmp_path / "runs.db")


def test_pickling_a_storage_sends_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    storage = SqliteStorage("runs.db")
    storage.begin(head())
    monkeypatch.chdir("/")
    copy: Any = pickle.loads(pickle.dumps(storage))
    assert copy.runs() == storage.runs() != []
    copy.close()
    storage.close()
