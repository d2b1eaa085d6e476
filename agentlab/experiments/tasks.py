"""Tasks: what agents are asked, and what a right answer is. They are read from a list, a table or a file, checked, and hashed.

tasks = lab.Tasks("tasks.csv", prompt="question", target="answer")
lab.Experiment([agent_a, agent_b], tasks, score=lab.scorers.Exact())
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, cast, overload

import pandas as pd

from agentlab._internal.display import Displayable
from agentlab._internal.formatting import counted
from agentlab._internal.names import near
from agentlab._internal.redaction import redact, redacted_repr
from agentlab._internal.safe_text import cut, one_line, whole
from agentlab.errors import ConfigurationError
from agentlab.model.messages import user_message
from agentlab.model.parts import Content, Part
from agentlab.records.frames import array

Source: TypeAlias = "Tasks | str | os.PathLike[str] | Iterable[Any] | Mapping[str, Any]"

FIELDS = ("prompt", "id", "target", "tags", "tools", "metadata")
ALSO = {"prompt": "input", "target": "expected"}
"""Other tools' names of columns and keys, which are read if there is no column or key of our name."""
PROMPT = "{prompt}"
"""The place of a task's prompt in a template; alone, the prompt as it is."""
FILES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")


@redacted_repr
@dataclass(frozen=True, slots=True)
class Task(Displayable):
    """One task: its prompt, the target that scorers compare the answer with, its id, and tags to group by.

    `prompt` is a text, or a list of texts and parts such as `lab.Image`. `target` is any JSON value; None: there is none. `id` names
    the task in frames and stores; by default it is "p" and 8 digits of a hash of the prompt. `tools` has the results of tools for this
    task by tool name: the tool is not called, and the model reads this result (of a list, one result per call, the last one again and
    again). `metadata` is for your own scorers.

    Example:
        >>> lab.Task("What is 2 plus 3?", target="5").id
        'p2486727a'
        >>> lab.Task("What is the capital of France?", target="Paris", id="capital", tags=("geography",))
        Task('What is the capital of France?', id='capital', target='Paris', tags=('geography',))
    """

    prompt: Content
    target: Any = None
    _: KW_ONLY
    id: str = ""
    tags: tuple[str, ...] = ()
    tools: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or (self.id and not self.id.strip()):
            raise ConfigurationError(f"tasks: {self.id!r} is not an id: use a non-empty text.")
        where = f"The task {self.id!r}" if self.id else "A task"
        if not (isinstance(self.prompt, str) and self.prompt.strip()) and not (
            isinstance(self.prompt, list | tuple) and self.prompt
        ):
            raise ConfigurationError(
                f"{where} has the prompt {cut(repr(self.prompt), 80)}: pass the task as text, or as a list of texts and parts."
            )
        user_message(self.prompt, where + " has the prompt {!r}: pass the task as text, or as a list of texts and parts.")
        for name in ("tools", "metadata"):
            if not isinstance(getattr(self, name), Mapping):
                raise ConfigurationError(f"{where} has {name}={cut(repr(getattr(self, name)), 80)}: pass a dict.")
        try:
            _json(self.target), _json(self.tools), _json(self.metadata)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"{where} has a value that is not JSON: {error}. Pass texts, numbers, lists and dicts."
            ) from error
        if not self.id:
            object.__setattr__(self, "id", f"p{hash_of(self._content())[:8]}")

    @property
    def text(self) -> str:
        """The prompt as text; each part is a line of it.

        Example:
            >>> lab.Task(["Where is this?", "Answer in one word."]).text
            'Where is this?\\nAnswer in one word.'
        """
        return user_message(self.prompt, "{!r}").text

    @property
    def hash(self) -> str:
        """The hash of everything in the task, also of the bytes of its parts: 16 hexadecimal digits.

        Example:
            >>> lab.Task("What is the capital of France?", target="Paris", id="capital").hash
            'f294d624c1a82c0c'
        """
        return hash_of([self.id, *self._content(), self.target, sorted(self.tags), dict(self.tools), dict(self.metadata)])

    def _content(self) -> list[Any]:
        """Return the prompt as JSON: its text, and its parts with their bytes."""
        message = user_message(self.prompt, "{!r}")
        return [message.text, [{**part.to_jsonable(), "name": ""} for part in message.parts]]

    @property
    def target_hash(self) -> str:
        """The hash of what a scorer reads: target and metadata."""
        return hash_of([self.target, dict(self.metadata)])

    def __repr__(self) -> str:
        given = [f"{cut(repr(self.prompt), 80)}, id={self.id!r}"]
        given += [f"{name}={getattr(self, name)!r}" for name in FIELDS[2:] if getattr(self, name) not in (None, (), {})]
        return f"Task({', '.join(given)})"


