"""Answers from recorded runs."""
