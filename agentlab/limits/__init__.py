"""Limits of a run: budgets, stop conditions, policies, and the settings that combine them.

May import: `model` and what is below it.

    fields          declaration and check of a limit in a dataclass field
    reading         readings of conditions, and `Decision`, which `engine.termination` makes
    budget          steps, calls, tokens, money, time
    conditions      the built-in stop conditions; add new ones here, and to the names in `agentlab/__init__`
    combinators     the base class, `|`, `&`, `~`, and conditions made of functions
    condition_tree  names and edits of single conditions in a tree
    evaluation      how a stop condition is read, sync or async
    policies        how far to continue, which tools end a run
    settings        all limits of a run, frozen
    live            stores edits of the limits while the run goes on; the engine reads them before and after each step
"""

__all__ = [
    "fields",
    "reading",
    "budget",
    "conditions",
    "combinators",
    "condition_tree",
    "evaluation",
    "policies",
    "settings",
    "live",
]
