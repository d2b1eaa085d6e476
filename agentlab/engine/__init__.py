"""How a run goes: one step after the other, from a plan to a snapshot.

May import: `providers` and what is below it.

A run is made of parts, and one step passes through them from top to bottom:

    plan             a run as frozen values: its plan, the steps that a fork keeps, its origin, its end, its snapshot
    worker           takes the steps on one event loop at a time: awaited here, or in the background
    control          pause, stop and cancel, asked for from any thread
    stepper          the life of one run: it begins, waits while paused, takes one step after the other, and closes
    call_context     what the steps of a run share; which tool call the code runs in, and what bounds the runs below it
    step             one step (before, ask, decide, act, read, end), and the decision whether the run ends with it
    step_builder     the step under way, until it is a StepResult
    turn             the transition table: when the model is asked again within a step
    ask              one request through the middleware, retried if the answer lost a piece, and its cost added up
    continuation     the rest of an answer that was cut off: what to ask, and how the two texts are joined
    client           one call over HTTP, with retries
    termination      what follows from one response: complete, execute tools, continue, repair, …; without I/O
    tool_calls       the tools that the model asked for
    timeline         conversation, history, events, clock; the only place that records and notifies
    branches         forks and child runs
    run_tree         all relatives of a run as one tree
    lockstep         several runs, step by step together
    next_actions     what can be done about the end of a run
    limit_increases  limits that are met, raised
    unreachable      conditions that can never be met
"""

__all__ = [
    "ask",
    "branches",
    "call_context",
    "client",
    "continuation",
    "control",
    "limit_increases",
    "lockstep",
    "next_actions",
    "plan",
    "run_tree",
    "step",
    "step_builder",
    "stepper",
    "termination",
    "timeline",
    "tool_calls",
    "turn",
    "unreachable",
    "worker",
]
