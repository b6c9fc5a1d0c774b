"""A separate process that submits at a rate, for the second half of `latency`."""

from __future__ import annotations

import sys
from typing import cast

from benchmarks.latency import submit_at_rate
from benchmarks.site import BenchDatabase
from penstock.client import Client
from penstock.db.statements import Engine


def main(engine: str, where: str, seconds: int) -> None:
    """Submit for this many seconds."""
    store = BenchDatabase(cast("Engine", engine), "latency", where, where).store()
    submit_at_rate(Client(store), seconds)
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
