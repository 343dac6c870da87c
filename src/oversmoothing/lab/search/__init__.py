"""Hyperparameter search for graph networks: many settings trained in one batch, then halved."""
