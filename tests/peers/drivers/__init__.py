"""One file per framework: it runs the scenarios as that framework's own documentation would, and records the results."""
