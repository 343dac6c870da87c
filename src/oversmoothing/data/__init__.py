"""Datasets: fetched with checksums, read without running what they contain."""
