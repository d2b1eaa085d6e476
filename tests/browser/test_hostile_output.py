"""Model output may contain anything: it stays text, sends no request, and leaves the rest of the page as it is."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from .lab_page import NOTEBOOK, LabPage

HOSTILE_RUN = r"""
import agentlab as lab
from agentlab import Budget
from agentlab.testing import ScriptedProvider, call, say
from agentlab.model.finish_reasons import Confidence, TerminationSignal
from dataclasses import replace

MARKUP = '</pre></div></style><script>window.owned = 1</script><img src="/owned.png" onerror="window.owned = 2">'
LINK = '<a href="javascript:window.owned=3">x</a><style>body{background:url(/owned.css)}</style> $\\href{/owned}{x}$ '
ANSI = "\x1b[31mred\x1b[0m\x1b]8;;/owned\x07link\x1b]8;;\x07\x07\x00 "
TURNED = "\u202ereversed \u2067isolated \u05e9\u05dc\u05d5\u05dd \u200b\u200d\ufeffzero\u200bwidth e" + "\u0301" * 60 + " "
HOSTILE = MARKUP + LINK + ANSI + TURNED
ENDLESS = "W" * 1_000_000

def archive(query: str) -> str:
    "Look it up."
    if "fail" in query:
        raise ValueError(HOSTILE)
    return HOSTILE + ENDLESS

def script(request, index):
    if index == 1:
        return call("archive", {"query": HOSTILE})
    if index == 2:
        return call("archive", {"query": "fail " + HOSTILE})
    if index == 3:
        return call(HOSTILE[:200], HOSTILE)
    if index == 4:
        return RuntimeError(HOSTILE) if FAILS else say("short")
    return say("never")

def answer(request, index):
    response = script(request, index)
    if isinstance(response, Exception):
        return response
    signal = TerminationSignal(response.signal.finish_reason, Confidence.LOW, HOSTILE, HOSTILE, HOSTILE)
    return replace(response, text=HOSTILE + ENDLESS, signal=signal, model=HOSTILE)

