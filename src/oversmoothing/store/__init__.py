"""The result store: one folder a run."""
