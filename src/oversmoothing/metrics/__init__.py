"""Measures of oversmoothing, and of segmentations."""
