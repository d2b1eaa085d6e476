"""What a person does to a run in a real JupyterLab: the buttons, the chat box, approvals, and the file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from .lab_page import LabPage
from .panels import SLOW_RUN, TRIP, open_cell


@pytest.fixture
def panel(lab: LabPage) -> LabPage:
    """A page with the panel of a run of up to 2,000 slow steps, not yet started."""
    lab.open(lab.jupyter.write_notebook("panel", [SLOW_RUN, "print('the kernel answers')"]))
    lab.run_cell(0)
    lab.wait_until_enabled("Run")
    return lab


def chat(page: LabPage) -> Locator:
    return page.live.get_by_label("Next message")


# The buttons ------------------------------------------------------------------------------------------------------------------


COUNT_MESSAGES = """() => {
    const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
    window.messages = 0;
    kernel.anyMessage.connect((_, { msg, direction }) => {
        if (direction === 'recv' && msg.header.msg_type === 'comm_msg') window.messages += 1;
    });
}"""


def test_the_buttons_from_the_first_step_to_the_stop(panel: LabPage) -> None:
    """Each says what it does or why it is disabled; a pause is counted in the page; a message that comes too early stays in its box."""
    expect(panel.button("Pause")).to_have_attribute("title", "Nothing is running.")
    expect(panel.button("Pause")).to_be_disabled()
    chat(panel).fill("Already?")
    expect(panel.button("Send")).to_be_disabled()
    expect(panel.button("Send")).to_have_attribute("title", "Once the run has begun, you can send the next message.")
    chat(panel).press("Enter")
    panel.button("Step").click()
    panel.wait_for_steps(1)
    panel.wait_for_status(re.compile("^idle"))
    assert panel.kernel_value("(len(run.history), len(run.branches))") == "(1, 0)"

    panel.press("Run", "Enter")
    panel.wait_for_steps(2)
    expect(chat(panel)).to_have_value("Already?")
    expect(panel.button("Run")).to_have_attribute("title", "The run is under way.")
    expect(panel.button("Run")).to_be_focused()
    panel.run_cell(1)  # the cell with the panel has returned, while its run goes on
    panel.wait_for_output(1, "the kernel answers")
    assert panel.kernel_value("str(run.state)") == "'running'"

    panel.button("Pause").click()
    panel.wait_for_status(re.compile("^paused"))
    paused_at = panel.kernel_value("len(run.history)")
    panel.page.wait_for_timeout(600)
    assert panel.kernel_value("len(run.history)") == paused_at
    panel.page.evaluate(COUNT_MESSAGES)
    since = panel.status.locator(".page-since")
    expect(since).to_have_text(re.compile("^[2-9] s$"))
    before = since.inner_text()
    expect(since).not_to_have_text(before)
    assert panel.page.evaluate("window.messages") == 0

    panel.button("Resume").click()
    panel.wait_for_steps(int(paused_at) + 2)
    panel.button("Stop").dblclick()
    panel.wait_for_output(0, "Stopped by the person: the Stop button")
    panel.wait_for_status(re.compile("^ended early"))
    expect(panel.button("Run")).to_have_attribute("title", "The run has ended.")
    assert panel.kernel_value("str(run.result.stop_reason)") == "'explicit_stop'", "a double click is one press"


def test_the_time_runs_during_a_long_step(lab: LabPage) -> None:
    open_cell(lab, "clock", SLOW_RUN.replace("sleep(0.1)", "sleep(30)"))
    lab.button("Run").click()
    time = lab.status.locator("[data-total=elapsed_s]")
    for seconds in (1, 2, 3):
        expect(time).to_have_text(f"{seconds} s")
    lab.button("Stop").click()
    lab.wait_for_status("running, stops after this step")
    lab.button("Stop now").click()
    lab.wait_for_status(re.compile("^ended early"))


# Approvals --------------------------------------------------------------------------------------------------------------------


def card(page: LabPage, tool: str = "book_hotel") -> Locator:
    return page.live.get_by_role("group", name=f"Call of {tool}")


@pytest.fixture
def trip(lab: LabPage) -> LabPage:
    """A page with a run that waits for the approval of its second step's call."""
    open_cell(lab, "trip", TRIP)
    lab.press("Run", "Enter")
    lab.wait_for_status(re.compile("^waiting for approval"))
    return lab