class Tasks(Sequence[Task], Displayable):
    """Tasks in order, each with an id of its own.

    source     a list of texts, of pairs (prompt, target), of dicts or of tasks; {id: one of these}; the path of a CSV, TSV, JSON, JSON
               Lines or Parquet file; a DataFrame; a Series of texts, whose index gives the ids; a Dataset of Hugging Face; a list of
               Inspect's Samples
    prompt, target, id, tags, tools   the names of the columns or keys to read these from. Without a `prompt` it is `input`, without a
               `target` it is `expected`. Items without an id are p1, p2, …, by their place; tags are a list, or a text with commas; all
               other columns become the metadata

    A pair is a tuple; a list is a prompt of texts and parts.

    The same prompt may occur with different targets. `version` is a hash of the content: the same tasks in any order have the same.

    Raises ConfigurationError for a duplicate id, a task that occurs twice, a prompt that is missing, a value that is not JSON.

    Example:
        >>> tasks = lab.Tasks(
        ...     [
        ...         {"id": "fr", "question": "What is the capital of France?", "answer": "Paris", "tags": "europe"},
        ...         {"id": "pe", "question": "What is the capital of Peru?", "answer": "Lima"},
        ...     ],
        ...     prompt="question",
        ...     target="answer",
        ... )
        >>> tasks["pe"].target, tasks.tagged("europe").ids
        ('Lima', ['fr'])
    """

    def __init__(
        self,
        source: Source,
        *,
        prompt: str = "prompt",
        target: str = "target",
        id: str = "id",  # noqa: A002  the name of the field
        tags: str = "tags",
        tools: str = "tools",
    ) -> None:
        names = {"id": id, "prompt": prompt, "target": target, "tags": tags, "tools": tools}
        items = [*_items(source, names)]
        for what, name in names.items():
            if name != what and not any(isinstance(one, Mapping) and name in one for one in items):
                keys = ", ".join(dict.fromkeys(repr(key) for one in items if isinstance(one, Mapping) for key in one))
                raise ConfigurationError(f"{what}={name!r}: no task has such a column or key. There are: {keys or 'none'}.")
        tasks = [_task(number, one, names) for number, one in enumerate(items, 1)]
        if not tasks:
            raise ConfigurationError("tasks=[]: pass at least one item.")
        self._by_id: dict[str, Task] = {}
        contents: dict[str, Task] = {}
        for number, task in enumerate(tasks, 1):
            if task.id in self._by_id:
                raise ConfigurationError(
                    f"Two of the tasks have the id {task.id!r}, the second one is number {number}: pass another id."
                )
            other = contents.setdefault(replace(task, id="-").hash, task)
            if other is not task:
                raise ConfigurationError(
                    f"tasks: {task.id!r} and {other.id!r} are the same task: leave one out, and pass repeats=… to run it several times."
                )
            self._by_id[task.id] = task

    @property
    def ids(self) -> list[str]:
        """The ids in order.

        Example:
            >>> lab.Tasks(["What is the capital of France?", "What is the capital of Peru?"]).ids
            ['p1', 'p2']
        """
        return [*self._by_id]

    @property
    def by_id(self) -> Mapping[str, Task]:
        """The tasks by id.

        Example:
            >>> lab.Tasks({"fr": "What is the capital of France?"}).by_id["fr"].prompt
            'What is the capital of France?'
        """
        return MappingProxyType(self._by_id)

    @cached_property
    def version(self) -> str:
        """A hash of the content of all tasks, whatever their order: 16 hexadecimal digits.

        Example:
            >>> lab.Tasks(["a", "b"]).version == lab.Tasks({"p2": "b", "p1": "a"}).version
            True
        """
        return hash_of(sorted(task.hash for task in self))

    def where(self, keep: Callable[[Task], object]) -> Tasks:
        """Return the tasks for which the function returns True.

        Example:
            >>> lab.Tasks({"fr": "What is the capital of France?", "pe": "What of Peru?"}).where(lambda task: "Peru" in task.text).ids
            ['pe']
        """
        return self._of([task for task in self if keep(task)], "where")

    def tagged(self, *tags: str) -> Tasks:
        """Return the tasks that have one of the tags.

        Example:
            >>> lab.Tasks([{"prompt": "a", "tags": ["easy"]}, {"prompt": "b", "tags": "hard, long"}]).tagged("hard").ids
            ['p2']
        """
        known = dict.fromkeys(tag for task in self for tag in task.tags)
        unknown = next((tag for tag in tags if tag not in known), None)
        if unknown is not None:
            raise ConfigurationError(f"No task has the tag {unknown!r}. There are: {', '.join(map(repr, known)) or 'none'}.")
        return self._of([task for task in self if {*tags} & {*task.tags}], "tagged")

    def split(self, share: float = 0.5, *, seed: int = 0) -> tuple[Tasks, Tasks]:
        """Return two parts, the first with about this share of the tasks. A task stays in its part when others are added.

        Example:
            >>> first, second = lab.Tasks([f"What is {n} + {n}?" for n in range(100)]).split(0.8)
            >>> len(first) + len(second), set(first.ids) & set(second.ids)
            (100, set())
        """
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
            raise ConfigurationError(f"share={share!r}: pass a number between 0 and 1, such as 0.5.")
        part = {task.id: int(hash_of([seed, task.id, task.text]), 16) < share * 16**16 for task in self}
        return self._of([one for one in self if part[one.id]], "split"), self._of(
            [one for one in self if not part[one.id]], "split"
        )

    def with_prompt(self, template: str) -> Tasks:
        """Return the tasks with a text around their prompts: `{prompt}` in it is the task's own prompt. Ids and targets stay.

        Example:
            >>> lab.Tasks({"fr": "What is the capital of France?"}).with_prompt("{prompt} Answer in one word.")["fr"].prompt
            'What is the capital of France? Answer in one word.'
        """
        before, after = _around(template)

        def placed(prompt: Content) -> Content:
            if isinstance(prompt, str):
                return f"{before}{prompt}{after}"
            return [*filter(None, [before]), *prompt, *filter(None, [after])]

        return Tasks([replace(task, prompt=placed(task.prompt)) for task in self])

    def to_frame(self) -> pd.DataFrame:
        """Return one row per task: id, prompt as text, target, tags, and the hash of the content.

        Example:
            >>> lab.Tasks([{"prompt": "What is the capital of France?", "target": "Paris"}]).to_frame()[["id", "target"]]
               id target
            0  p1  Paris
        """
        columns: dict[str, Any] = {
            "id": array(self.ids, "string"),
            "prompt": array([task.text for task in self], "string"),
            "target": [_shown(task.target) for task in self],
            "tags": array([", ".join(task.tags) or None for task in self], "string"),
            "hash": array([task.hash for task in self], "string"),
        }
        return pd.DataFrame(columns)

    def _of(self, tasks: list[Task], what: str) -> Tasks:
        if not tasks:
            raise ConfigurationError(f"{what} leaves none of the {counted(len(self), 'task')}.")
        return Tasks(tasks)

    @overload
    def __getitem__(self, key: int | str) -> Task: ...
    @overload
    def __getitem__(self, key: slice) -> Tasks: ...
    def __getitem__(self, key: int | str | slice) -> Task | Tasks:
        if isinstance(key, str):
            if key not in self._by_id:
                raise KeyError(f"There is no task {key!r}; the first ids are {', '.join(self.ids[:5])}.")
            return self._by_id[key]
        return self._of([*self][key], "the slice") if isinstance(key, slice) else [*self][key]

    def __iter__(self) -> Iterator[Task]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tasks) and self._by_id == other._by_id

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        without = sum(task.target is None for task in self)
        targets = "with targets" if not without else "without targets" if without == len(self) else f"{without} without a target"
        return f"Tasks({counted(len(self), 'task')} {targets}, version {self.version})"


