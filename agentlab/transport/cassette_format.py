"""Cassettes as text: a YAML or JSON document read safely, and written so that people like to read it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import pydantic_core
import yaml

from agentlab.types import JSON

MAX_DEPTH = 200
MAX_EXPANDED_CHARACTERS = 64 * 2**20
"""What aliases may expand to, beyond the file itself."""

_BASE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_BASE_LOADER):  # type: ignore[misc]
    """PyYAML's safe loader, and the three harmless Python tags that old recordings hold. Any other tag is refused."""


_Loader.add_constructor("tag:yaml.org,2002:python/str", lambda loader, node: loader.construct_scalar(node))
_Loader.add_constructor("tag:yaml.org,2002:python/unicode", lambda loader, node: loader.construct_scalar(node))
_Loader.add_constructor("tag:yaml.org,2002:python/tuple", lambda loader, node: loader.construct_sequence(node, deep=True))


class UnreadableText(ValueError):  # noqa: N818  turned into a MalformedCassetteError by the caller, who knows the file
    """Not a document, or one that is refused; the message says where and why."""


def read_document(data: bytes, *, as_json: bool) -> JSON:
    """The document in a cassette's bytes. Raises UnreadableText; runs no code and expands no bomb, whatever they hold."""
    try:
        if as_json:
            return _read_json(data)
        text = data.decode("utf-8-sig")
        _refuse_bombs(text)
        return yaml.load(text, Loader=_Loader)  # noqa: S506  a safe loader
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


def _read_json(data: bytes) -> JSON:
    try:
        return pydantic_core.from_json(data, cache_strings="keys")
    except ValueError:  # it does not take everything that Python's takes, half characters for one
        return json.loads(data.decode("utf-8-sig"))


# Reading YAML safely: libyaml overflows the C stack on deep nesting, aliases and merge keys grow without bound. ----------------

_BRACKETS = re.compile(r"[\[{\]}]")
_DEEP_BLOCK = re.compile(r"\n[ \t]*(?:[-?:][ \t]+(?:!\S*[ \t]+)?){100}")
_ANCHOR = re.compile(r"&(?<![^\s\[{,]&)[^\s,\[\]{}]")


def _refuse_bombs(text: str) -> None:
    """Look closer where the text could be one: these searches cost a tenth of loading, going through the events a half."""
    deep = " " * 400 in text or _DEEP_BLOCK.search("\n" + text) or _bracket_depth(text) > MAX_DEPTH
    if deep or _ANCHOR.search(text):
        _check_events(text)


def _bracket_depth(text: str) -> int:
    """No less than the depth of flow collections: brackets in strings count as well."""
    depth = deepest = 0
    for match in _BRACKETS.finditer(text):
        if match[0] in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif depth:
            depth -= 1
    return deepest


def _check_events(text: str) -> None:
    """Go through the document without building it, and add up what its aliases stand for."""
    weights: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = []
    total = aliased = 0
    for event in yaml.parse(text, Loader=_Loader):
        line = f"line {event.start_mark.line + 1}: " if event.start_mark else ""
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in weights:
                raise UnreadableText(f"{line}the alias *{event.anchor} stands for something that holds it, or for nothing")
            total += weights[event.anchor]
            aliased += weights[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            if event.value == "<<" and event.implicit[0]:
                raise UnreadableText(f"{line}merge keys (<<) are refused")
            total += 1 + len(event.value)
            if event.anchor:
                weights[event.anchor] = 1 + len(event.value)
        elif isinstance(event, yaml.CollectionStartEvent):
            total += 1
            open_nodes.append((event.anchor, total))
            weights.pop(event.anchor or "", None)
            if len(open_nodes) > MAX_DEPTH:
                raise UnreadableText(f"{line}nested more than {MAX_DEPTH} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor:
                weights[anchor] = total - before + 1
        if aliased > MAX_EXPANDED_CHARACTERS:
            raise UnreadableText(f"{line}its aliases expand to more than {MAX_EXPANDED_CHARACTERS:,} characters")


# Writing YAML: by hand, since libyaml quotes every text that holds an emoji and folds long lines. ------------------------------

_BLOCK_TEXT = re.compile(r"[\t\n -~\u00a0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]*")
_UNPRINTABLE = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")  # half a character: JSON has an escape for it, YAML has not
_DECIMAL = re.compile(r"-?[0-9]+\.[0-9]+")
_PLAIN = re.compile(r"[A-Za-z0-9_./](?:[A-Za-z0-9_./;=+()?&%-]|:(?=\S)|(?<=[A-Za-z,;]) (?=[A-Za-z]))*")
_RESOLVER: Any = yaml.resolver.Resolver()


def write_document(head: Mapping[str, JSON], interactions: Iterable[str], *, as_json: bool) -> str:
    """A document from its top-level keys and its interactions, each as `write_interaction` gave it."""
    if as_json:
        inside = ",\n".join("    " + text.replace("\n", "\n    ") for text in interactions)
        fields = "".join(
            f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False, default=str)},\n" for key, value in head.items()
        )
        return f'{{\n{fields}  "interactions": [\n{inside}\n  ]\n}}\n'
    body = "".join(interactions)
    return "".join(_lines(dict(head), "")) + ("interactions:\n" + body if body else "interactions: []\n")