model = ScriptedProvider(answer, name=HOSTILE, model=HOSTILE)
condition = lab.Custom(lambda history: False, name=HOSTILE)
run = lab.Agent(model, tools=[archive], name=HOSTILE, instructions=HOSTILE).run(
    HOSTILE, stop=condition | lab.StepCountIs(9), approve=["archive"] if WAITS else None
)
run.panel()
"""

OVERFLOWS = """() => {
    const cell = document.querySelector('.jp-Notebook .jp-Cell-outputArea').getBoundingClientRect();
    const wide = [...document.querySelectorAll('.agentlab-page:has(> .page-frame) *')].filter(one => {
        if (!one.checkVisibility() || one.getBoundingClientRect().right <= cell.right + 1) return false;
        for (let box = one.parentElement; !box.matches('.jp-Cell-outputArea'); box = box.parentElement)
            if (['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(box).overflowX)
                && box.getBoundingClientRect().right <= cell.right + 1) return false;
        return true;
    });
    return wide.map(one => one.tagName + '.' + one.className + ': ' + one.textContent.slice(0, 60));
}"""
"""Elements that overflow the cell and are not clipped or scrolled by another element."""

REVERSED = """() => {
    const texts = document.createTreeWalker(document.querySelector('.agentlab-page:has(> .page-frame)'), NodeFilter.SHOW_TEXT);
    const wrong = [];
    while (texts.nextNode()) {
        const node = texts.currentNode, text = node.data.trim();
        if (!/^[ -~]{3,80}$/.test(text) || !node.parentElement.checkVisibility()) continue;
        const from = node.data.indexOf(text);
        const box = (at) => { const one = document.createRange(); one.setStart(node, at); one.setEnd(node, at + 1);
                              return one.getBoundingClientRect(); };
        const first = box(from), last = box(from + text.length - 1);
        if (Math.abs(first.top - last.top) < 2 && first.left > last.left) wrong.push(text);
    }
    return wrong;
}"""
"""Plain texts whose first letter is right of their last."""

BUTTONS = ("Run", "Step", "Pause", "Stop")


OPEN_ALL = "document.querySelectorAll('.agentlab-page details').forEach(one => { one.open = true; })"


@pytest.mark.parametrize("fails", [False, True], ids=["completes", "fails"])
def test_hostile_output_stays_text_and_breaks_nothing(lab: LabPage, fails: bool) -> None:
    asked: list[str] = []
    lab.page.on("request", lambda request: asked.append(request.url))
    lab.open(lab.jupyter.write_notebook("hostile", [f"FAILS, WAITS = {fails}, False\n" + HOSTILE_RUN]))
    lab.run_cell(0, wait=False)
    lab.button("Run").click()
    lab.wait_for_status("ended")
    for step in (1, 2, 3, 4):
        lab.page.evaluate(OPEN_ALL)
        unharmed(lab, asked, f"step {step}")
        lab.button("Previous step").click()
    lab.kernel_value("run.fork(at=1, message=HOSTILE, prompt=HOSTILE) and 1")
    expect(lab.button("Compare")).to_be_visible()
    lab.button("Compare").click()
    lab.page.evaluate(OPEN_ALL)
    unharmed(lab, asked, "comparing")
    lab.wait_for_kernel("run.result is not None", "True")
    outputs = [output["data"] for output in lab.save()["cells"][0]["outputs"] if "data" in output]
    saved = "".join("".join(data.get(kind, "")) for data in outputs for kind in ("text/html", "text/plain"))
    assert "\x1b" not in saved and len(saved) < 6_000_000
    assert "<script" not in "".join("".join(data.get("text/html", "")) for data in outputs)


def test_hostile_arguments_and_messages_of_a_run_that_waits_stay_text(lab: LabPage) -> None:
    asked: list[str] = []
    lab.page.on("request", lambda request: asked.append(request.url))
    lab.open(lab.jupyter.write_notebook("waits", ["FAILS, WAITS = False, True\n" + HOSTILE_RUN]))
    lab.run_cell(0, wait=False)
    lab.button("Run").click()
    lab.wait_for_status("waiting for approval")
    expect(lab.button("Approve").first).to_be_visible()
    unharmed(lab, asked, "waiting")
    lab.button("Answer in its place…").click()
    lab.live.get_by_label("What the model reads as the result").fill('<img src="/owned.png" onerror="window.owned = 4">')
    lab.button("Send the answer").click()
    expect(lab.live.get_by_text("What the model reads as the result")).to_have_count(0)
    lab.page.evaluate(OPEN_ALL)
    unharmed(lab, asked, "answered")
    lab.button("Stop").click()


def unharmed(lab: LabPage, asked: list[str], state: str) -> None:
    """Assert that no script ran, no request was sent, nothing overflows, and only the hostile text is shown right to left."""
    page = lab.page
    inert(lab, asked, state)
    assert page.evaluate(OVERFLOWS) == [], f"{state}: sticks out"
    assert page.evaluate(REVERSED) == [], f"{state}: turned round"
    letters = page.evaluate("document.querySelector('.agentlab-page:has(> .page-frame)').textContent.length")
    assert letters < 500_000, f"{state}: {letters:,} letters are in the page"
    for name in BUTTONS:
        expect(lab.button(name)).to_be_visible()


ACTING = ':is(script, iframe, object, embed, [onerror], [onload], [onclick], a[href^="javascript" i], img[src*="owned"])'


def inert(lab: LabPage, asked: list[str], state: str, inside: str = ".agentlab-page") -> None:
    """Assert that no script ran, no request was sent, and nothing in these elements could do either."""
    expect(lab.page.locator(inside).first).to_be_attached()
    assert lab.page.evaluate("window.owned === undefined"), f"{state}: a script ran"
    assert not [url for url in asked if "owned" in url], f"{state}: the page asked for something"
    assert lab.page.locator(f"{inside} {ACTING}").count() == 0, state


IN_STORE = [
    "FAILS, WAITS = False, False"
    + HOSTILE_RUN.replace("run.panel()", "store = lab.Store()\nstore.keep(run)\nresult = await run"),
    "branch = store.keep(run.fork(at=1, message=HOSTILE, prompt=HOSTILE))\nresult = await branch",
    "lab.browse(store)",
    "run.panel()",
]


def test_hostile_runs_in_a_store_do_nothing(lab: LabPage) -> None:
    page, asked = lab.page, list[str]()
    page.on("request", lambda request: asked.append(request.url))
    lab.open(lab.jupyter.write_notebook("stored", IN_STORE))
    for place in range(len(IN_STORE)):
        lab.run_cell(place)
    grid, opened = page.locator(".page-browse"), page.locator(".page-browse-run")
    rows = grid.locator(".page-grid-row")
    expect(rows).to_have_count(2)
    inert(lab, asked, "grid", ".page-browse")
    grid.get_by_role("searchbox").fill('<img src="/owned.png" onerror="window.owned = 2">')
    expect(rows).to_have_count(2)
    inert(lab, asked, "filtered", ".page-browse")
    for place in (0, 1):
        rows.nth(place).click()
        expect(opened.get_by_role("feed").locator("visible=true")).to_be_visible()
        page.evaluate(OPEN_ALL)
        inert(lab, asked, f"opened {place}")
        page.get_by_role("button", name="All runs").click()
    for place in (0, 1):
        rows.nth(place).get_by_role("checkbox").check()
    grid.get_by_role("button", name="Compare", exact=True).first.click()
    expect(opened.locator(".page-diff")).to_be_visible()
    page.evaluate(OPEN_ALL)
    inert(lab, asked, "compared")

    saved = lab.save()
    lab.restart_kernel()
    for name, trusted in (("trusted", True), ("untrusted", False)):
        if not trusted:
            saved["cells"][0]["source"] = "# changed by somebody else"  # the signature is of all that was saved
        path = lab.jupyter.root / f"{name}.ipynb"
        path.write_text(json.dumps(saved), encoding="utf-8")
        lab.open(path)
        assert page.evaluate(f"() => {{ {NOTEBOOK} return panel.content.widgets[0].model.trusted; }}") is trusted
        for place, text in ((2, "2 runs"), (3, "Step 1")):
            lab.wait_for_output(place, text)
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        page.wait_for_timeout(500)
        inert(lab, asked, name, ".jp-Notebook .jp-Cell-outputArea")


MATH_RUN = r"""
import agentlab as lab
from agentlab.testing import ScriptedProvider, call, say
MATH = r'$\frac{1}{2}$ \(\sqrt{x}\) $\rule{900px}{900px}$ $\href{http://owned.example/}{owned}$'

def archive(query: str = "") -> str:
    "Look it up."
    return MATH

model = ScriptedProvider([call(MATH, MATH), call("archive", {"query": MATH}), say(MATH)], name=MATH, model=MATH)
run = lab.Agent(model, tools=[archive], name=MATH).run(MATH, budget=lab.Budget(max_turns=9))
result = await run
"""
MATH_VIEWS = {
    "the panel": "run.panel()",
    "several runs": "lab.panel([run, run.fork(at=1, message=MATH)])",
    "the explorer": "lab.explore([result], limits={'StepCountIs': [1, 2], 'HasToolCall': None})",
    "a result": "result",
}


FORMULAS = """formula => [...document.querySelectorAll(formula)].filter(one => !one.closest('.jp-RenderedLatex'))
    .map(one => (one.closest('.jupyter-widgets, .jp-RenderedHTMLCommon') || one).className + ': ' + one.innerText)"""


def test_formulas_in_names_stay_text(lab: LabPage) -> None:
    """JupyterLab renders `$…$` as a formula in any HTML, and a formula can contain links and boxes of any size."""
    source = [MATH_RUN, "from IPython.display import Math\nMath('x^2')", *MATH_VIEWS.values()]
    lab.open(lab.jupyter.write_notebook("math", source))
    for place in range(len(source)):
        lab.run_cell(place)
    formula = "mjx-container, .MathJax, .MathJax_Display"
    expect(lab.page.locator(f".jp-Cell:nth-of-type(2) :is({formula}), .jp-RenderedLatex :is({formula})").first).to_be_attached()
    lab.page.wait_for_timeout(1500)  # they are rendered with a delay
    outside = lab.page.evaluate(FORMULAS, formula)
    assert outside == []
