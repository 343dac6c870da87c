"""Image data sets and augmentations."""
