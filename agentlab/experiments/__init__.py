"""Experiments: the same task over agents, prompts and settings."""
