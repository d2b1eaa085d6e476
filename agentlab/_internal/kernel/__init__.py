"""The notebook that runs this code: detection of its page, its stop button, and workarounds for its kernel."""
