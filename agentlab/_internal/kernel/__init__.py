"""The notebook that runs this code: whether it has a page, its stop button, and the private ways of its kernel."""
