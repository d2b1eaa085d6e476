"""The contracts of providers and storages, as tests for pytest: subclass `ProviderContract` or `StorageContract` in a test file.

class TestMyProvider(ProviderContract):
    @pytest.fixture
    def provider(self):
        return MyProvider(model="some-model", api_key="a made-up key")

    @pytest.fixture
    def bodies(self):  # the vendor's answers, with their finish reasons
        return [(json.loads(text), FinishReason.END_TURN), …]

    @pytest.fixture
    def stream(self):  # a complete stream; None if the wire has none
        return b'data: {"choices": …'

class TestMyStorage(StorageContract):
    @pytest.fixture
    def make(self, tmp_path):
        return lambda: MyStorage(tmp_path)

In a notebook, without pytest: `verify(ProviderContract, provider=…, bodies=…, stream=…)`.
"""

from __future__ import annotations

import inspect
import json
import logging
import pickle
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias
from unittest import SkipTest

from agentlab.errors import ConfigurationError, MissingKeyError, StorageError
from agentlab.model.finish_reasons import Confidence, FinishReason
from agentlab.model.messages import JSON, Message, ModelRequest, ToolSpec
from agentlab.model.responses import ModelResponse
from agentlab.providers.base import Capabilities, Provider
from agentlab.storage import Storage, StoredHead, StoredRun, StoredStep
from agentlab.transport.http import HttpRequest

Bodies: TypeAlias = Sequence[tuple[JSON, FinishReason]]

_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
_TOOL = ToolSpec("look_at_the_sky", "What the sky is like.", _SCHEMA, json.dumps(_SCHEMA))
_REQUEST = ModelRequest((Message("user", "Is it Grüße, or ☂?"),), "Say it in short.", (_TOOL,), max_output_tokens=77)
_ODD: tuple[JSON, ...] = (
    None,
    True,
    0,
    -1.5,
    "",
    "nonsense",
    [],
    [[]],
    {},
    {"": None},
    {"error": None},
    {"error": {"message": 5}},
)
_CLEAN = (FinishReason.END_TURN, FinishReason.STOP_SEQUENCE, FinishReason.TOOL_CALLS)


