"""How a run goes: one step after the other, from a plan to a snapshot.

May import: `providers` and what is below it.

A run is made of parts, and one step passes through them from top to bottom:

    plan             what a run begins with; what the engine needs of agents and runs, which are above it
    snapshot         a run as frozen values: the steps that a fork keeps, its origin, its end
    worker           takes the steps on one event loop at a time: awaited here, or in the background
    control          pause, stop and cancel, asked for from any thread
    stepper          the life of one run: it begins, waits while paused, puts edited limits into force, takes its steps, and closes
    step             one step (before, ask, decide, act, read, end), and the decision whether the run ends with it
    step_builder     the step under way, until it is a StepResult
    turn             the transition table: when the model is asked again within a step
    ask              one request through the middleware, retried if the answer lost a piece, and its cost added up
    continuation     the rest of an answer that was cut off: what to ask, and how the two texts are joined
    client           one call over HTTP, with retries
    termination      what follows from one response: complete, execute tools, continue, repair, …; without I/O
    tool_calls       the order of a step's tool calls, middleware and holds; `agentlab.tools` calls the functions
    timeline         conversation, history, events, clock; the only place that records and notifies
    branches         forks and child runs
    run_tree         all relatives of a run as one tree
    call_context     the current tool call, and the limits that runs started in it inherit
    lockstep         several runs, step by step together
    next_actions     what can be done about the end of a run
    limit_increases  raises the limits that ended a run
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
    "snapshot",
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
