"""The worker process that `crash` kills."""

from __future__ import annotations

import sys
from typing import cast

from benchmarks.site import BenchDatabase
from benchmarks.work import hold, worker
from penstock.db.statements import Engine


def main(engine: str, where: str, slots: int) -> None:
    """Hold runs until killed."""
    store = BenchDatabase(cast("Engine", engine), "crash", where, where).store()
    subject = worker(store, hold, slots=slots, name="victim")
    subject.start()
    subject.stopped.wait()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
