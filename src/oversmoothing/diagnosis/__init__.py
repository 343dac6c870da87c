"""Measures how alike tokens or nodes are after every layer of a model."""
