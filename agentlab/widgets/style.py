"""How the panel looks. Colours hold on white and on near black, and tell nothing alone; the style sheets stand beside this file.

static.css    for the live panel and for what stays as it is: that is kept in notebooks, so that each change to it is one of theirs
live.css      only for the live panel
kept.css      for what is kept in the notebook beside the live panel
"""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent


def _sheet(name: str) -> str:
    return f"<style>\n{(_HERE / name).read_text(encoding='utf-8')}</style>"


STYLE, LIVE_STYLE, KEPT_STYLE = _sheet("static.css"), _sheet("live.css"), _sheet("kept.css")
