"""The wires that several providers share, and the common rules for reading responses."""
