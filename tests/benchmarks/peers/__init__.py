"""Other agent frameworks, each run by one file here, in an environment of its own."""
