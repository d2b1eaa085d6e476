"""The wires that several providers share, and how all of them read responses."""
