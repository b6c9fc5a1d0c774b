"""Finding the adapter for an address: `duckdb:FILE`, `sqlite:FILE`, `postgresql://…`, `bigquery:…`.

Nothing is opened here. A library is imported when its first address is used; if it is missing, the
error names the extra to install.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from penstock.core.errors import InvalidInput
from penstock.core.stored_json import from_json
from penstock.pipelines.declare.each import EachKind
from penstock.pipelines.declare.terms import PipelineSettings, ProcessorSettings
from penstock.probes.bigquery.address import parse_bigquery
from penstock.probes.bigquery.connection import require_bigquery
from penstock.probes.bigquery.warehouse import BigQueryWarehouse
from penstock.probes.duckdb import DuckDbWarehouse
from penstock.probes.postgres import PostgresWarehouse
from penstock.probes.protocol import Warehouse
from penstock.probes.redaction import redacted
from penstock.probes.sqlite import SqliteWarehouse

EXPECTED: Final = (
    "duckdb:FILE, duckdb:FOLDER/, sqlite:FILE, postgresql://user@host/name or "
    "bigquery:PROJECT.DATASET"
)


def warehouses_used(definition: Mapping[str, Any]) -> set[str]:
    """Return the names and addresses of the warehouses that a registered pipeline queries: for
    gates, outputs, items and freshness. A warehouse that it only declares is never opened.
    """
    pipeline = from_json(PipelineSettings, definition)
    found = {pipeline.warehouse} if pipeline.freshness else set()
    for phase in definition["phases"]:
        for given in phase["processors"]:
            terms = from_json(ProcessorSettings, given)
            tables = (*terms.needs, *terms.outputs)
            found |= {dependency.warehouse or pipeline.warehouse for dependency in tables}
            if terms.each is not None and terms.each.kind is EachKind.QUERY:
                found.add(pipeline.warehouse)
    return {one for one in found if one}


def lacks_warehouse(definition: Mapping[str, Any]) -> bool:
    """Return whether a gate of a registered pipeline needs a table of no warehouse."""
    if from_json(PipelineSettings, definition).warehouse:
        return False
    return any(
        not dependency.warehouse
        for phase in definition["phases"]
        for given in phase["processors"]
        for dependency in from_json(ProcessorSettings, given).needs
    )


def is_name(warehouse: str) -> bool:
    """Return whether a warehouse is given by a name, whose address is a setting."""
    return ":" not in warehouse


def open_warehouse(address: str, field: str = "warehouse") -> Warehouse:
    """Return the adapter of an address; InvalidInput names the field and how to fix it."""
    scheme, _, rest = address.partition(":")
    adapter = ADAPTERS.get(scheme)
    if is_name(address):
        fix = (
            f"If {address} is the name of a warehouse, this process needs its address: set "
            f"PENSTOCK_WAREHOUSES={address}=ADDRESS, or warehouses in penstock.toml."
        )
        raise InvalidInput(field, EXPECTED, redacted(address, address), fix)
    if adapter is None or not rest:
        raise InvalidInput(field, EXPECTED, redacted(address, address))
    return adapter(address, rest, field)


def is_same_file(address: str, own: Path) -> bool:
    """Return whether a SQLite address names this file, directly or through links."""
    scheme, _, rest = address.partition(":")
    if scheme != "sqlite":
        return False
    path = Path(rest)
    if path.exists() and own.exists():
        return path.samefile(own)
    return path.resolve() == own.resolve()


def _bigquery(address: str, _rest: str, field: str) -> Warehouse:
    return BigQueryWarehouse(parse_bigquery(address, field), require_bigquery(field))


def _duckdb(address: str, rest: str, field: str) -> Warehouse:
    return DuckDbWarehouse(rest, _library("duckdb", "duckdb", address, field))


def _postgres(address: str, rest: str, field: str) -> Warehouse:
    if not rest.startswith("//"):
        raise InvalidInput(field, EXPECTED, redacted(address, address))
    return PostgresWarehouse(address, _library("psycopg", "postgres", address, field))


def _sqlite(_address: str, rest: str, _field: str) -> Warehouse:
    return SqliteWarehouse(rest)


def _library(name: str, extra: str, address: str, field: str) -> ModuleType:
    try:
        # Optional: only installations that probe such a warehouse need its library.
        return import_module(name)
    except ImportError:
        raise InvalidInput(
            field,
            f"an address whose library is installed ({name})",
            redacted(address, address),
            f"Install it with: pip install 'penstock-engine[{extra}]'",
        ) from None


ADAPTERS: Final[Mapping[str, Callable[[str, str, str], Warehouse]]] = {
    "bigquery": _bigquery,
    "duckdb": _duckdb,
    "postgres": _postgres,
    "postgresql": _postgres,
    "sqlite": _sqlite,
}
