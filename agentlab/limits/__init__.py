"""Limits of a run: budgets, stop conditions, policies, and the settings that combine them.

May import: `model` and what is below it.

    fields          declaration and check of a limit in a dataclass field
    reading         readings of conditions, and the decision on a response
    budget          steps, calls, tokens, money, time
    conditions      the built-in stop conditions; add new ones here
    combinators     the base class, `|`, `&`, `~`, and conditions made of functions
    condition_tree  names and edits of single conditions in a tree
    evaluation      how a stop condition is read, sync or async
    policies        how far to continue, which tools end a run
    settings        all limits of a run, frozen
    live            changes of the limits while the run is under way
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
