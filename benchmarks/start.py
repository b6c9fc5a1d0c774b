"""Starting: `penstock up` on a new SQLite file until the API responds.

Memory; installed packages.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from importlib.metadata import distributions, requires
from pathlib import Path

from benchmarks.result import Result
from benchmarks.site import Site
from penstock.exports import DISTRIBUTION

ROUNDS = 5


def start(site: Site, *, quick: bool) -> Iterator[Result]:
    """Return the median of five starts, measured from before the interpreter starts.

    One more start precedes them: it leaves the modules compiled, as after pip install.
    `not_compiled_seconds` is the duration of that one.
    """
    if site.engine != "sqlite":
        return
    with tempfile.TemporaryDirectory(prefix="penstock-compiled-") as compiled:
        first, _ = _once(compiled)
        taken = sorted(_once(compiled) for _ in range(2 if quick else ROUNDS))
    seconds, memory = taken[len(taken) // 2]
    yield Result(
        bench="start",
        engine=site.engine,
        value=seconds,
        unit="s",
        n=len(taken),
        extra={
            "seconds": seconds,
            "not_compiled_seconds": first,
            "rss_mb": memory,
            "packages": len(_core_packages()),
            "all_seconds": [round(one[0], 2) for one in taken],
        },
    )


def _once(compiled: str) -> tuple[float, float]:
    with tempfile.TemporaryDirectory(prefix="penstock-start-") as folder:
        environment = {n: v for n, v in os.environ.items() if not n.startswith("PENSTOCK_")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = compiled
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "up", "--json", "--port", "0"],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            started = json.loads(process.stdout.readline())
            request = urllib.request.Request(
                started["api"] + "/api/v1/dashboard/pipeline-status",
                headers={"Authorization": f"Bearer {started['development_key']}"},
            )
            with urllib.request.urlopen(request, timeout=10) as response:
                assert response.status == 200
            seconds = time.perf_counter() - began
            status = Path(f"/proc/{process.pid}/status").read_text()
            kilobytes = int(status.split("VmRSS:")[1].split()[0])
        finally:
            process.terminate()
            process.wait(30)
    return seconds, kilobytes / 1024


def _core_packages() -> set[str]:
    """Return the packages that a core install brings, according to their metadata."""
    installed = {_plain(d.metadata["Name"]): d for d in distributions()}
    found: set[str] = set()
    asked = [DISTRIBUTION]
    while asked:
        name = asked.pop()
        if name in found or name not in installed:
            continue
        found.add(name)
        for text in requires(name) or []:
            requirement, _, marker = text.partition(";")
            if "extra" in marker:
                continue
            asked.append(_plain(_name(requirement)))
    return found


def _name(requirement: str) -> str:
    for place, char in enumerate(requirement):
        if not (char.isalnum() or char in "-_."):
            return requirement[:place]
    return requirement


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(".", "-")
