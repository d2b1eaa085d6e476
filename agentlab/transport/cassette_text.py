"""Reads cassettes from YAML or JSON text, without executing anything in it, and writes them so that people can read them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pydantic_core
import yaml

from agentlab.model.messages import JSON

_BASE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_BASE_LOADER):  # type: ignore[misc]
    """PyYAML's safe loader with three harmless Python tags of old recordings. Any other tag is refused.

    Dates, times such as 12:30, = and << are texts, as in YAML 1.2, which cassetter writes: JSON has no such values.
    """

    def flatten_mapping(self, node: Any) -> None:
        """Refuse merge keys, which no recorder writes and which can double the size with each use."""
        if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
            raise yaml.constructor.ConstructorError(None, None, "merge keys (<<) are refused", node.start_mark)


_Loader.add_constructor("tag:yaml.org,2002:python/str", lambda loader, node: loader.construct_scalar(node))
_Loader.add_constructor("tag:yaml.org,2002:python/unicode", lambda loader, node: loader.construct_scalar(node))
_Loader.add_constructor("tag:yaml.org,2002:python/tuple", lambda loader, node: loader.construct_sequence(node, deep=True))

_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: loader.construct_scalar(node))
_Loader.add_constructor("tag:yaml.org,2002:value", lambda loader, node: loader.construct_scalar(node))
_Loader.add_constructor("tag:yaml.org,2002:merge", lambda loader, node: loader.construct_scalar(node))
for _tag, _number in (("int", _BASE_LOADER.construct_yaml_int), ("float", _BASE_LOADER.construct_yaml_float)):
    _Loader.add_constructor(
        f"tag:yaml.org,2002:{_tag}",
        lambda loader, node, number=_number: node.value if ":" in node.value else number(loader, node),
    )

_TOO_DEEP = re.compile(r"(?:[\[{]\s*+(?:\w++:\s*+)?|[?-]\s++(?:[!&]\S++\s++)?){1000}")
"""A thousand opening marks in a row, which overflow the C stack of libyaml."""
_ANCHOR = re.compile(r"&(?<![^\s\[{,]&)[^\s,\[\]{}]")


class UnreadableText(ValueError):  # noqa: N818  turned into a MalformedCassetteError by the caller, which knows the file
    """The text is not a valid document, or not a safe one; the message says where and why."""


def read_document(data: bytes, *, as_json: bool) -> JSON:
    """Return the document in a cassette's bytes. Raises UnreadableText; never runs code from the file."""
    try:
        if as_json:
            return _read_json(data)
        text = data.decode("utf-8-sig")
        if _TOO_DEEP.search(text):
            raise UnreadableText("nested too deeply")
        document = yaml.load(text, Loader=_Loader)  # noqa: S506  a safe loader
    except UnreadableText:
        raise
    except UnicodeDecodeError as error:
        raise UnreadableText(f"byte {error.start}: not UTF-8 text") from error
    except json.JSONDecodeError as error:
        raise UnreadableText(f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise UnreadableText(f"{where}not safe YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise UnreadableText(str(error).splitlines()[0][:200]) from error
    except RecursionError as error:
        raise UnreadableText("nested too deeply") from error
    if _ANCHOR.search(text):
        _refuse_expansion(document, 10 * len(text))
    return document


def _read_json(data: bytes) -> JSON:
    try:
        return pydantic_core.from_json(data, cache_strings="keys")
    except ValueError:  # unpaired surrogates, for example, which Python's own parser accepts
        return json.loads(data.decode("utf-8-sig"))


def _refuse_expansion(document: JSON, limit: int) -> None:
    """Raise UnreadableText if aliases expand to more values than a file of this size can contain."""
    waiting = [document]
    for value in waiting:
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
        if len(waiting) > limit:
            raise UnreadableText("its aliases expand to far more than the file contains")


# Writing -----------------------------------------------------------------------------------------------------------------------


_RARE_BREAK = re.compile("[\x85\u2028\u2029]")
"""Line breaks that only YAML knows; PyYAML does not read them back unchanged."""


class _Readable:
    """The YAML style: texts of several lines as blocks, lists of numbers on one line, no aliases."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def _represent_text(dumper: Any, text: str) -> yaml.Node:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair: JSON has an escape for it, YAML does not
        binary: yaml.Node = dumper.represent_binary(text.encode("utf-8", "surrogatepass"))
        return binary
    style = '"' if _RARE_BREAK.search(text) else "|" if "\n" in text else None
    node: yaml.Node = dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)
    return node


def _represent_list(dumper: Any, values: Any) -> yaml.Node:
    flow = all(isinstance(value, int | float) for value in values)
    node: yaml.Node = dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=flow)
    return node


class _Dumper(_Readable, yaml.SafeDumper):
    """Writes any character unchanged, but much slower than libyaml."""


class _FastDumper(_Readable, getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes with libyaml, which escapes characters beyond U+FFFF, such as emoji."""


for _dumper in (_Dumper, _FastDumper):
    _dumper.add_representer(str, _represent_text)
    _dumper.add_representer(list, _represent_list)
    _dumper.add_representer(tuple, _represent_list)


def _yaml(value: JSON) -> str:
    text = _dumped(value, _FastDumper)
    return _dumped(value, _Dumper) if "\\U" in text else text


def _dumped(value: JSON, dumper: Any) -> str:
    text: str = yaml.dump(value, Dumper=dumper, allow_unicode=True, sort_keys=False, width=2**30)
    return text.removesuffix("...\n")  # written after a block that ends in several line breaks


def write_document(head: Mapping[str, JSON], interactions: Iterable[str], *, as_json: bool) -> str:
    """Return a document of these top-level fields and interactions, each as `write_interaction` returned it."""
    if as_json:
        inside = ",\n".join("    " + text.replace("\n", "\n    ") for text in interactions)
        fields = "".join(
            f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False, default=str)},\n" for key, value in head.items()
        )
        return f'{{\n{fields}  "interactions": [\n{inside}\n  ]\n}}\n'
    body = "".join(interactions)
    return (_yaml(dict(head)) if head else "") + ("interactions:\n" + body if body else "interactions: []\n")


def write_interaction(entry: Mapping[str, JSON], *, as_json: bool) -> str:
    """Return one interaction as text."""
    if as_json:
        text = json.dumps(_for_json(entry), ensure_ascii=False, indent=1)
        return text.encode("utf-8", "backslashreplace").decode()
    return _yaml([dict(entry)])


def _for_json(value: JSON) -> JSON:
    """Replace bytes by base64 in the form `{base64_string: …}`."""
    if isinstance(value, dict):
        string = value.get("string")
        return _for_json(string) if isinstance(string, bytes) else {str(key): _for_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_for_json(part) for part in value]
    if isinstance(value, bytes):
        return {"base64_string": base64.b64encode(value).decode()}
    return value if isinstance(value, str | int | float | None) else str(value)


_TOKENS = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|\s+')


def readable_body(body: bytes, *, as_json: bool) -> str | bytes:
    """Return a body for writing: as text if possible, and JSON indented if that changes only white space."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return body
    if as_json or text[:1] not in ("{", "[") or text[-1:] not in ("}", "]"):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    compact = _TOKENS.sub(r"\1", text)
    for ascii_only in (False, True):
        if json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":")) == compact:
            indented = json.dumps(value, ensure_ascii=ascii_only, indent=2)
            return indented if len(indented) <= 40 * len(text) else text  # the spaces grow with the square of the nesting
    return text