def write_interaction(entry: Mapping[str, JSON], *, as_json: bool) -> str:
    """One interaction as text."""
    if as_json:
        return _SURROGATE.sub(_escaped, json.dumps(_for_json(entry), ensure_ascii=False, indent=1))
    lines = _lines(entry, "  ")
    first = next(lines)
    return "- " + first[2:] + "".join(lines)


def _for_json(value: JSON) -> JSON:
    """Bytes as base64, in the form `{base64_string: …}`, which stands where a body does."""
    if isinstance(value, dict):
        string = value.get("string")
        if isinstance(string, bytes):
            return {"base64_string": base64.b64encode(string).decode()}
        return {str(key): _for_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_for_json(part) for part in value]
    if isinstance(value, bytes):
        return {"base64_string": base64.b64encode(value).decode()}
    return value if isinstance(value, str | int | float | None) else str(value)


def _lines(value: JSON, indent: str) -> Iterator[str]:
    """A mapping or a list in block style."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _field(f"{indent}{key if _is_plain(key) else _quoted(key)}:", part, indent)
    else:
        for part in value:
            if isinstance(part, dict | list) and part and not _flows(part):
                lines = _lines(part, indent + "  ")
                yield f"{indent}- {next(lines)[len(indent) + 2 :]}"
                yield from lines
            else:
                yield from _field(f"{indent}-", part, indent)


def _field(start: str, value: JSON, indent: str) -> Iterator[str]:
    if isinstance(value, tuple):
        value = list(value)
    if isinstance(value, dict | list) and value and not _flows(value):
        yield start + "\n"
        yield from _lines(value, indent if isinstance(value, list) and not start.endswith("-") else indent + "  ")
    elif isinstance(value, dict | list):
        inside = ", ".join(_scalar(part, "") for part in value) if isinstance(value, list) else ""
        yield f"{start} [{inside}]\n" if isinstance(value, list) else f"{start} {{}}\n"
    else:
        yield f"{start} {_scalar(value, indent + '  ')}\n"


def _flows(value: dict[Any, JSON] | list[JSON]) -> bool:
    """Lists of numbers stand on one line."""
    return isinstance(value, list) and all(isinstance(part, int | float) for part in value)


def _scalar(value: JSON, indent: str) -> str:
    if isinstance(value, str) and _SURROGATE.search(value):
        value = value.encode("utf-8", "surrogatepass")
    if isinstance(value, str):
        if "\n" in value and _is_block_text(value):
            return _block(value, indent)
        if _is_plain(value):
            return value
        if "\n" not in value and "'" not in value and _BLOCK_TEXT.fullmatch(value) and "\t" not in value:
            return f"'{value}'"
        return _quoted(value)
    if isinstance(value, bytes):
        encoded = base64.encodebytes(value).decode().splitlines()
        return "!!binary |\n" + "\n".join(indent + line for line in encoded) if encoded else '!!binary ""'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if type(value) is int or (type(value) is float and _DECIMAL.fullmatch(repr(value))):
        return repr(value)
    text: str = yaml.safe_dump(value)
    return text.removesuffix("...\n").strip("\n")


def _quoted(text: str) -> str:
    """In double quotes, on one line."""
    escaped = json.dumps(text, ensure_ascii=False)
    return escaped if _BLOCK_TEXT.fullmatch(text) else _UNPRINTABLE.sub(_escaped, escaped)


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _is_block_text(text: str) -> bool:
    """Whether the text comes back from a literal block unchanged: no other line breaks, no white space at the wrong end."""
    last = text.rstrip("\n").rpartition("\n")[2]
    return bool(_BLOCK_TEXT.fullmatch(text)) and not text[0].isspace() and bool(last.strip())


def _block(text: str, indent: str) -> str:
    body = text.rstrip("\n")
    newlines = len(text) - len(body)
    chomp = "-" if newlines == 0 else "" if newlines == 1 else "+"
    lines = [indent + line if line else "" for line in body.split("\n")]
    return f"|{chomp}\n" + "\n".join(lines) + "\n" * max(0, newlines - 1)


@lru_cache(maxsize=4096)
def _is_plain(text: str) -> bool:
    """Whether the text can stand without quotes and is still text when it is read."""
    return bool(_PLAIN.fullmatch(text)) and bool(
        _RESOLVER.resolve(yaml.ScalarNode, text, (True, False)) == "tag:yaml.org,2002:str"
    )


# Bodies ------------------------------------------------------------------------------------------------------------------------

_TOKENS = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|\s+')


def readable_body(body: bytes, *, as_json: bool) -> str | bytes:
    """A body as it is written: text where it is text; JSON over several lines where that changes nothing but white space."""
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
            return json.dumps(value, ensure_ascii=ascii_only, indent=2)
    return text
