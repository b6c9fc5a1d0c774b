"""A process that ships until a step of the sink, says so, and waits to be killed there.

python -m tests.shipping.victim FILE FOLDER STEP NUMBER
"""

import os
import sys
import threading
from pathlib import Path
from typing import Any

from penstock.db.sqlite.store import SqliteStore
from penstock.shipping.shipper import Shipper
from penstock.sinks.audit_parquet import ParquetSink


def main() -> None:
    """Ship, and stop at the nth rename or link."""
    file, folder, step, number = sys.argv[1:]
    left = [int(number)]

    def stopping(function: Any) -> Any:
        def call(*args: Any) -> Any:
            left[0] -= 1
            if not left[0]:
                sys.stdout.write("here\n")
                sys.stdout.flush()
                threading.Event().wait()
            return function(*args)

        return call

    if step == "rename":
        Path.rename = stopping(Path.rename)  # type: ignore[method-assign]
    else:
        os.link = stopping(os.link)
    store = SqliteStore(Path(file))
    Shipper(store, ParquetSink(Path(folder)), blocks=2, rows=3).run_once()
    store.close()


if __name__ == "__main__":
    main()
