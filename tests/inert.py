"""Hostile texts, a run that has one in every place, and whether HTML is inert: parsed as browsers do, it has no element, attribute or
address that acts."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from typing import Any

import html5lib

import agentlab as lab
from agentlab import StepCountIs
from agentlab.agent import Run
from agentlab.testing import ScriptedProvider, call, say

HOSTILE = {
    "script": "<script>window.owned = 1</script>",
    "out-of-the-box": '</pre></div></style></details></script><script>alert(1)</script><img src="/owned.png" onerror="alert(2)">',
    "image": "![x](https://owned.example/pixel.png) ![y](/owned.png) ![z](javascript:alert(1))",
    "image-of-data": "![x](data:image/svg+xml;base64,PHN2Zz4=) ![y](data:image/png;base64,iVBORw0KGgo=)",
    "image-with-a-quote": '![" onerror="alert(1)](https://e.example/"onload="alert(1))',
    "link": "[x](javascript:alert(1)) [y](JaVaScRiPt:alert(1)) [z](&#106;avascript:alert(1)) [w](<java\tscript:alert(1)>)",
    "link-of-data": "[x](data:text/html,<script>alert(1)</script>) [y](vbscript:x) [z](file:///etc/passwd)",
    "link-elsewhere": "[w](blob:x) [v](//owned.example) [u](ftp://owned.example)",
    "link-within": "[x](relative/page.html) [y](#place) [z](?query) [w](/root)",
    "autolink": "<javascript:alert(1)> <https://fine.example> <mailto:a@b.example> <data:text/html,x>",
    "reference": "[x][1]\n\n[1]: javascript:alert(1) 'title'\n[2]: https://fine.example \"onclick=alert(1)\"",
    "title": "[x](https://fine.example 'a\" onmouseover=\"alert(1)')",
    "html": '<a href="javascript:alert(1)">x</a><style>body{background:url(/owned.css)}</style><svg onload=alert(1)><math href="x">',
    "comment": "<!--><script>alert(1)</script>--> <![CDATA[<script>]]> <?php echo 1 ?>",
    "entity": "&lt;script&gt; &#60;script&#62; &amp;lt;",
    "fence": '```"><script>alert(1)</script>\nx\n```',
    "fence-info": "```python onload=alert(1) <b>\nx = '</pre><script>'\n```",
    "fence-open": "```html\n<script>alert(1)</script>",
    "table": '| a | <b> |\n|:-:|--:|\n| <img onerror=1> | [x](javascript:1) |',
    "math": r"$\href{javascript:alert(1)}{x}$ \(\sqrt{x}\) $$\rule{900px}{900px}$$ \[x\]",
    "terminal": "\x1b[31mred\x1b[0m\x1b]8;;/owned\x07link\x1b]8;;\x07\x07\x00",
    "turned": "\u202ereversed \u2067isolated \u200b\u200d\ufeffzero e" + "\u0301" * 60,
    "half-a-character": "\ud83d alone, \ud83d\ude00 together",
    "nested": "> " * 300 + "deep " + "* " * 300 + "[" * 300 + "`" * 301,
    "mutation": "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\">x<form><math><mtext></form><mglyph><style></math>",
}  # fmt: skip

_ACTING = {
    "script", "style", "iframe", "object", "embed", "form", "input", "button", "textarea", "select", "svg", "math", "link", "meta",
    "base", "template", "video", "audio", "source", "frame", "frameset", "noscript", "marquee", "html", "head", "body",
}  # fmt: skip
_ATTRIBUTES = {
    "class", "dir", "href", "src", "alt", "width", "height", "rel", "target", "open", "data-section", "start", "tabindex", "colspan",
    "rowspan", "scope",
}  # fmt: skip


def what_acts(html: str) -> list[str]:
    """What is in this HTML that could act, load or leave the page; empty for HTML that is only read."""
    found = []
    for element in html5lib.parseFragment(html, treebuilder="etree", namespaceHTMLElements=False).iter():
        tag: Any = element.tag
        if element.tag == "DOCUMENT_FRAGMENT":
            continue
        if not isinstance(tag, str) or tag.lower() in _ACTING or not re.fullmatch("[a-z0-9]+", tag):
            found.append(f"<{tag}>")
            continue
        for name, value in element.attrib.items():
            if name not in _ATTRIBUTES:
                found.append(f"<{tag} {name}>")
            if name == "href" and not re.match("https?://|mailto:", value):
                found.append(f"<{tag} href={value[:60]!r}>")
            if name == "src" and not re.match("data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*$", value):
                found.append(f"<{tag} src={value[:60]!r}>")
        if tag == "a" and {"noopener", "noreferrer", "nofollow"} - set(element.get("rel", "").split()):
            found.append("<a> without rel")
    return found


def text_of(html: str) -> str:
    """What is read of this HTML."""
    return "".join(html5lib.parseFragment(html, treebuilder="etree", namespaceHTMLElements=False).itertext())


def to_the_end(run: Run) -> Run:
    """The run, ended, also where this thread has an event loop already."""
    with contextlib.suppress(RuntimeError):  # of a script
        run.start().wait(60)
    return run


def hostile_run(text: str) -> Run:
    """A run that has this text in every place that takes one."""

    def archive(query: str) -> str:
        """Look it up."""
        if "fail" in query:
            raise ValueError(text)
        return text

    signal = lab.TerminationSignal(lab.FinishReason.TOOL_CALLS, lab.signals.Confidence.LOW, text, text, text)
    calls = [call("archive", {"query": text}), call("archive", {"query": "fail"}), call(text[:200], text, id=text[:100])]
    said = [dataclasses.replace(one, text=text, reasoning=text, refusal=text, model=text) for one in (*calls, say(text))]
    said[0] = dataclasses.replace(said[0], signal=signal, raw={text: [text]})
    model = ScriptedProvider(said, name=text, model=text)
    agent = lab.Agent(model, tools=[archive], name=text, instructions=text)
    condition = lab.Custom(lambda history: False, name=text)
    before = [lab.Message("user", text), lab.Message("assistant", text)]
    run = agent.run(text, stop=condition | StepCountIs(9), messages=before)
    to_the_end(run)
    run.fork(at=1, message=text, prompt=f"{text} again")
    run.fork(at=1, tool_results={run.history[0].tool_calls[0].id: text})
    return run
