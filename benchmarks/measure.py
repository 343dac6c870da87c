"""Comparative measurements: interleaved times, and peak memory."""

import ctypes
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import torch

Step = Callable[[], object]
Clock = Callable[[], float]


def interleaved(
    steps: dict[str, Step], rounds: int, clock: Clock = time.perf_counter
) -> dict[str, list[float]]:
    """Measures the seconds of every step, one value per round: A B C A B C …, after a warm-up.

    So other work on the machine slows down all steps equally. The clock can be
    ``time.process_time``, which does not count the time of other processes.
    """
    seconds = {name: [] for name in steps}
    for _ in range(rounds + 1):
        for name, step in steps.items():
            seconds[name].append(_seconds(step, clock))
    return {name: values[1:] for name, values in seconds.items()}


def scaled(values: dict[str, list[float]], factor: float) -> dict[str, list[float]]:
    """Multiplies all values by a factor, such as 1e3 for milliseconds."""
    return {name: [factor * value for value in each] for name, each in values.items()}


def clock(place: torch.device) -> Clock:
    """Returns the clock for a device: CPU seconds on a CPU, wall time on a GPU."""
    return time.perf_counter if place.type == "cuda" else time.process_time


def median_ratio(a: Sequence[float], b: Sequence[float]) -> float:
    """Returns the median over rounds of a / b; both values of a round are close in time."""
    return statistics.median(x / y for x, y in zip(a, b))


def peak_bytes(step: Step, device: torch.device) -> int:
    """Measures the peak memory of a step in bytes, above the memory used before.

    On a GPU, it is that of allocated tensors. On a CPU, it is the growth of the peak resident size,
    so it can be measured only once in a process.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step()
        return torch.cuda.max_memory_allocated(device) - before
    _forget_peak()
    before = _max_resident()
    step()
    return _max_resident() - before


def peak_megabytes(*words: str) -> float:
    """Runs this script with further arguments; returns the bytes that it prints in MB (10⁶).

    On a CPU it runs in a new process, since the peak resident size can be measured only once. The
    counter of a GPU can be reset, so there its ``main`` is called in this process.
    """
    if not torch.cuda.is_initialized():
        return int(printed_by_fresh_process(*words)[-1]) / 1e6
    with patch.object(sys, "argv", [*sys.argv, *words]), redirect_stdout(StringIO()) as out:
        sys.modules["__main__"].main()
    return int(out.getvalue().split()[-1]) / 1e6


def printed_by_fresh_process(*words: str) -> list[str]:
    """Runs this script with further arguments; returns the words that it prints."""
    command = [sys.executable, *sys.argv, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout.split()


def text(table: Sequence[Sequence[str]]) -> str:
    """Formats a table with the first column aligned left and all others right."""
    widths = [max(map(len, column)) for column in zip(*table)]
    rows = [[line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in table]
    return "\n".join("  ".join(row).rstrip() for row in rows)


def _seconds(step: Step, clock: Clock) -> float:
    wait()
    started = clock()
    step()
    wait()
    return clock() - started


def wait() -> None:
    """Waits for a GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _max_resident() -> int:
    """Returns the peak resident size by Linux's counter, since getrusage includes the parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status.read_text("utf-8"))[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _forget_peak() -> None:
    """Resets Linux's counter, since importing torch has a peak above the memory that stays.

    Freed memory is returned first, since a step could reuse it without any growth.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", "utf-8")