# Sources --------------------------------------------------------------------------------------------------------------------------


def _items(source: Any, names: Mapping[str, str]) -> Iterable[Any]:
    """Return the items of any source: tasks, dicts, texts, or objects with `input` and `target`."""
    if isinstance(source, str | os.PathLike) and (isinstance(source, os.PathLike) or Path(source).suffix.lower() in FILES):
        return _of_table(_read(Path(source)), names, str(source))
    if isinstance(source, str | bytes) or not isinstance(source, Iterable) or isinstance(source, Task):
        raise ConfigurationError(
            f"tasks={cut(repr(source), 80)}: pass a list, such as tasks=[…], a table, or the path of a file ({', '.join(FILES)})."
        )
    if isinstance(source, Set) and not isinstance(source, KeysView):
        raise ConfigurationError(
            f"tasks={cut(repr(source), 80)}: pass a list, since run ids depend on the order and a set has none."
        )
    given: Any = source
    if hasattr(given, "to_dicts"):  # a DataFrame of polars
        return _of_table(given.to_dicts(), names, "the table")
    if hasattr(given, "columns") and hasattr(given, "to_dict"):  # a DataFrame of pandas
        return _of_table(given.to_dict("records"), names, "the table")
    if hasattr(given, "column_names"):  # a Dataset of Hugging Face, or several of them by name
        if isinstance(given, Mapping):
            raise ConfigurationError(f"tasks are several datasets: choose one, such as tasks=dataset[{next(iter(given))!r}].")
        return _of_table(list(given.with_format(None)), names, "the dataset")
    if isinstance(given, Mapping):
        return [_with_id(name, one, names) for name, one in given.items()]
    if hasattr(given, "items"):  # a Series of pandas
        labels = [name for name, _ in given.items()]
        if all(isinstance(name, str) for name in labels) and len({*labels}) == len(labels):
            return [_with_id(name, one, names) for name, one in given.items()]
        return [one for _, one in given.items()]
    return cast(Iterable[Any], given)


