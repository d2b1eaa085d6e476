"""Helpers without a home in the public surface; nothing in here imports the rest of the package."""
