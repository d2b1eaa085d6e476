"""What ends a run."""
