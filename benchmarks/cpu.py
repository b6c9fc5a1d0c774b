"""CPU time of processes, from /proc: what a database and a worker burn."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.site import PostgresSite, Site
from penstock.testing.postgres.process import children_of
from penstock.testing.postgres.server import PostgresServer

_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time a process has used, in steps of a clock tick; 0 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def server_seconds(site: Site) -> float | None:
    """CPU of the launched server and all its processes; None when it is not ours or in-process."""
    if not isinstance(site, PostgresSite) or not isinstance(site.server, PostgresServer):
        return None
    postmaster = site.server.pid
    assert postmaster is not None
    return sum(cpu_seconds(pid) for pid in (postmaster, *children_of(postmaster)))
