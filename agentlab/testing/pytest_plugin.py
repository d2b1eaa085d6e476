"""The pytest plugin: a marked test runs on a recording, without a key or a network. pytest loads it wherever agentlab is installed.

    @pytest.mark.agentlab_replay                            cassettes/<file>/<class>.<test>-<parameters>.yaml, beside the file
    @pytest.mark.agentlab_replay("trip", match="order")     a file or a folder beside it; options of lab.replay

    pytest --agentlab-record=once       records what has no recording yet
    pytest --agentlab-record=rewrite    records everything again
    pytest --agentlab-record=none       records nothing: the default

Agents find the recording by themselves. Other clients of httpx or httpx2 take the fixture `agentlab_transport`. Recordings that a
passed test did not use, and recordings with a key, are warnings of the kind `agentlab.errors.AgentlabWarning`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from agentlab._internal.errors import AgentlabWarning

if TYPE_CHECKING:
    from agentlab.transport import Record, Replay
    from agentlab.transport.clients import RecordTransport, ReplayTransport

MARKER = "agentlab_replay"


_USED = pytest.StashKey["Record | Replay"]()
_PASSED = pytest.StashKey[bool]()
_REFUSED = pytest.StashKey[str]()
"""Why a request was refused in a test without a recording: the test may have caught the error."""
_RECORDED = pytest.StashKey[dict[Path, "Record"]]()
"""The recordings that this session makes. Tests with the same path share one."""
_SEARCHED = pytest.StashKey[set[Path]]()
"""The paths in which keys were looked for: once, however many tests replay them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--agentlab-record`."""
    parser.getgroup("agentlab").addoption(
        "--agentlab-record",
        choices=["none", "once", "rewrite"],
        default="none",
        help="for tests marked agentlab_replay: none replays (default), once records what is missing, rewrite records all again",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.stash[_RECORDED] = {}
    config.stash[_SEARCHED] = set()
    config.addinivalue_line(
        "markers", f'{MARKER}(path="cassettes/<file>/<test>.yaml", match="strict", pace=0.0): run the test on a recording'
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin the recording or the replay before any fixture of the test is made."""
    marker = item.get_closest_marker(MARKER)
    if marker is None:
        return
    from agentlab.transport import record, replay

    path, options = _arguments(item, marker)
    recorded, mode = item.config.stash[_RECORDED], item.config.getoption("--agentlab-record")
    if mode == "rewrite" and path not in recorded:
        _remove(path)
    if mode != "none" and (path in recorded or not path.exists()):
        used: Record | Replay = recorded.setdefault(path, record(path))
    elif path.exists():
        used = replay(path, **options)
        _report_keys(item, path)
    else:
        used = _missing(item, path)
    item.stash[_USED] = used.__enter__()


def _arguments(item: pytest.Item, marker: pytest.Mark) -> tuple[Path, dict[str, Any]]:
    """Return where the recording is, and the options for its replay."""
    options = dict(marker.kwargs)
    paths = [*marker.args, options.pop("path")] if "path" in options else marker.args
    if len(paths) > 1 or options.keys() - {"match", "pace"}:
        given = ", ".join([*map(repr, marker.args), *(f"{name}={value!r}" for name, value in marker.kwargs.items())])
        pytest.fail(
            f"@pytest.mark.{MARKER}({given}): pass at most one path, and match= and pace= as to lab.replay.", pytrace=False
        )
    own = f"cassettes/{item.path.stem}/{_file_name(item)}.yaml"
    return item.path.parent / (paths[0] if paths else own), options


def _file_name(item: pytest.Item) -> str:
    """Return a name that no other test of the file has: with a hash where other tests have the same letters and digits."""
    classes = [node.name for node in item.listchain() if isinstance(node, pytest.Class)]  # the id has more under xdist
    name = ".".join([*classes, item.name.replace("[", "-", 1).removesuffix("]")])
    if re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", name):
        return name
    return f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)[:100].strip('-.')}-{sha256(name.encode()).hexdigest()[:8]}"


def _missing(item: pytest.Item, path: Path) -> Replay:
    """Return a replay that has no recording: only a request is an error, since recording writes no file for a test without one."""
    from agentlab.errors import ReplayMissError
    from agentlab.transport import Replay
    from agentlab.transport.replaying import ReplayIndex

    class Missing(ReplayIndex):
        def find(self, *_: object, **__: object) -> NoReturn:
            item.stash[_REFUSED] = f"{path} does not exist. Record it: pytest --agentlab-record=once {item.nodeid}"
            raise ReplayMissError(item.stash[_REFUSED])

    return Replay(Missing(()), pace=0)


def _remove(path: Path) -> None:
    from agentlab.transport.cassette import cassette_files

    for file in cassette_files(path) if path.is_dir() else [path]:
        file.unlink(missing_ok=True)


def _report_keys(item: pytest.Item, path: Path) -> None:
    from agentlab._internal.redaction import redact
    from agentlab.transport.cassette import cassette_files

    if path in item.config.stash[_SEARCHED]:
        return
    item.config.stash[_SEARCHED].add(path)
    for file in cassette_files(path) if path.is_dir() else [path]:
        text = file.read_text("utf-8", "replace")
        if redact(text) != text:
            item.warn(AgentlabWarning(f"{file} contains a key. Revoke it, and record again: agentlab leaves keys out."))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Note whether the test passed."""
    report: pytest.TestReport = yield  # type: ignore[assignment]  # a wrapper gets the result of the hook
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    return report  # type: ignore[return-value]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """End the recording or the replay, and report what was not used."""
    used = item.stash.get(_USED, None)
    if used is None:
        return
    used.__exit__(None, None, None)
    if not item.stash.get(_PASSED, False):
        return
    if _REFUSED in item.stash:
        pytest.fail(item.stash[_REFUSED], pytrace=False)
    index = getattr(used, "index", None)
    if index is not None and (unused := index.unused):
        more = f" and {len(unused) - 1} more" if len(unused) > 1 else ""
        item.warn(AgentlabWarning(f"{item.name} did not use {unused[0].source}{more}: delete it, or record again."))


@pytest.fixture
def agentlab_transport(request: pytest.FixtureRequest) -> ReplayTransport | RecordTransport | Any:
    """The transport of the marked test for clients of httpx or httpx2, sync or async: `httpx.Client(transport=agentlab_transport)`."""
    used = request.node.stash.get(_USED, None)
    if used is None:
        raise pytest.UsageError(f"agentlab_transport needs @pytest.mark.{MARKER} at {request.node.name}.")
    return used.transport()
