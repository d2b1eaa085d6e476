"""What if: conditions and budgets replayed over recorded runs."""
