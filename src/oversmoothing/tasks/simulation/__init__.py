"""Random transformers without training."""
