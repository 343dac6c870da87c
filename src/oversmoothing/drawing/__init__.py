"""Figures: one style for all."""
