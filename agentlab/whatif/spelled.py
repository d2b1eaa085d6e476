"""Budgets as code to paste into a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from agentlab.budget import Budget
from agentlab.condition_code import number_code


def budget_code(given: Mapping[str, Any]) -> str:
    """A budget of these limits as code, `Budget(max_turns=None, max_cost=0.02)`."""
    order = [field.name for field in dataclasses.fields(Budget) if field.name in given]
    return f"Budget({', '.join(f'{name}={number_code(given[name])}' for name in order)})"
