"""The README for package indexes: its relative links and pictures become links into the repository.

hatchling runs `Readme` when it builds a wheel or an sdist (`[tool.hatch.metadata.hooks.custom]` in pyproject.toml).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)(\[(?:[^\[\]`]|`[^`]*`)*\]|(?<=\))\])\((?!\w+:|#)([^)\s]+)\)")


def absolute(text: str, repository: str) -> str:
    """Return the Markdown with links into the repository at this address, as files of the branch main; code blocks stay as they are."""

    def link(found: re.Match[str]) -> str:
        picture, label, path = found.groups()
        return f"{picture}{label}({repository}/{'raw' if picture else 'blob'}/main/{path})"

    return "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in _FENCE.split(text))


class Readme(MetadataHookInterface):
    """Sets the long description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add `readme` to the metadata of pyproject.toml."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = absolute(text, metadata["urls"]["Homepage"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
