"""CPU time of processes, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.site import PostgresSite, Site
from penstock.testing.postgres.process import children_of
from penstock.testing.postgres.server import PostgresServer

_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process, in clock ticks; 0 if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def server_seconds(site: Site) -> float | None:
    """Return the CPU of the launched server and its children; None if external or in-process."""
    if not isinstance(site, PostgresSite) or not isinstance(site.server, PostgresServer):
        return None
    postmaster = site.server.pid
    assert postmaster is not None
    return sum(cpu_seconds(pid) for pid in (postmaster, *children_of(postmaster)))
