"""Weakly supervised semantic segmentation from image-level labels."""
