"""Executes a run: one step after another, from its plan to its end.

May import: `providers` and what is below it.

A run is made of parts, and one step passes through them from top to bottom:

    plan             a run as frozen values: its plan, the steps that a fork keeps, its origin, its ending, its snapshot
    worker           takes the steps on one event loop at a time, awaited or in the background; waits while the run is paused
    control          requests to pause, stop or cancel, and the approval of tool calls, from any thread
    stepper          the life cycle of one run: it begins, takes its steps, and ends; carries out pause, stop and cancel
    call_context     the state of a run with the limits in force, the current tool call, and what runs started in it may use
    step             one step (before, ask, decide, act, read, end): takes edited limits into force, decides whether the run ends
    step_builder     the step under way, until it is a StepResult
    turn             the transition table: when the model is asked again within a step
    ask              one request through the middleware, repeated if the stream lost a piece, and its cost
    continuation     continues an answer that was cut off: what to ask, and how the two texts are joined
    client           one call over HTTP, with retries
    termination      decides what to do with a response: complete, execute tools, continue, repair, …; no I/O
    tool_calls       the order of a step's tool calls, middleware and holds; `agentlab.tools` calls the functions
    timeline         conversation, history, events, clock; the only place that records events and notifies observers
    branches         forks and child runs
    run_tree         all relatives of a run as one tree
    lockstep         several runs, step by step together
    next_actions     what can be done after a run has ended
    limit_increases  raises the limits that ended a run
    unreachable      finds conditions that can never be met
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
