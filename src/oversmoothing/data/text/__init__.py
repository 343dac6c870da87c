"""Data sets of sentences."""
