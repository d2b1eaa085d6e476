"""What is kept holds no keys: how they are taken out of it, and how it is known again as what it was made of.

Which keys a process knows may be otherwise the next time: another environment, another provider key. What was kept then has `REDACTED`
where the text of now has the key, or a key where the text of now shows none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from agentlab.redaction import REDACTED, SHORTEST_SECRET, without_keys

Hide = Callable[[str], str]

_MARKS = re.compile(f"(?:{REDACTED})+(?:{'|'.join(REDACTED[:length] for length in range(len(REDACTED) - 1, 0, -1))})?")
"""What stands in the place of a key; in base64 it is as long as that was."""
_A_KEY = rf"(?:(?i:bearer|basic|token|key)\s)?\S{{{SHORTEST_SECRET},}}"
"""What may have stood there."""


def hidden(text: str, hide: Hide) -> str:
    """JSON text without keys. Numbers stay, and so do the names of fields, but for what is a key in any text: the shorter keys of a
    provider may be the digits of a number, or a word."""
    without = hide(text)
    if without == text:
        return text
    try:
        return json.dumps(in_texts(json.loads(text), hide), separators=(",", ":"))
    except RecursionError:  # a model may nest as deep as it likes
        return without


def in_texts(value: Any, hide: Hide) -> Any:
    """A JSON value with all texts in it hidden."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, list):
        return [in_texts(one, hide) for one in value]
    if isinstance(value, dict):
        return {without_keys(name): in_texts(one, hide) for name, one in value.items()}
    return value


def same_but_for_keys(kept: Any, meant: Any, hide: Hide = without_keys) -> bool:
    """Whether a JSON value that is kept may be made of this one, whichever keys were known then and are known now."""
    if kept == meant:
        return True
    # What is written instead of a key may, with what stands around it, look like one: both have been through it as often.
    return _same(in_texts(kept, hide), in_texts(in_texts(meant, hide), hide))


def _same(kept: Any, meant: Any) -> bool:
    if isinstance(kept, str) and isinstance(meant, str):
        return kept == meant or (REDACTED in kept and _as_it_may_have_been(kept).fullmatch(meant) is not None)
    if isinstance(kept, list) and isinstance(meant, list):
        return len(kept) == len(meant) and all(map(_same, kept, meant))
    if isinstance(kept, Mapping) and isinstance(meant, Mapping):
        return len(kept) == len(meant) and _same_fields(kept, meant)
    return bool(kept == meant)


def _same_fields(kept: Mapping[str, Any], meant: Mapping[str, Any]) -> bool:
    left = dict(meant)
    for name, value in sorted(kept.items(), key=lambda one: one[0] not in meant):  # names that are the same first
        of = [name] if name in left else [other for other in left if _same(name, other)]
        found = next((other for other in of if _same(value, left[other])), None)
        if found is None:
            return False
        del left[found]
    return True


@lru_cache(maxsize=256)
def _as_it_may_have_been(kept: str) -> re.Pattern[str]:
    return re.compile(_A_KEY.join(map(re.escape, _MARKS.split(kept))))
