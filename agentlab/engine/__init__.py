"""How a run goes: one step after the other, from a plan to a snapshot.

May import: `providers` and what is below it.

    plan             all that a run begins with, frozen
    worker           where steps are taken: one event loop at a time
    stepper          the life of a run: begin, step, end
    step             one step: before, ask, decide, act, read, end
    step_builder     the step under way, until it is a StepResult
    ask              the part of a step that asks the model
    turn             the table of what to ask next within a step
    client           one call of a model, with its retries
    continuation     calls that continue a text that was cut
    termination      what follows from a response: `decide` (`lab.termination`)
    tool_calls       the part of a step that executes tools
    call_context     which tool call the code runs in
    timeline         the record of a run; the one place that emits events
    control          pause, stop and cancel, from any thread
    unreachable      conditions that can never be met
    snapshot         a run as frozen values, for stores and forks
    branches         forks and child runs of a run
    run_tree         which run came from which
    lockstep         several runs, step by step together
    next_actions     what can be done about an end
    limit_increases  limits that are raised for that
"""

__all__ = [
    "plan",
    "worker",
    "stepper",
    "step",
    "step_builder",
    "ask",
    "turn",
    "client",
    "continuation",
    "termination",
    "tool_calls",
    "call_context",
    "timeline",
    "control",
    "unreachable",
    "snapshot",
    "branches",
    "run_tree",
    "lockstep",
    "next_actions",
    "limit_increases",
]