def test_the_arguments_are_edited_and_what_does_not_fit_is_marked_before_a_press_and_refused_after_one(
    trip: LabPage, tmp_path: Path
) -> None:
    box = card(trip).get_by_label("Arguments of book_hotel")
    the_runs_are_saved_as_a_file(trip, tmp_path)
    expect(box).to_have_value('{"city": "Graz", "nights": 2}')
    expect(box).to_have_attribute("aria-invalid", "false")
    expect(trip.live.get_by_label("Calls that wait for approval").first).to_contain_text("You can edit the arguments first.")
    # sent before they are checked
    box.evaluate(
        """box => {
            box.value = '{"city": "Graz", "nights": "many"}';
            box.dispatchEvent(new InputEvent('input', { bubbles: true }));
            box.closest('.page-card').querySelector('.page-button.main').click();
        }"""
    )
    expect(card(trip).get_by_role("alert")).to_contain_text("nights")
    assert trip.kernel_value("(len(run.pending), booked)") == "(1, [])"
    for wrong, why in (('{"city": "Graz", "nights": "many"}', "nights: Input should be"), ('{"city": "Graz",', "Invalid JSON")):
        box.fill(wrong)
        expect(card(trip).get_by_role("alert")).to_contain_text(why)
        expect(box).to_have_attribute("aria-invalid", "true")
        expect(trip.button("Approve with these arguments")).to_be_disabled()
        expect(trip.button("Approve with these arguments")).to_have_attribute("title", re.compile(re.escape(why)))
    box.fill('{"city": "Graz", "nights": 3}')
    expect(card(trip).get_by_role("alert")).to_be_hidden()
    trip.button("Approve with these arguments").click()
    trip.wait_for_status(re.compile("^ended"))
    assert trip.kernel_value("booked") == "[3]"


def test_cards_leave_room_for_the_transcript_and_mark_the_models_own_mistakes(lab: LabPage) -> None:
    arguments = '{"nights": "many", "city": "Graz, " * 90, "notes": [*range(30)]}'
    wrong = f'wrong = call("book_hotel", {arguments}, id="third").tool_calls\nmodel ='
    open_cell(lab, "three", TRIP.replace("calls=hotel", "calls=hotel + hotel_2 + wrong").replace("model =", wrong))
    lab.button("Run").click()
    lab.wait_for_status(re.compile("^waiting for approval"))
    last = card(lab).nth(2)
    expect(last.get_by_role("alert")).to_contain_text("If you approve, the model reads this as an error.")
    expect(last.get_by_role("textbox")).to_have_attribute("aria-invalid", "true")
    expect(last.get_by_role("button", name="Approve")).to_be_enabled()
    height = "one => one.getBoundingClientRect().height"
    for width in (1440, 900):
        lab.page.set_viewport_size({"width": width, "height": 900})
        whole, cards = (float(one.evaluate(height)) for one in (lab.live, lab.live.locator(".page-approvals")))
        assert cards <= whole / 3 + 20
        assert float(card(lab).nth(0).get_by_role("textbox").evaluate(height)) < 35
        assert float(last.get_by_role("textbox").evaluate(height)) < 110
        for button in last.get_by_role("button").all():
            button.focus()
            expect(button).to_be_in_viewport(ratio=1)
        expect(lab.live.get_by_role("heading", name="3 tool calls wait for your approval")).to_be_in_viewport(ratio=1)


@pytest.mark.parametrize(
    ("choice", "word", "send", "read"),
    [
        ("Answer in its place…", "By phone.", "Send the answer", "By phone."),
        ("Refuse…", "Too long.", "Refuse", "The person refused: Too long."),
    ],
)
def test_a_person_answers_in_the_place_of_a_tool_or_refuses(trip: LabPage, choice: str, word: str, send: str, read: str) -> None:
    trip.press(choice, "Enter")
    trip.page.keyboard.press("Escape")
    expect(trip.button(choice)).to_be_focused()
    trip.press(choice, "Enter")
    trip.page.keyboard.type(word)
    trip.button(send).click()
    trip.wait_for_status(re.compile("^ended"))
    assert trip.kernel_value("run.history[1].tool_results[0].content") == repr(read)
    assert trip.kernel_value("booked") == "[]"


def test_a_person_who_types_keeps_the_focus_and_all_calls_are_approved_at_once(lab: LabPage) -> None:
    open_cell(lab, "two", TRIP.replace("calls=hotel", "calls=hotel + hotel_2"))
    lab.button("Run").click()
    chat(lab).click()
    chat(lab).press_sequentially("And then", delay=100)
    lab.wait_for_status(re.compile("^waiting for approval"))
    expect(lab.live.get_by_role("heading", name="2 tool calls wait for your approval")).to_be_visible()
    expect(chat(lab)).to_be_focused()
    expect(chat(lab)).to_have_value("And then")
    lab.button("Approve all").click()
    lab.wait_for_status(re.compile("^ended"))
    assert lab.kernel_value("booked") == "[2, 1]"
    expect(chat(lab)).to_have_value("And then")


