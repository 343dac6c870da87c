"""Convolutional networks."""
