"""An agent for others: conversations that are kept (`lab.Chat`), and the chat endpoints over HTTP."""
