"""The table of features against other frameworks: a cell was run on the same loopback server, or is said to be read."""
