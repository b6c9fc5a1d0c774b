"""How much of the CPU other programs use: throughputs are compared only if that was similar.

A rate of runs per second says as much about the rest of the machine as about the system under test.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

PROC: Final = Path("/proc")
SIMILAR: Final = 0.1
"""Difference of the shares of others, below which two measurements can be compared."""


class CpuTicks(NamedTuple):
    """CPU time since the start of the machine, in ticks; zeros where there is no /proc."""

    total: int = 0
    busy: int = 0
    own: int = 0
    """Of this process and its descendants, those that ended included."""


class Process(NamedTuple):
    """A process in /proc: its parent, and its ticks with those of its ended children."""

    parent: int
    ticks: int


def cpu_ticks(proc: Path = PROC, root: int | None = None) -> CpuTicks:
    """Read the CPU time of the machine and of a process with its descendants."""
    try:
        fields = [int(n) for n in (proc / "stat").read_text().splitlines()[0].split()[1:9]]
    except OSError:
        return CpuTicks()
    idle = fields[3] + fields[4]  # and waiting for a disk
    own = own_ticks(_processes(proc), os.getpid() if root is None else root)
    return CpuTicks(sum(fields), sum(fields) - idle, own)


def own_ticks(known: Mapping[int, Process], root: int) -> int:
    """Return the ticks of a process and its descendants."""
    children: dict[int, list[int]] = {}
    for pid, process in known.items():
        children.setdefault(process.parent, []).append(pid)
    total, left = 0, [root]
    while left:
        pid = left.pop()
        total += known[pid].ticks if pid in known else 0
        left += children.get(pid, [])
    return total


def others_share(before: CpuTicks, after: CpuTicks) -> float:
    """Return the share of all CPUs that other programs, or other machines, used in between."""
    spent = after.total - before.total
    others = (after.busy - before.busy) - (after.own - before.own)
    return min(1.0, max(0.0, others / spent)) if spent > 0 else 0.0


def _processes(proc: Path) -> dict[int, Process]:
    found = {}
    for path in proc.glob("[0-9]*/stat"):
        try:
            # The name of the command, in parentheses, may contain anything.
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        found[int(path.parent.name)] = Process(int(fields[1]), sum(map(int, fields[11:15])))
    return found
