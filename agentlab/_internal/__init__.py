"""Helpers for every package, independent of agents. Only the errors are public, as `agentlab.errors`.

May import: nothing of agentlab.

    errors         the errors that any package may raise
    redaction      replaces API keys and other secrets in text, headers and addresses
    secrets        the API keys that this process knows, which redaction looks for
    safe_text      makes text from outside safe to show
    formatting     formats numbers, money and durations
    names          errors for unknown names and keywords
    display        displays values and errors in a notebook
    values         frozen dataclasses that are quick to define and to make
    asyncio_tools  async helpers, work that continues after a cancel, and where sync work runs: on a thread, or on the event loop
    kernel         the notebook's kernel: detects a live page, handles the stop button, works around ipykernel's problems
"""
