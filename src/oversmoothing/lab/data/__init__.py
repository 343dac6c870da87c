"""Data sets of graphs, images and texts."""
