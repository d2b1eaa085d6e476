"""The notebooks as a course."""
