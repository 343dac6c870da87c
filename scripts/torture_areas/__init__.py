"""The areas of `scripts/torture.py`.

Each area has ``jobs(random, number, folder)``, which returns a list of callables. Each of them
yields the name and the failure of its trials; the failure is empty if the trial passed.
"""

from collections.abc import Callable, Iterator

Trial = tuple[str, str]
Job = Callable[[], Iterator[Trial]]