def test_a_run_that_waited_without_a_panel_continues_with_the_approval(lab: LabPage) -> None:
    cell = TRIP.replace("run.panel()", "result = await run\nassert str(result.stop_reason) == 'awaiting_approval'\nrun.panel()")
    lab.open(lab.jupyter.write_notebook("absent", [cell]))
    lab.run_cell(0)
    lab.button("Approve").click()
    lab.wait_for_status(re.compile("^ended"))
    assert lab.kernel_value("booked") == "[2]"


# The next message, and the ways to continue -----------------------------------------------------------------------------------


def test_a_call_is_approved_by_keyboard_and_the_next_message_continues_the_conversation(trip: LabPage) -> None:
    expect(trip.live.get_by_label("Calls that wait for approval").first).to_be_attached()
    expect(card(trip)).to_contain_text("approve has 'book_*'")
    expect(chat(trip)).to_have_attribute("placeholder", re.compile("Decide on the tool call first"))
    trip.page.keyboard.press("Tab")
    expect(card(trip).get_by_label("Arguments of book_hotel")).to_be_focused()
    trip.page.keyboard.press("Tab")
    expect(trip.button("Approve")).to_be_focused()
    trip.page.keyboard.press("Enter")
    trip.wait_for_status(re.compile("^ended"))
    expect(card(trip)).to_have_count(0)
    assert trip.kernel_value("booked") == "[2]"

    expect(chat(trip)).to_have_attribute("placeholder", "Next message")
    low = chat(trip).bounding_box()
    chat(trip).fill("How far is it")
    chat(trip).press("Shift+Enter")
    chat(trip).press_sequentially("from Vienna?")
    high = chat(trip).bounding_box()
    assert low is not None and high is not None and low["height"] < 40 < high["height"] < 80

    chat(trip).press("Enter")  # the limit of three steps is reached: the first Enter leads to the offer
    offer = trip.button("Raise the turn limit to 6 and send")
    expect(offer).to_be_focused()
    assert trip.kernel_value("len(run.branches)") == "0"
    trip.page.keyboard.press("Enter")
    expect(trip.live.get_by_role("feed", name="Transcript")).to_contain_text("It is about 200 km.")
    expect(chat(trip)).to_have_value("")
    expect(chat(trip)).to_be_focused()
    expect(trip.live.locator(".page-chip[aria-current=true]")).to_contain_text("2 messages")
    assert trip.kernel_value("[branch.history.last.text for branch in run.branches]") == "['It is about 200 km.']"


def test_a_way_to_continue_is_one_press_and_a_double_click_makes_one_branch(lab: LabPage) -> None:
    open_cell(lab, "continue", SLOW_RUN.replace("max_turns=2_000", "max_turns=2"))
    lab.button("Run").click()
    lab.wait_for_status(re.compile("^ended early"))
    lab.button("Raise the turn limit to 4 and continue").dblclick()
    lab.wait_for_steps(4)
    expect(lab.button("Raise the turn limit to 8 and continue")).to_be_visible()
    assert lab.kernel_value("[len(branch.history) for branch in run.branches]") == "[4]"


def test_the_code_for_a_way_to_continue_is_folded_and_never_broken_within_words(lab: LabPage) -> None:
    cell = SLOW_RUN.replace("max_turns=2_000", "max_turns=2").replace(
        "run.panel()", "every_run_of_this_notebook = {'the first': run}\ndel run"
    )
    open_cell(lab, "code", f"{cell}\nlab.panel(every_run_of_this_notebook['the first'])")
    lab.button("Run").click()
    lab.wait_for_status(re.compile("^ended early"))
    actions = lab.live.locator("[data-section=actions]")
    code = actions.locator(".page-code code").first
    expect(code).to_be_hidden()
    actions.locator("summary", has_text="In code").first.click()
    expect(code).to_contain_text("every_run_of_this_notebook['the first']")
    lines = "one => one.getBoundingClientRect().height / parseFloat(getComputedStyle(one).lineHeight)"
    assert 1.5 < float(code.evaluate(lines)) < 3.5, "two lines, perhaps with a scroll bar below them"
    assert code.evaluate(
        "one => one.scrollWidth > one.clientWidth && one.closest('section, .page-drawer').scrollWidth <= innerWidth"
    )
    lab.kernel_value("every_run_of_this_notebook['the first'].fork(1)")
    expect(lab.live.locator(".page-chip")).to_have_count(2)
    expect(code).to_be_visible()


def the_runs_are_saved_as_a_file(trip: LabPage, tmp_path: Path) -> None:
    with trip.page.expect_download() as download:
        trip.live.get_by_role("button", name="Save as file").click()
    assert download.value.suggested_filename == "travel-guide.html"
    download.value.save_as(tmp_path / "run.html")
    text = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>") and "Book me a room in Graz" in text
    assert not list(trip.jupyter.root.glob("*.html")), "the kernel writes no file"
