"""Helpers for every package, independent of agents. No public name is here.

May import: nothing of agentlab.

    redaction      keys are replaced in text, headers and addresses
    secrets        the known keys of this process
    safe_text      text from outside, safe to print
    formatting     numbers, money and durations in words
    lazy           imports by name, and errors for names that do not exist
    display        how values and errors show in a notebook
    asyncio_tools  async helpers, and work that outlives a cancel
    kernel         the notebook that runs this code: its page, its stop button, mends for ipykernel
"""