class ProviderContract:
    """Subclass it with the fixtures `provider`, `bodies` and `stream`.

    `provider` is the provider to test, with a made-up key; `bodies` are answers with their finish reasons; `stream` is a complete
    stream as bytes, or None if the wire has none.

    Example:
        >>> from agentlab.testing import ProviderContract, verify
        >>> body = {"choices": [{"message": {"content": "In Paris."}, "finish_reason": "stop"}]}
        >>> tried = verify(
        ...     ProviderContract,
        ...     provider=lambda: lab.Provider("openai", model="gpt-5.4-mini", api_key="a made-up key"),
        ...     bodies=lambda: [(body, lab.FinishReason.END_TURN)],
        ...     stream=lambda: None,
        ... )
        >>> len(tried.kept), tried.broken, len(tried.left_out)
        (8, {}, 3)
    """

    def test_it_names_itself(self, provider: Provider) -> None:
        """A provider has a name for `provider:model` strings, a wire, a model and its capabilities."""
        assert provider.name
        assert not set(provider.name) & set(":@ ")
        assert provider.wire
        assert provider.model
        assert isinstance(provider.capabilities, Capabilities)

    def test_it_is_a_value(self, provider: Provider) -> None:
        """A provider can be copied to another process, and compared."""
        copied = pickle.loads(pickle.dumps(provider))  # noqa: S301  pickled in the same line
        assert copied == provider
        assert hash(copied) == hash(provider)

    def test_it_shows_no_key(self, provider: Provider) -> None:
        """Neither the provider's repr nor its requests, which are recorded, contain a key."""
        request = provider.build_request(_REQUEST)
        shown = f"{provider!r} {provider!s} {request.url} {dict(request.headers)!r} {request.body!r}"
        for value in _auth(provider, request).values():
            assert value not in shown
            assert value.removeprefix("Bearer ") not in shown

    def test_a_request_has_what_was_asked(self, provider: Provider) -> None:
        """Requests are JSON with the prompt, the instructions, the cap and, if supported, the tools."""
        for stream in (False, True) if provider.capabilities.streaming else (False,):
            request = provider.build_request(replace(_REQUEST, stream=stream))
            assert isinstance(request, HttpRequest)
            assert request.url.startswith(("http://", "https://"))
            body = json.dumps(json.loads(request.body), ensure_ascii=False)
            assert _REQUEST.messages[0].text in body
            assert _REQUEST.instructions in body
            assert str(_REQUEST.max_output_tokens) in body
            assert _TOOL.name in body or not provider.capabilities.tools

    def test_the_same_question_is_the_same_request(self, provider: Provider) -> None:
        """Requests are equal byte by byte; otherwise no recording would match."""
        assert provider.build_request(_REQUEST) == provider.build_request(_REQUEST)

    def test_finish_reasons_are_as_documented(self, provider: Provider, bodies: Bodies) -> None:
        """Each body is read with its finish reason, and with the place of the vendor's value."""
        for body, reason in bodies:
            signal = provider.parse(body).signal
            assert signal.finish_reason is reason, f"{signal.raw_value!r} means {reason}, and is read as {signal.finish_reason}"
            assert signal.provider == provider.name
            assert signal.raw_field

    def test_closed_tool_calls_are_complete(self, provider: Provider, bodies: Bodies) -> None:
        """The arguments of a closed tool call are JSON."""
        for body, _ in bodies:
            for call in provider.parse(body).tool_calls:
                assert call.name
                assert not call.closed or isinstance(json.loads(call.arguments), dict)

    def test_no_response_raises(self, provider: Provider, bodies: Bodies) -> None:
        """Parsing raises neither for other JSON nor for a body with a missing or odd part."""
        for body in (*_ODD, *(damaged for whole, _ in bodies for damaged in _damaged(whole))):
            assert isinstance(provider.parse(body), ModelResponse)
            assert isinstance(provider.error_message(body), str)
        for body in _ODD:
            assert not _is_clean_end(provider.parse(body))

    def test_a_stream_reads_the_same_in_any_pieces(self, provider: Provider, stream: bytes | None) -> None:
        """A stream gives the same response at once, byte by byte, or split in two at any byte."""
        whole = _require(stream)
        expected = _read(provider, whole)
        assert expected.text or expected.tool_calls
        assert _is_clean_end(expected), f"its end is read as {expected.signal.finish_reason} ({expected.signal.confidence})"
        assert _read(provider, *(bytes([byte]) for byte in whole)) == expected
        for at in range(len(whole)):
            assert _read(provider, whole[:at], whole[at:]) == expected

    def test_a_broken_stream_is_not_a_clean_end(self, provider: Provider, stream: bytes | None) -> None:
        """A stream that breaks off before its last event does not end with high confidence."""
        whole = _require(stream)
        for at in range(_last_event(whole) + 1):
            assert not _is_clean_end(_read(provider, whole[:at]))

    def test_streams_do_not_mix(self, provider: Provider, stream: bytes | None) -> None:
        """Two streams at once through one provider, and two in turn through one parser, give separate responses."""
        whole = _require(stream)
        expected = _read(provider, whole)
        first, second = provider.stream_parser(), provider.stream_parser()
        for at in range(0, len(whole), 7):
            first.feed(whole[at : at + 7])
            second.feed(whole[at : at + 7])
        for parser in (first, second):
            parser.finish()
            assert parser.response() == expected
        first.reset()
        first.feed(whole)
        first.finish()
        assert first.response() == expected
        assert first.sound


def _auth(provider: Provider, request: HttpRequest) -> dict[str, str]:
    sign = getattr(provider, "sign", None)
    try:
        found: dict[str, str] = provider.auth_headers() if sign is None else sign(request)
    except MissingKeyError as error:
        raise AssertionError("give the provider a made-up key for the test to look for") from error
    return found


def _require(stream: bytes | None) -> bytes:
    if stream is None:
        raise SkipTest("no stream was given")
    return stream


def _read(provider: Provider, *pieces: bytes) -> ModelResponse:
    parser = provider.stream_parser()
    for piece in pieces:
        parser.feed(piece)
    signal = parser.finish()
    response = parser.response()
    assert response.signal == signal
    return response


def _is_clean_end(response: ModelResponse) -> bool:
    return response.signal.confidence is Confidence.HIGH and response.signal.finish_reason in _CLEAN


def _last_event(stream: bytes) -> int:
    """Return the start of the last event of a text stream, or the middle of a binary one."""
    text = stream.replace(b"\r\n", b"\n\n").rstrip(b"\n")  # keeps the offsets
    found = text.rfind(b"\n\n")
    return len(stream) // 2 if found < 0 else found


def _damaged(body: JSON) -> Iterator[JSON]:
    """Yield the body with each of its parts missing, or replaced by an odd value."""
    if isinstance(body, dict):
        for key, value in body.items():
            yield {name: kept for name, kept in body.items() if name != key}
            for odd in (*_ODD[:8], *_damaged(value)):
                yield {**body, key: odd}
    elif isinstance(body, list):
        for index, value in enumerate(body):
            yield body[:index] + body[index + 1 :]
            for odd in (*_ODD[:8], *_damaged(value)):
                yield [*body[:index], odd, *body[index + 1 :]]


Make = Callable[[], Storage]


