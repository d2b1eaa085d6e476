"""How a run goes: one step after the other, from a plan to a snapshot.

May import: `providers` and what is below it.

    ask              The part of a step that asks the model: one round trip or several, what they cost, and what follows from the response
    branches         The runs that come from a run: forks of it, and the child runs that its tools started
    call_context     Which tool call the code runs in: of which run, in which step, and what bounds the runs that the tool starts
    client           One call of a model: build the request, send it, retry if that may help, read the answer
    continuation     Further calls for an answer that was cut off: what to ask, how two texts become one, and how often it may be asked
    control          Pause, stop and cancel: what a person asked for, from any thread, until the run takes notice
    limit_increases  Limit increases: limits that are met are raised, conditions that are met are raised or switched off
    lockstep         Several runs taken step by step together: the same task on other models, or a run beside its branches
    next_actions     What can be done about the end of a run: `run.next_actions` lists the actions, `run.apply()` makes the branch that does one
    plan             All that a run begins with, as one frozen value; and what the engine needs of agents and runs, which are above it
    run_tree         Which run came from which: a run, its branches and its child runs as one tree, with names that people can follow
    snapshot         A run as frozen values: the steps that a fork keeps, where a run came from, why it ended, and the whole for stores and forks
    step             One step of a run: the model's answer, the tools it asked for, and whether the run ends
    step_builder     The step under way: what came back and what was done so far, until it becomes a StepResult
    stepper          The life of a run: it begins, takes one step after the other, and ends. All that changes its state is here and in step.py
    termination      The decision on a response: `decide(signal, context, policy)`. No I/O
    timeline         The record of a run: conversation, history, events and active time. Here alone events are recorded and observers notified
    tool_calls       The part of a step that acts: the tools that the model asked for are executed, or it is reminded that one is to be called
    turn             Asking within one step as a state machine: the model is asked, and asked again, until there is something to act on
    unreachable      Conditions that can never be met: a tool that the agent does not have, a finish reason that no provider sends
    worker           Where steps are taken: one event loop at a time, here or on the background thread. A run has a worker, and so has a lockstep
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
