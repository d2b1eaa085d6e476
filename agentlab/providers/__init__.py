"""Providers: one file each, found by scanning this folder or by the entry point group `agentlab.providers`."""
