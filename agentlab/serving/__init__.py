"""An agent as a service: stored conversations (`lab.Chat`), and the chat endpoints over HTTP."""
