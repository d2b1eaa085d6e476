"""Finds providers by name: the classes in `PROVIDERS` of the files in this folder, the servers in `compatible`, and the entry
points `agentlab.providers`.

A file `foo.py` with `PROVIDERS = (Foo, FooResponses)` provides each class under its `name`. The name is `foo` or begins with `foo-`, so
that only this file is imported. A name may end in a version of the API, as in `gemini@v1`, which is passed as `api_version="v1"`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast, overload

import agentlab.providers
from agentlab._internal.names import did_you_mean
from agentlab._internal.redaction import redacted_repr
from agentlab.errors import ConfigurationError, UnknownProviderError
from agentlab.model.pricing import vendor_of
from agentlab.providers.base import Capabilities
from agentlab.providers.base import Provider as ProviderProtocol
from agentlab.providers.wires.finish_rules import Table
from agentlab.transport.clients import check_client

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "agentlab.providers"
_ALIASES = {
    "fireworks-ai": "fireworks",
    "google": "gemini",
    "google-vertex": "gemini-vertex",
    "grok": "xai",
    "hf": "huggingface",
    "kimi": "moonshot",
    "llamacpp": "llama-cpp",
    "moonshotai": "moonshot",
    "togetherai": "together",
    "vertex": "gemini-vertex",
    "x-ai": "xai",
}
"""Names that other tools give to a provider."""


def resolve(spec: str, http_client: Any = None) -> ProviderProtocol:
    """Return the provider of a `provider:model` string, such as `openai:gpt-4.1-mini` or, with a version of its API,
    `gemini@v1:gemini-3.5-flash`. Raises UnknownProviderError."""
    name, colon, model = spec.partition(":")
    name, model = name.strip(), model.strip()
    if name and model:
        return Provider(name, model=model, http_client=http_client)
    vendor = None if colon or not name else vendor_of(name)
    example = f"{vendor}:{name}" if vendor else "openai:gpt-4.1-mini"
    if _built_in(name) is not None:
        example = f"{name}:model-name"
    known = names()
    before, _, after = name.partition("/")
    hint = _translation(before.lower(), after, known) if after and not colon else ""
    hint = hint or f"write provider:model, e.g. {example!r}."
    raise UnknownProviderError(f"{spec!r} is not a provider and a model: {hint}{_listing(known)}")


def _translation(name: str, model: str, known: Iterable[str]) -> str:
    """Return how to write another tool's name of a provider here; "" for an unknown name."""
    translated = _ALIASES.get(name, name)
    return f"write '{translated}:{model}'." if translated in known else ""


def Provider(  # noqa: N802  public as lab.Provider
    name: str,
    *,
    model: str,
    base_url: str | None = None,
    api_key: str | None = None,
    http_client: Any = None,
    **settings: Any,
) -> ProviderProtocol:
    """Create a provider with settings that a `provider:model` string cannot express.

    `name` may end in an API version, as in `gemini@v1`. `base_url` is an address other than the vendor's, `api_key` a key that is not
    in the environment, and `settings` are other fields of the provider's class, such as `headers`. Raises UnknownProviderError, and
    ConfigurationError for invalid settings.

    `http_client` is your own `httpx.AsyncClient`, or one of httpx2, with its proxy, certificates, hooks, time-outs or mock transport.
    It is used as it is and never closed; only time-outs of 5 s, httpx's default, become agentlab's longer ones, and no redirect is
    followed. A client belongs to one event loop: in a notebook, `await` the run, or use `run.start(loop="kernel")`.

    Example:
        >>> local = lab.Provider("compatible", base_url="http://127.0.0.1:8080/v1", model="gemma3")
        >>> lab.Agent(local)
        Agent(compatible:gemma3, budget=Budget(max_turns=20))
        >>> lab.Provider("opneai", model="gpt-5.4-mini")
        Traceback (most recent call last):
            ...
        agentlab.errors.UnknownProviderError: No provider 'opneai'. Did you mean 'openai'? Providers: anthropic,...
    """
    name, version = split_version(name)
    make = find(name, model)
    if version:
        settings = {"api_version": version, **settings}
    if not isinstance(model, str) or not model.strip():
        what = "empty" if isinstance(model, str) else "not text"
        raise UnknownProviderError(f"model={model!r} is {what}: name a model of {name}, as in lab.Provider({name!r}, model='…').")
    api_key = getattr(api_key, "get_secret_value", lambda: api_key)()  # a SecretStr of pydantic
    for setting, value in (("base_url", base_url), ("api_key", api_key)):
        if value is not None and not isinstance(value, str):
            raise ConfigurationError(f'{setting}=… of {name} is of the type {type(value).__name__}: pass text, {setting}="…".')
    if http_client is not None:
        check_client(http_client)
    fields = {"base_url": base_url, "api_key": api_key, "http_client": http_client}
    given = {key: value for key, value in fields.items() if value is not None}
    try:
        return make(model=model, **given, **settings)
    except TypeError as error:
        if version and "api_version" in str(error):
            raise ConfigurationError(f"{name} has no API versions. Write {name}:{model}.") from None
        raise ConfigurationError(f"{name} does not accept these settings: {error}") from None


