"""Helpers for every package, independent of agents. Only the errors are public, as `agentlab.errors`.

May import: nothing of agentlab.

    errors         the errors that any package may raise
    redaction      keys are replaced in text, headers and addresses
    secrets        the known keys of this process
    safe_text      text from outside, safe to print
    formatting     numbers, money and durations in words
    lazy           imports by name, and errors for unknown names
    display        the display of values and errors in a notebook
    asyncio_tools  async helpers, and work that continues after a cancel
    kernel         the notebook that runs this code: its page, its stop button, workarounds for ipykernel
"""
