"""Figures and pictures: one style, one colour for each method, one way to save them."""
