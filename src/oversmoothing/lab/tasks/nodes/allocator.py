"""Configures the memory allocator of a process that trains on a CPU."""

import contextlib
import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
LARGEST = 2**25  # bytes, the largest threshold that glibc takes


def keep_freed_memory() -> None:
    """Makes glibc keep freed memory for the next step; does nothing with other C libraries.

    By default glibc returns the memory of large activations to the system after every step, which
    then has to clear each page anew.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            mallopt = ctypes.CDLL("libc.so.6").mallopt
            mallopt(M_MMAP_THRESHOLD, LARGEST)
            mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
