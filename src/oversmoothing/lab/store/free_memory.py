"""Measures the free memory of a device."""

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from oversmoothing.errors import InputError

# Files of control groups, version 2 and 1: the limit, the usage, and the line of memory.stat that
# counts cached files, which the kernel can drop.
FILES = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def free_memory(device: torch.device) -> int | None:
    """Returns the bytes that this process can still use on a device; None if unknown.

    On a CPU under Linux this is the available memory within the limits of the process's control
    groups, which containers and schedulers set.
    """
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    if device.type != "cpu" or not sys.platform.startswith("linux"):
        return None
    text = Path("/proc/meminfo").read_text("utf-8")
    lines = dict(line.split(":", 1) for line in text.splitlines())
    machine = 1024 * int(lines["MemAvailable"].split()[0])
    memberships = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    return min([machine, *left_in_groups(memberships, Path("/sys/fs/cgroup"))])


def in_gib(size: int) -> str:
    """Formats a number of bytes in GiB."""
    gib = size / 2**30
    return f"{gib:,.0f} GiB" if gib > 100 else f"{gib:.3g} GiB"


def left_in_groups(memberships: list[str], mount: Path) -> Iterator[int]:
    """Yields the free bytes of every control group of a process that has a limit.

    Args:
        memberships: lines of /proc/self/cgroup.
        mount: where control groups are mounted. In a container, the group of a process may be
            mounted as the root.
    """
    for line in memberships:
        _, controller, path = line.split(":", 2)
        if controller not in FILES:
            continue
        group = Path(path.strip("/"))
        for folder in [group, *group.parents]:  # the last is the root
            yield from _left(mount / controller / folder, *FILES[controller])


def _left(folder: Path, limit: str, used: str, dropped: str) -> Iterator[int]:
    path = folder / limit
    if not path.exists() or (most := path.read_text("utf-8").strip()) == "max":
        return
    stat = dict(line.split() for line in (folder / "memory.stat").read_text("utf-8").splitlines())
    yield int(most) - int((folder / used).read_text("utf-8")) + int(stat.get(dropped, 0))


def require_free(
    needed: int, free: int | None, about: str, way_out: str, device: torch.device
) -> None:
    """Warns if more memory is needed than is free.

    Raises:
        InputError: more than twice the free memory is needed.
    """
    if free is None or needed <= free:
        return
    line = f"{about}, and {in_gib(free)} are free on {device}; {way_out}"
    if needed / 2 > free:
        raise InputError(line)
    warnings.warn(line, stacklevel=3)