# Storages -----------------------------------------------------------------------------------------------------------------------

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

    `lasts` is True if the storage still has its runs when it is opened again.

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
        """Head, steps and end are returned unchanged."""
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
        """Forks do, and so do runs whose recording starts after some steps."""
        storage = make()
        storage.begin(head(), steps(1, 2), "{}")
        assert storage.runs() == [StoredRun(head(), 2, "{}")]
        assert storage.steps("run") == steps(1, 2)
        storage.close()

    def test_notes_come_back(self, make: Make) -> None:
        """The newest note of each name is kept until the run is deleted."""
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
        """The last end is kept; None does not change it."""
        storage = make()
        storage.begin(head())
        for end in ("first", "second", None):
            storage.add("run", "w1", [], end)
        assert storage.runs()[0].end == "second"
        storage.close()

    def test_runs_are_in_the_order_of_their_start(self, make: Make) -> None:
        """Neither the ids nor the order of the request matters."""
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
        """Steps that are not consecutive are refused as a whole, and nothing changes."""
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
        """A second start is refused, and the run does not change."""
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
        """The error of every operation names the missing id."""
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
        """The id of a deleted run can be used again."""
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
        """Each thread writes to its own run, while other threads read."""
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
        """A storage that is opened again has its runs; closing it twice is allowed."""
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


# Without pytest -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verified:
    """The outcome of each claim of a contract: the names in `kept`, and those in `broken` and `left_out` with their reasons.

    Example:
        >>> from agentlab.storage import MemoryStorage
        >>> class Forgetful(lab.testing.StorageContract):
        ...     lasts = False
        >>> lab.testing.verify(Forgetful, make=lambda: MemoryStorage)
        Forgetful: 13 of 13 hold
          holds     a run comes back as it was given
        ...
    """

    contract: str
    kept: tuple[str, ...]
    broken: dict[str, str]
    left_out: dict[str, str]

    @property
    def ok(self) -> bool:
        """True if every claim that was checked holds, and at least one was.

        Example:
            >>> from agentlab.storage import MemoryStorage
            >>> tried = lab.testing.verify(lab.testing.StorageContract, make=lambda: MemoryStorage)
            >>> tried.ok, list(tried.broken)
            (False, ['runs outlive the storage object'])
        """
        return bool(self.kept) and not self.broken

    def __repr__(self) -> str:
        tried = len(self.kept) + len(self.broken)
        lines = [f"{self.contract}: {len(self.kept)} of {tried} hold"]
        lines += [f"  holds     {name}" for name in self.kept]
        lines += [f"  BROKEN    {name}: {reason}" for name, reason in self.broken.items()]
        lines += [f"  left out  {name}: {reason}" for name, reason in self.left_out.items()]
        return "\n".join(lines)


def verify(contract: type, **fixtures: Callable[[], Any]) -> Verified:
    """Run the tests of a contract and return the outcome of each.

    verify(StorageContract, make=lambda: MyStorage)
    verify(ProviderContract, provider=lambda: MyProvider(…), bodies=lambda: BODIES, stream=lambda: STREAM)

    A fixture is a function without arguments, called for each test that has its name as a parameter, as in pytest. Raises
    ConfigurationError for a missing one.

    Example:
        >>> from agentlab.storage import MemoryStorage
        >>> class Forgetful(lab.testing.StorageContract):
        ...     lasts = False
        >>> lab.testing.verify(Forgetful, make=lambda: MemoryStorage).ok
        True
    """
    kept: list[str] = []
    broken: dict[str, str] = {}
    left_out: dict[str, str] = {}
    names = [name for kind in reversed(contract.__mro__) for name in vars(kind) if name.startswith("test_")]
    for name in dict.fromkeys(names):
        claim = name.removeprefix("test_").replace("_", " ")
        test = getattr(contract(), name)
        wanted = list(inspect.signature(test).parameters)
        missing = [fixture for fixture in wanted if fixture not in fixtures]
        if missing:
            raise ConfigurationError(
                f"verify({contract.__name__}) needs {missing[0]}=, a function without arguments: `{name}` uses it."
            )
        try:
            with _quiet():
                test(**{fixture: fixtures[fixture]() for fixture in wanted})
        except SkipTest as reason:
            left_out[claim] = str(reason)
        except Exception as error:
            broken[claim] = _error_line(error)
        else:
            kept.append(claim)
    return Verified(contract.__name__, tuple(kept), broken, left_out)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence agentlab's logs: contracts pass nonsense to the objects that they test."""
    logger = logging.getLogger("agentlab")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _error_line(error: Exception) -> str:
    """Return the first line of the error's message, else the line of the test that raised it."""
    line = traceback.extract_tb(error.__traceback__)[-1].line or ""
    words = str(error).partition("\n")[0] or line
    return words if isinstance(error, AssertionError) else f"{type(error).__name__}: {words}"