def _with_id(name: object, one: Any, names: Mapping[str, str]) -> Any:
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(f"tasks: {name!r} is not an id: use a non-empty text.")
    if isinstance(one, Task):
        return replace(one, id=name)
    if isinstance(one, Mapping):
        return {**one, names["id"]: name}
    prompt, target = one if _is_pair(one) else (one, None)
    return {names["id"]: name, names["prompt"]: prompt, names["target"]: target}


def _is_pair(given: Any) -> bool:
    """True for a tuple of a prompt and a target, which is no part."""
    return isinstance(given, tuple) and len(given) == 2 and not isinstance(given[1], Part)


def _of_table(rows: list[Mapping[str, Any]], names: Mapping[str, str], what: str) -> list[Mapping[str, Any]]:
    columns = list(dict.fromkeys(str(name) for row in rows for name in row))
    missing = not {*_keys("prompt", names)} & {*columns}
    if missing and len(columns) == 1:
        return [{names["prompt"]: row[columns[0]]} for row in rows]
    if missing and rows:
        listed = ", ".join(map(repr, columns))
        free = [name for name in columns if name not in names.values()]
        meant = near(names["prompt"], free) or next(iter(free or columns), "…")
        raise ConfigurationError(
            f"{what} has no column {names['prompt']!r}, but {listed or 'none'}: name the column with the prompts, such as "
            f"lab.Tasks(…, prompt={meant!r})."
        )
    return rows


def _read(path: Path) -> list[Mapping[str, Any]]:
    """Return the rows of a file. Raises ConfigurationError if it cannot be read, with the number of a wrong line."""
    kind = path.suffix.lower()
    if kind not in FILES:
        raise ConfigurationError(f"{str(path)!r} is none of the files that can be read: {', '.join(FILES)}.")
    try:
        if kind == ".parquet":
            return [{str(name): value for name, value in row.items()} for row in pd.read_parquet(path).to_dict("records")]
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ImportError) as error:
        raise ConfigurationError(f"{str(path)!r} cannot be read: {error}") from error
    if kind in (".csv", ".tsv"):
        return _of_csv(path, text)
    rows: Any = []
    lines = [text] if kind == ".json" else text.split("\n")  # other line breaks may be in a text
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise ConfigurationError(f"{str(path)!r}, line {number}, is not JSON: {error}.") from error
    rows = rows[0] if kind == ".json" and rows else rows
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise ConfigurationError(f"{str(path)!r} has other values than objects: write one object per task.")
    return rows


def _of_csv(path: Path, text: str) -> list[Mapping[str, Any]]:
    """Return the rows of a table as texts, an empty cell as None."""
    head = text.partition("\n")[0]
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=head.count)
    rows: list[Mapping[str, Any]] = []
    limit = csv.field_size_limit(max(len(text), csv.field_size_limit()))
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
        twice = [name for name, count in Counter(reader.fieldnames or ()).items() if count > 1]
        if twice:
            raise ConfigurationError(f"{str(path)!r} has two columns {twice[0]!r}: rename one.")
        for row in reader:
            if None in row:
                raise ConfigurationError(f"{str(path)!r}, line {reader.line_num}, has more cells than the first line has names.")
            rows.append({name: value or None for name, value in row.items()})
    finally:
        csv.field_size_limit(limit)
    return rows


