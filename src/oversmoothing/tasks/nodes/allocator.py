"""The allocator of a process that trains on a CPU."""

import contextlib
import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
LARGEST = 2**25  # bytes, the largest threshold that glibc takes


def keep_freed_memory() -> None:
    """Lets glibc keep what is freed, for the next step; nothing elsewhere.

    By default it returns activations of some MB to the system after every step, which then clears
    each page anew.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            mallopt = ctypes.CDLL("libc.so.6").mallopt
            mallopt(M_MMAP_THRESHOLD, LARGEST)
            mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
