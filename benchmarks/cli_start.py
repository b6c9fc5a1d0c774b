"""The duration of one command: `penstock runs list` on a small SQLite database."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.result import Result
from benchmarks.site import Site
from penstock import Pipeline, RunContext, Submission, connect

ROUNDS = 7
RUNS = 20

nightly = Pipeline("nightly")


@nightly.processor
def export(run: RunContext) -> None:
    """Never executed here."""


def cli_start(site: Site, *, quick: bool) -> Iterator[Result]:
    """Return the median of seven calls, measured from before the interpreter starts.

    One more call precedes them: it leaves the modules compiled, as after pip install.
    `not_compiled_seconds` is the duration of that one.
    """
    if site.engine != "sqlite":
        return
    with tempfile.TemporaryDirectory(prefix="penstock-cli-start-") as folder:
        url = f"sqlite:{Path(folder) / 'penstock.db'}"
        with connect(url) as client:
            client.register([nightly])
            for _ in range(RUNS):
                client.runs.submit(Submission(pipeline="nightly"))
        first = _once(folder, url)
        taken = sorted(_once(folder, url) for _ in range(3 if quick else ROUNDS))
    seconds = taken[len(taken) // 2]
    yield Result(
        bench="cli_start",
        engine=site.engine,
        value=seconds,
        unit="s",
        n=len(taken),
        extra={
            "seconds": seconds,
            "not_compiled_seconds": first,
            "all_seconds": [round(one, 3) for one in taken],
        },
    )


def _once(folder: str, url: str) -> float:
    environment = {n: v for n, v in os.environ.items() if not n.startswith("PENSTOCK_")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "compiled")
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "--database-url", url, "runs", "list"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds = time.perf_counter() - began
    assert len(done.stdout.splitlines()) > RUNS, done
    return seconds
