"""Parquet output of commands, which needs the optional package duckdb."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.core.errors import InvalidInput
from penstock.probes.parquet import write_parquet


def to_parquet(source: Path, target: Path, forms: Mapping[str, str]) -> None:
    """Write a CSV file as Parquet; raise InvalidInput if duckdb is not installed."""
    try:
        write_parquet(source, target, forms)
    except ModuleNotFoundError:
        fix = "Install it: pip install 'penstock-engine[duckdb]'."
        raise InvalidInput("--format", "csv, or the package duckdb", "parquet", fix) from None
