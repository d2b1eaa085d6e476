"""Helpers that every package may use and that know nothing of agents. No public name is here.

May import: nothing of agentlab.

    redaction      keys are replaced in text, headers and addresses
    secrets        the keys that this process knows
    safe_text      text from outside, safe to print
    formatting     numbers, money and durations in words
    lazy           imports by name, and errors for names that do not exist
    display        how values and errors show in a notebook
    asyncio_tools  async helpers, and work that outlives a cancel
    kernel         the notebook's front end, its stop button, and mends for ipykernel
"""
