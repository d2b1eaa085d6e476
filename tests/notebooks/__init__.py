"""Tests of the course in notebooks/."""
