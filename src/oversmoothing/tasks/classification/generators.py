"""timm draws from the global generators of Python and numpy; they are left as they were."""

import contextlib
import random
from collections.abc import Iterator

import numpy as np


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Python's and numpy's global generators start at a seed, and go on afterwards as before."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
