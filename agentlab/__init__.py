"""agentlab runs LLM agents one step at a time in a notebook."""