def _task(number: int, given: Any, names: Mapping[str, str]) -> Task:
    """Return one item of a source as a task."""
    if isinstance(given, Task):
        return given
    place = f"p{number}"
    if _is_pair(given):
        return Task(*given, id=place)
    if isinstance(given, str | list | tuple | Part):
        return Task([given] if isinstance(given, Part) else given, id=place)
    if not isinstance(given, Mapping) and hasattr(given, "input"):  # a Sample of Inspect
        given, names = _sample(given), {name: name for name in FIELDS[:5]}
    if not isinstance(given, Mapping):
        raise ConfigurationError(
            f"tasks: number {number} is {cut(repr(given), 80)}: pass a text, a pair (prompt, target), a dict or a lab.Task."
        )
    values = {str(name): _plain(value) for name, value in given.items()}
    chosen = {what: next((key for key in _keys(what, names) if values.get(key) is not None), names[what]) for what in names}
    known = {what: values.pop(name, None) for what, name in chosen.items()}
    if known["prompt"] is None:
        others = [one_line(repr(name)) for name in given if isinstance(name, str) and name not in names.values()]
        hint = f" Name its column: lab.Tasks(…, prompt={others[0]})." if others and names["prompt"] == "prompt" else ""
        raise ConfigurationError(f"tasks: number {number} has no {names['prompt']!r}: {cut(repr(given), 80)}.{hint}")
    metadata = values.pop("metadata", None)
    if isinstance(metadata, Mapping):
        values = {**values, **metadata}
    elif metadata is not None:
        values["metadata"] = metadata
    return Task(
        known["prompt"],
        known["target"],
        id=place if known["id"] in (None, "") else _id(known["id"]),
        tags=_tags(number, known["tags"]),
        tools=_tools(number, known["tools"]),
        metadata={name: value for name, value in values.items() if value is not None},
    )


def _keys(what: str, names: Mapping[str, str]) -> list[str]:
    """Return the keys to read a field from, the first one that has a value."""
    return [names[what], ALSO[what]] if names[what] == what and what in ALSO else [names[what]]


def _sample(given: Any) -> dict[str, Any]:
    """Return the fields of a Sample of Inspect, whose input is a text, or messages of which the texts are taken."""
    prompt = given.input
    if not isinstance(prompt, str):
        other = next((one.role for one in prompt if one.role not in ("user", "system")), None)
        if other is not None:
            raise ConfigurationError(
                f"The sample {given.id!r} has a message of the role {other!r}: pass its last question as text."
            )
        prompt = [one.text for one in prompt]
    if given.choices:
        prompt = [
            prompt,
            *[f"{letter}) {text}" for letter, text in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", given.choices, strict=False)],
        ]
        prompt = "\n".join(prompt) if isinstance(prompt[0], str) else [*prompt[0], *prompt[1:]]
    return {
        "id": given.id,
        "prompt": prompt,
        "target": given.target or None,
        "metadata": {**(given.metadata or {}), **({"choices": list(given.choices)} if given.choices else {})},
    }


def _around(template: object) -> tuple[str, str]:
    """Return the texts before and after the prompt. Other braces, such as those of JSON, are text."""
    if not isinstance(template, str) or template.count(PROMPT) != 1:
        raise ConfigurationError(
            f"prompt={cut(repr(template), 80)}: pass a text with {PROMPT} once, where the prompt of the task goes, such as "
            f"'{PROMPT} Answer in one word.'."
        )
    before, _, after = template.partition(PROMPT)
    return before, after


def _id(given: Any) -> str:
    """Return an id as text. A column of whole numbers has fractions if one is missing."""
    return str(int(given) if isinstance(given, float) and given.is_integer() else given)


def _tags(number: int, given: Any) -> tuple[str, ...]:
    listed = given.split(",") if isinstance(given, str) else [] if given is None else given
    if not isinstance(listed, list | tuple) or not all(isinstance(tag, str) for tag in listed):
        raise ConfigurationError(f"tasks: number {number} has the tags {cut(repr(given), 80)}: pass a list of texts.")
    return tuple(tag.strip() for tag in listed if tag.strip())


def _tools(number: int, given: Any) -> Mapping[str, Any]:
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise ConfigurationError(f"tasks: number {number} has tools that are not JSON: {error}.") from error
    return {} if given is None else cast(Mapping[str, Any], given)


def _plain(value: Any) -> Any:
    """Return a value of a table without types of numpy, a date as text; None for a missing one."""
    value = value.tolist() if hasattr(value, "tolist") else value
    is_missing = (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")  # noqa: PLR0124  NaN
    return None if is_missing else value.isoformat() if isinstance(value, date) else value


def _shown(value: Any) -> Any:
    """Return a JSON value whose texts have no keys and can be encoded."""
    if isinstance(value, str):
        return whole(redact(value))
    if isinstance(value, Mapping):
        return {key: _shown(one) for key, one in value.items()}
    return [_shown(one) for one in value] if isinstance(value, list | tuple) else value


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)


def hash_of(value: Any) -> str:
    """Return the hash of a JSON value: 16 hexadecimal digits."""
    return hashlib.sha256(_json(value).encode("utf-8", "surrogatepass")).hexdigest()[:16]
