"""What made a run: versions, the git commit, the model and its address, and hashes of prompt, tools and responses.

A run collects it when it is first asked for, or stored. Versions and the commit are collected once per process.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field, fields
from importlib import metadata
from typing import Any

import agentlab
from agentlab._internal.display import Displayable
from agentlab._internal.redaction import redact, redact_url, redacted_repr, text_of
from agentlab._internal.values import dataclass
from agentlab.model import messages as message_json
from agentlab.model.messages import JSON, Message
from agentlab.records.history import RunHistory

LIBRARIES = ("genai-prices", "httpx", "numpy", "pandas", "pydantic", "scipy")
"""The libraries that answers, costs and figures depend on."""

GIT_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Process(Displayable):
    """The process that took the steps of a run. None is unknown.

    `libraries` has versions by name. `commit` is the git commit of the folder in which the process worked, when it recorded its first
    run; `dirty` is True if files that git tracks differed from it.

    Example:
        >>> result.provenance.process.agentlab == lab.__version__
        True
    """

    agentlab: str | None = None
    python: str | None = None
    platform: str | None = None
    libraries: Mapping[str, str] = field(default_factory=dict)
    commit: str | None = None
    dirty: bool | None = None


@functools.cache
def this_process() -> Process:
    """Return the versions and the commit of this process."""
    system = " ".join(part for part in (platform.system(), platform.release(), platform.machine()) if part)
    return Process(agentlab.__version__, platform.python_version(), system, dict(_versions()), *_git())


def _versions() -> Iterator[tuple[str, str]]:
    for name in LIBRARIES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue


def _git() -> tuple[str | None, bool | None]:
    """Return the commit, and whether tracked files differ from it; None without git, outside a repository, and if git is slow."""
    git = shutil.which("git")
    if git is None:
        return None, None
    # A repository's own settings could name a program to run at `git status`.
    command = [git, "-c", "core.fsmonitor=false", "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        done = subprocess.run(  # noqa: S603  a constant command
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_TIMEOUT_S,
            check=True,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None, None
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), "")
    return (commit, any(not line.startswith("#") for line in lines)) if commit.isalnum() else (None, None)


def hash_of(value: object) -> str:
    """Return a hash of a JSON value: 16 hexadecimal digits."""
    text = json.dumps(value, sort_keys=True, default=text_of)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


# What a run begins with -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setup:
    """What is known of a run before its first step; the fields are those of Provenance. An older store has no `process`."""

    process: Process = Process()
    base_url: str | None = None
    parameters: Mapping[str, JSON] | None = None
    tools: Mapping[str, str] | None = None
    prompt_hash: str | None = None
    resumed_in: tuple[Process, ...] = ()

    @classmethod
    def of(cls, agent: Any, messages: Sequence[Message]) -> Setup:
        """Return the setup of a run of this agent that begins with these messages."""
        address = getattr(agent.model, "address", None) or getattr(agent.model, "base_url", None)
        return cls(
            this_process(),
            redact_url(address) if isinstance(address, str) and address else None,
            parameters_of(agent.parameters.given(), agent.options, stream=agent.stream),
            {spec.name: hash_of([spec.description, spec.parameters_json]) for spec in agent.tool_specs},
            hash_of([agent.instructions, [message_json.plain(message) for message in messages]]),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the setup as JSON values, for a store; later processes are stored beside it."""
        made = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "resumed_in"}
        return {**made, "process": asdict(self.process)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], later: Sequence[Mapping[str, Any]] = ()) -> Setup:
        """Return a stored setup. Fields of a newer version are left out."""
        known = {one.name: stored[one.name] for one in fields(cls) if one.name in stored}
        return cls(**{**known, "process": process_from(stored.get("process", {})), "resumed_in": tuple(map(process_from, later))})


def parameters_of(parameters: Mapping[str, JSON], options: Mapping[str, JSON], *, stream: bool) -> dict[str, JSON]:
    """Return what a run sends with each request, besides the conversation and the tools."""
    return {**parameters, **options, "stream": stream}


