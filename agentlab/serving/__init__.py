"""An agent as a service: stored conversations, and the chat endpoints over HTTP.

May import: `experiments` and what is below it; not `notebook`.

    chat      `lab.Chat`: the endpoints as methods
    contexts  stored conversations, in a SQLite table
    app       the endpoints over HTTP, and `python -m agentlab serve`
    access    access control: checks the origin, host, token and size of a request
    loader    loads an agent from a user's file
"""

__all__ = ["chat", "contexts", "app", "access", "loader"]
