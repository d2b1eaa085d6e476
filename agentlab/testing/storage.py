"""The contract of a storage, as tests for pytest: subclass `StorageContract` in a test file.

class TestMyStorage(StorageContract):
    @pytest.fixture
    def make(self, tmp_path):
        return lambda: MyStorage(tmp_path)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import ClassVar

from agentlab.errors import StorageError
from agentlab.storage import Storage, StoredHead, StoredRun, StoredStep

Make = Callable[[], Storage]

ODD_TEXT = '{"text":"Grüße, \\ud83d, \x7f \u2028 ☂ 日本"}'


def head(run_id: str = "run", *, writer: str = "w1", begun_at: float = 1.5, body: str = "{}") -> StoredHead:
    """Return the head of a run."""
    return StoredHead(run_id, begun_at, writer, body)


def steps(*numbers: int) -> list[StoredStep]:
    """Return steps with these numbers."""
    return [StoredStep(number, f'{{"row":{number}}}', f'{{"body":{number}}}') for number in numbers]


def refused(do: Callable[[], object]) -> str:
    """Return the message of the StorageError that `do` must raise."""
    try:
        do()
    except StorageError as error:
        return str(error)
    raise AssertionError("no StorageError was raised")


class StorageContract:
    """Subclass it with a fixture `make`: a function without arguments that opens the same storage each time, empty at first.

    `lasts` is True if runs are still there when the storage is opened again.

    Example:
        >>> from agentlab.storage import MemoryStorage
        >>> class TestMine(lab.testing.StorageContract):
        ...     lasts = False
        >>> storage = MemoryStorage()
        >>> TestMine().test_a_run_comes_back_as_it_was_given(lambda: storage)
        >>> len(storage.runs())
        1
    """

    lasts: ClassVar[bool] = True

    def test_a_run_comes_back_as_it_was_given(self, make: Make) -> None:
        """Head, steps and end are unchanged."""
        storage, kept = make(), head(body=ODD_TEXT)
        storage.begin(kept)
        assert storage.runs() == [StoredRun(kept, 0, None)]
        storage.add("run", "w1", steps(1))
        odd = StoredStep(2, ODD_TEXT, ODD_TEXT)
        storage.add("run", "w1", [odd, *steps(3)])
        assert storage.runs() == [StoredRun(kept, 3, None)]
        storage.add("run", "w1", steps(4), ODD_TEXT)
        assert storage.runs(["run"]) == [StoredRun(kept, 4, ODD_TEXT)]
        assert storage.steps("run") == [*steps(1), odd, *steps(3, 4)]
        assert list(storage.rows()) == [("run", step.row) for step in storage.steps("run")]
        storage.close()

    def test_a_run_may_begin_with_steps(self, make: Make) -> None:
        """Forks do, and runs stored from their middle on."""
        storage = make()
        storage.begin(head(), steps(1, 2), "{}")
        assert storage.runs() == [StoredRun(head(), 2, "{}")]
        assert storage.steps("run") == steps(1, 2)
        storage.close()

    def test_notes_come_back(self, make: Make) -> None:
        """The newest text of each name is kept until the run is deleted."""
        storage = make()
        storage.begin(head())
        storage.begin(head("other"))
        for run_id, name, text in (
            ("run", "score", "1"),
            ("other", "score", ODD_TEXT),
            ("run", "tag", "x"),
            ("run", "score", "2"),
        ):
            storage.note(run_id, name, text)
        assert storage.notes("score") == {"run": "2", "other": ODD_TEXT}
        assert storage.notes("nothing") == {}
        assert storage.notes("score", ["run", "absent"]) == {"run": "2"}
        assert storage.notes("tag", ["other"]) == {}
        storage.delete("run")
        storage.begin(head())
        assert storage.notes("score") == {"other": ODD_TEXT}
        assert "no run 'absent'" in refused(lambda: storage.note("absent", "score", "1"))
        assert "no run 'absent'" in refused(lambda: storage.runs(["absent"]))
        storage.close()

    def test_an_end_may_be_replaced(self, make: Make) -> None:
        """The last one counts; None keeps it."""
        storage = make()
        storage.begin(head())
        for end in ("first", "second", None):
            storage.add("run", "w1", [], end)
        assert storage.runs()[0].end == "second"
        storage.close()

    def test_runs_are_in_the_order_of_their_start(self, make: Make) -> None:
        """Neither their ids nor the order of the request matters."""
        storage = make()
        for number, run_id in enumerate(("z", "a", "m")):
            storage.begin(head(run_id, begun_at=9.0 - number), steps(1))
        storage.add("z", "w1", steps(2))
        assert [run.head.run_id for run in storage.runs()] == ["z", "a", "m"]
        assert [run.head.run_id for run in storage.runs(["m", "z", "m"])] == ["z", "m"]
        assert [run_id for run_id, _ in storage.rows()] == ["z", "z", "a", "m"]
        assert list(storage.rows(["m", "z"])) == [("z", '{"row":1}'), ("z", '{"row":2}'), ("m", '{"row":1}')]
        assert (storage.runs([]), list(storage.rows([]))) == ([], [])
        storage.close()

    def test_steps_are_consecutive(self, make: Make) -> None:
        """Others are refused as a whole, and nothing changes."""
        storage = make()
        storage.begin(head())
        storage.add("run", "w1", steps(1))
        for wrong in (steps(1), steps(3), steps(2, 4), steps(2, 2), steps(3, 2)):
            assert "1 steps" in refused(lambda wrong=wrong: storage.add("run", "w1", wrong, "end"))  # type: ignore[misc]
        refused(lambda: storage.begin(head("other"), steps(2)))
        assert storage.runs() == [StoredRun(head(), 1, None)]
        assert storage.steps("run") == steps(1)
        storage.close()

    def test_a_run_begins_once(self, make: Make) -> None:
        """A second start is refused, and the first stays as it is."""
        storage = make()
        storage.begin(head(), steps(1))
        assert "run" in refused(lambda: storage.begin(head(writer="w2", body="other")))
        assert storage.runs() == [StoredRun(head(), 1, None)]
        storage.close()

    def test_only_its_writer_writes_to_a_run(self, make: Make) -> None:
        """After a claim the old writer is refused, and so is a second claim from it."""
        storage = make()
        storage.begin(head())
        storage.claim("run", "w2", instead_of="w1")
        assert storage.runs()[0].head.writer == "w2"
        refused(lambda: storage.claim("run", "w3", instead_of="w1"))
        refused(lambda: storage.add("run", "w1", steps(1)))
        refused(lambda: storage.add("run", "w1", [], "end"))
        storage.add("run", "w2", steps(1))
        assert storage.runs() == [StoredRun(head(writer="w2"), 1, None)]
        storage.close()

    def test_a_missing_run_is_an_error(self, make: Make) -> None:
        """Every operation names its id."""
        storage = make()
        storage.begin(head())
        for do in (
            lambda: storage.runs(["run", "missing"]),
            lambda: storage.steps("missing"),
            lambda: list(storage.rows(["missing"])),
            lambda: storage.add("missing", "w1", steps(1)),
            lambda: storage.claim("missing", "w2", instead_of="w1"),
            lambda: storage.delete("missing"),
        ):
            assert "missing" in refused(do)
        storage.close()

    def test_a_deleted_run_is_gone_and_the_others_are_not(self, make: Make) -> None:
        """Its id can be used again."""
        storage = make()
        for run_id in ("a", "b"):
            storage.begin(head(run_id), steps(1))
        storage.delete("a")
        assert [run.head.run_id for run in storage.runs()] == ["b"]
        assert [run_id for run_id, _ in storage.rows()] == ["b"]
        storage.begin(head("a"))
        assert (storage.steps("a"), storage.steps("b")) == ([], steps(1))
        storage.close()

    def test_threads_may_write_at_the_same_time(self, make: Make) -> None:
        """Each writes to its own run, while another one reads."""
        storage, failures = make(), []

        def write(number: int) -> None:
            try:
                storage.begin(head(f"r{number}"))
                for step in range(1, 21):
                    storage.add(f"r{number}", "w1", steps(step))
                    list(storage.rows())
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert failures == []
        assert sorted((run.head.run_id, run.steps) for run in storage.runs()) == [(f"r{number}", 20) for number in range(4)]
        storage.close()

    def test_runs_outlive_the_storage_object(self, make: Make) -> None:
        """A storage opened again has its runs; closing it twice is allowed."""
        storage = make()
        storage.begin(head(), steps(1), "end")
        storage.close()
        storage.close()
        again = make()
        assert again.runs() == ([StoredRun(head(), 1, "end")] if self.lasts else [])
        again.close()

    def test_reading_does_not_block_writing(self, make: Make) -> None:
        """Steps can be added while rows are read one by one."""
        storage = make()
        storage.begin(head(), steps(1, 2))
        rows: Iterator[tuple[str, str]] = iter(storage.rows())
        assert next(rows) == ("run", '{"row":1}')
        storage.add("run", "w1", steps(3))
        assert len(list(rows)) in (1, 2)
        storage.close()
