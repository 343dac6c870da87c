"""Supervised semantic segmentation."""
