"""Kernels in Triton, imported only on a GPU where Triton is installed."""
