"""How a run goes. It imports what is below an agent (model, limits, records, transport, providers) and knows no agent and no notebook.

A run is made of parts, and one step passes through them from top to bottom:

    plan, snapshot    frozen values: what a run begins with, and what it is at one moment
    worker            takes the steps on one event loop at a time: awaited here, or in the background
    control           pause, stop and cancel, from any thread
    stepper           the life of one run: it begins, takes steps, ends
    step              one step: before, ask, decide, act, read, end
    step_builder      the step under way, until it is a StepResult
    turn              the transition table: when the model is asked again within a step
    ask               one request through the middleware, what it costs, and what follows from it
    continuation      what to ask for the rest of an answer that was cut off
    client            one call over HTTP, with retries
    tool_calls        the tools that the model asked for
    timeline          conversation, history, events, clock; the only place that records and notifies
    branches          forks and child runs; run_tree names them all
    call_context      which tool call the code runs in, and what bounds the runs below it
    lockstep          several runs, step by step together
    next_actions      what can be done about the end of a run
"""
