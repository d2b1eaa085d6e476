"""A cell that leaves a kernel as if new, for tests that use one after another: it takes longer to start than most of them do."""

from __future__ import annotations

END_AND_FORGET = """
def __end_and_forget():
    import gc, sys, threading, time
    lab, view = map(sys.modules.get, ("agentlab", "agentlab.notebook.live_view"))
    known = gc.get_objects()
    for one in known if view else ():
        if view.LiveView in type(one).__mro__:
            one._shown_live = False  # no picture of the end for a notebook that is closed next
    for one in known if lab else ():
        if type(one) in (lab.Run, lab.Lockstep):
            one.cancel()
    del known
    for widgets in filter(None, [sys.modules.get("ipywidgets")]):
        widgets.Widget.close_all()
    deadline = time.monotonic() + 5
    def left():
        while (names := [thread.name for thread in threading.enumerate() if thread.name.startswith("agentlab-")]):
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        return names
    left()
    get_ipython().reset(new_session=False)
    gc.collect()
    gc.freeze()  # what the libraries made: the next collections leave it out
    return left()
__left = __end_and_forget()
"""
"""It ends all runs and threads of agentlab, closes the widgets and forgets the names; `__left` names the threads that did not end."""
