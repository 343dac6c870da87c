"""The areas of `scripts/torture.py`.

Each area has ``jobs(random, number, folder)``: a list of callables, each of which yields pairs of
the name of a trial and what went wrong in it, empty if nothing did.
"""

from collections.abc import Callable, Iterator

Trial = tuple[str, str]
Job = Callable[[], Iterator[Trial]]