def process_from(stored: Mapping[str, Any]) -> Process:
    """Return a stored process. Fields of a newer version are left out."""
    return Process(**{one.name: stored[one.name] for one in fields(Process) if one.name in stored})


def process_text(process: Process) -> str:
    """Return a process in words."""
    plain = asdict(process)
    parts = [f"{name} {plain[name]}" for name in ("agentlab", "python", "platform", "commit") if plain[name]]
    return ", ".join([*parts, *["with changed files"] * (process.dirty is True)]) or "unknown"


class LazySetup:
    """The setup of a run, collected when it is first needed. Another process gets it collected."""

    __slots__ = ("_agent", "_messages", "_setup")

    def __init__(self, agent: Any = None, messages: Sequence[Message] = (), setup: Setup | None = None) -> None:
        self._agent, self._messages, self._setup = agent, messages, setup

    def get(self) -> Setup:
        """Return the setup."""
        if self._setup is None:
            self._setup, self._agent, self._messages = Setup.of(self._agent, self._messages), None, ()
        return self._setup

    def __reduce__(self) -> tuple[type[LazySetup], tuple[Any, ...]]:
        return LazySetup, (None, (), self.get())


# What made a run ------------------------------------------------------------------------------------------------------------------


@redacted_repr
@dataclass(frozen=True, slots=True)
class Provenance(Displayable):
    """What made a run. None is unknown: a store of an earlier agentlab has no versions, and a scripted model has no recording.

    process        versions of agentlab, Python, the platform and libraries, and the git commit, of the process that began the run
    resumed_in     the processes that resumed the run, as far as they differ from that one
    provider, model   as they were asked for
    response_models   the models that the responses name
    base_url       the address of the server, without keys
    parameters     what was sent beside the conversation: temperature, options, stream
    tools          a hash of each tool's description and schema, by name
    prompt_hash    the hash of the instructions and of the messages before the first step
    replayed       True if any response is from a recording
    recordings     their files
    responses_hash the hash of all responses in order: the same for a run and for its replay
    price_lists    the price lists, with the day of their prices

    Example:
        >>> made = result.provenance
        >>> made.model, made.response_models, made.replayed, made.recordings
        ('claude-sonnet-4-6', ('claude-sonnet-4-6',), True, ('anthropic.yaml',))
        >>> made.base_url, made.responses_hash
        ('https://api.anthropic.com', '...')
    """

    process: Process
    resumed_in: tuple[Process, ...]
    provider: str
    model: str
    response_models: tuple[str, ...]
    base_url: str | None
    parameters: Mapping[str, JSON] | None
    tools: Mapping[str, str] | None
    prompt_hash: str | None
    replayed: bool | None
    recordings: tuple[str, ...]
    responses_hash: str | None
    price_lists: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values, without keys.

        Example:
            >>> result.provenance.to_dict()["process"]["agentlab"] == lab.__version__
            True
        """
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        plain |= {"process": asdict(self.process), "resumed_in": [asdict(one) for one in self.resumed_in]}
        clean: dict[str, Any] = _clean(plain)
        return clean


def _clean(value: object) -> Any:
    """Return a value as JSON values without keys."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {redact(text_of(name)): _clean(part) for name, part in value.items()}
    return [_clean(part) for part in value] if isinstance(value, list | tuple) else redact(text_of(value))


def provenance_of(provider: str, model: str, setup: Setup, history: RunHistory) -> Provenance:
    """Return what made a run with this setup and these steps."""
    calls = [call for step in history for call in step.calls]
    sources = [call.response.source for call in calls]
    known = [source for source in sources if source is not None]
    digests = [source.digest for source in known]
    return Provenance(
        setup.process,
        setup.resumed_in,
        provider,
        model,
        tuple(dict.fromkeys(call.response.model for call in calls if call.response.model)),
        setup.base_url,
        setup.parameters,
        setup.tools,
        setup.prompt_hash,
        any(source.replayed for source in known) if known else None,
        tuple(dict.fromkeys(source.recording.rpartition(", ")[0] for source in known if source.recording)),
        hash_of(digests) if digests and len(known) == len(calls) else None,
        tuple(dict.fromkeys(call.cost.price_list for call in calls if call.cost.price_list)),
    )
