"""The result store: one folder per run."""
