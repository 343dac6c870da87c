"""How much memory is free."""

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from oversmoothing.errors import InputError

# Control groups of version 2 and 1: limit, use, and the line of memory.stat that counts files which
# the kernel drops when it needs room.
FILES = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def free_memory(device: torch.device) -> int | None:
    """Bytes that this process can still use on a device; None if that is not known.

    Of a CPU under Linux: what the machine has, within the limits of the control groups of this
    process, as a container or a scheduler sets them.
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
    """A number of bytes in words."""
    gib = size / 2**30
    return f"{gib:,.0f} GiB" if gib > 100 else f"{gib:.3g} GiB"


def left_in_groups(memberships: list[str], mount: Path) -> Iterator[int]:
    """Yields what every limited control group of a process leaves.

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
        InputError: twice as much is needed.
    """
    if free is None or needed <= free:
        return
    line = f"{about}, and {in_gib(free)} are free on {device}; {way_out}"
    if needed / 2 > free:
        raise InputError(line)
    warnings.warn(line, stacklevel=3)
