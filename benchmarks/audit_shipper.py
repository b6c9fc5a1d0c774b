"""The child process of `audit_ship`: ships the journal of a database to a folder."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.assembly.database import open_store
from penstock.assembly.settings import load
from penstock.shipping.shipper import Shipper
from penstock.sinks.audit_parquet import ParquetSink, load_duckdb

BLOCKS = 5
"""Blocks of a batch: small enough that ten kills fall between others."""


def main() -> None:
    """Ship until nothing is left."""
    url, folder = sys.argv[1:]
    load_duckdb()
    store = open_store(load({}, None, {"database_url": url}))
    shipper = Shipper(store, ParquetSink(Path(folder)), blocks=BLOCKS)
    print("ready", flush=True)
    while shipper.run_once().rows:
        pass
    store.close()


if __name__ == "__main__":
    main()
