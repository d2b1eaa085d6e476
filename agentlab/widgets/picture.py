"""A picture of a run, with the same in words."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from agentlab.widgets import markup


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG; `alt` says in words what is to be seen, `about` what part of the run it is. `width` and `height` are in pixels of the
    page: the picture itself has more."""

    png: bytes
    alt: str
    width: int
    height: int
    about: str = ""

    def as_html(self) -> str:
        """The picture inside the page, and what is to be said of it below."""
        return markup.picture(self.png, f"{self.alt} {self.about}".strip(), self.width) + markup.note(self.about)

    def as_output(self) -> tuple[dict[str, str], dict[str, Any]]:
        """The picture as an output of its own: data and metadata by mime type. No text, since times differ from run to run."""
        alt = markup.printable(f"{self.alt} {self.about}".strip())
        data = {"image/png": base64.b64encode(self.png).decode()}
        return data, {"image/png": {"width": self.width, "height": self.height, "alt": alt}}