def split_version(name: str) -> tuple[str, str]:
    """Return a provider's name and its version ("" if there is none): `gemini@v1` is `gemini` and `v1`."""
    bare, _, version = str(name).partition("@")
    return bare.strip(), version.strip()


def names() -> tuple[str, ...]:
    """Return the names of all providers, sorted."""
    return _names(_entry_points())


def _names(others: Iterable[str]) -> tuple[str, ...]:
    own = {name for file in _files() for name in _provided_by(file)}
    return tuple(sorted({*own, *_shared(), *others}))


@overload
def capabilities(provider: None = None) -> dict[str, Capabilities]: ...
@overload
def capabilities(provider: str) -> Capabilities: ...
def capabilities(provider: str | None = None) -> Capabilities | dict[str, Capabilities]:
    """Return the capabilities of a provider, or of all providers by name: streaming, tools, reports_usage, reports_cost, and the finish
    reasons that its wire can send (`reasons`).

    As a table: `pandas.DataFrame({name: can.reasons for name, can in lab.capabilities().items()})`. Raises UnknownProviderError.

    Example:
        >>> lab.capabilities("anthropic")
        Capabilities(streaming=True, tools=True, reports_usage=True, reports_cost=False)
        >>> lab.capabilities("bedrock").reasons[lab.FinishReason.CONTENT_FILTERED]
        {'stopReason': ('guardrail_intervened', 'content_filtered')}
    """
    if provider is None:
        return {name: capabilities(name) for name in names()}
    kind: Any = find(split_version(provider.partition(":")[0])[0])
    found: Capabilities = kind.capabilities
    return found


@functools.cache
def _files() -> tuple[str, ...]:
    return tuple(module.name for module in pkgutil.iter_modules(agentlab.providers.__path__))


@functools.cache
def _provided_by(file: str) -> Mapping[str, Any]:
    """Return the providers of one file by name; empty for a file without providers."""
    module = importlib.import_module(f"agentlab.providers.{file}")
    return {kind.name: kind for kind in getattr(module, "PROVIDERS", ())}


def own_tables() -> Iterator[Table]:
    """Yield the tables of finish reasons of agentlab's own providers."""
    kinds = [*(kind for file in _files() for kind in _provided_by(file).values()), *_shared().values()]
    return (table for kind in kinds for table in kind.capabilities.tables)


def _built_in(name: str) -> Any:
    """Return the class of agentlab's own provider of this name, or None."""
    files = (file for file in _files() if f"{name}-".startswith(file.replace("_", "-") + "-"))
    return next((kinds[name] for file in files if name in (kinds := _provided_by(file))), None) or _shared().get(name)


def _shared() -> Mapping[str, Any]:
    from agentlab.providers.compatible import CLASSES  # only where no file has the name

    return CLASSES


def _entry_points() -> dict[str, EntryPoint]:
    """Return the providers of other packages by name: slow, because every installed package is searched."""
    from importlib.metadata import entry_points  # slow to import

    return {point.name: point for point in entry_points(group=GROUP)}


def find(name: str, model: str = "…") -> Callable[..., ProviderProtocol]:
    """Return the class of a provider. Raises UnknownProviderError, which suggests how to write the name and `model`."""
    if (own := _built_in(name)) is not None:
        return _with_redacted_repr(own)
    points = _entry_points()
    if (point := points.get(name)) is not None:
        return _with_redacted_repr(point.load())
    known, lower = _names(points), str(name).lower()
    if lower in _ALIASES:
        raise UnknownProviderError(f"No provider {name!r}: {_translation(lower, model, known)}{_listing(known)}")
    raise UnknownProviderError(f"No provider {name!r}.{did_you_mean(lower, known, 0.7)}{_listing(known)}")


@functools.cache
def _with_redacted_repr(kind: Any) -> Callable[..., ProviderProtocol]:
    """Return the class with a repr without keys: the addresses of some gateways contain one."""
    return cast("Callable[..., ProviderProtocol]", redacted_repr(kind) if isinstance(kind, type) else kind)


def _listing(known: Iterable[str]) -> str:
    return f" Providers: {', '.join(known)}."
