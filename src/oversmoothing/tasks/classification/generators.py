"""Seed the global generators of Python and numpy, from which timm draws, for a while."""

import contextlib
import random
from collections.abc import Iterator

import numpy as np


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds Python's and numpy's global generators; restores their states afterwards."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
