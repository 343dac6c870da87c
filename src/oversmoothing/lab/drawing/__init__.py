"""Figures and pictures: one style, one order of colours, one way to save them."""
