"""Limits of a run: budgets, stop conditions, policies, and the settings that combine them.

May import: `model` and what is below it.

    fields          limits as dataclass fields: declaration and checks
    reading         values only: what a condition found, and `Decision`, which `engine.termination` makes
    budget          limits on steps, calls, tokens, money and time
    conditions      the built-in stop conditions; add new ones here, and to the names in `agentlab/__init__`
    combinators     the base class, `|`, `&`, `~`, and conditions made from functions
    condition_tree  names and edits of single conditions in a tree
    evaluation      evaluates a stop condition after a step, sync or async
    policies        limits on continuing an answer, and the tools that end a run
    settings        all limits of a run, frozen
    live            stores edits of the limits of a running run; the engine reads them before and after each step and before each call
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
