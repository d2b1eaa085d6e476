"""Other agent frameworks, one file each, run in a separate environment."""
