"""Random transformers."""
