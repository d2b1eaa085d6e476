"""The table of features against other frameworks: each cell was run on the same loopback server, or is marked as read."""
