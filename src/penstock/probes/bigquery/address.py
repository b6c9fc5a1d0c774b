"""Addresses of BigQuery: `bigquery:PROJECT.DATASET?location=EU&maximum_bytes_billed=10GB`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from penstock.core.errors import InvalidInput

EXPECTED: Final = "bigquery:PROJECT.DATASET"
BYTES_MAX: Final = 10 * 10**9
BYTES_LEAST: Final = 10 * 2**20
"""Minimum number of bytes that BigQuery bills for each table in a query."""

_NAME: Final = re.compile(
    r"(?P<project>(?:[a-z0-9][a-z0-9.-]{0,80}:)?[a-z][a-z0-9-]{1,61}[a-z0-9])"
    r"(?:\.(?P<dataset>[A-Za-z0-9_]{1,1024}))?",
    re.ASCII,
)
_LOCATION: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{1,40}", re.ASCII)
_SIZE: Final = re.compile(r"([0-9]{1,15})(|[KMGT]i?B)", re.ASCII)
_UNITS: Final = {
    f"{scale}{middle}B": base ** (power + 1)
    for middle, base in (("", 1_000), ("i", 1_024))
    for power, scale in enumerate("KMGT")
} | {"": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class BigQueryAddress:
    """Project, dataset and location of tables, and the maximum cost of a statement.

    dataset: default for tables that are named without one. location: where jobs run; None lets
    BigQuery derive it. bytes_max: maximum bytes billed for one statement.
    """

    project: str
    dataset: str | None = None
    location: str | None = None
    bytes_max: int = BYTES_MAX


def parse_bigquery(address: str, field: str) -> BigQueryAddress:
    """Parse an address; InvalidInput names the field and the problem."""
    place, _, query = address.partition(":")[2].partition("?")
    found = _NAME.fullmatch(place)
    if found is None:
        raise InvalidInput(field, EXPECTED, address)
    options = dict(parse_qsl(query, keep_blank_values=True))
    location = options.pop("location", None)
    size = options.pop("maximum_bytes_billed", None)
    if options:
        expected = "only the options location and maximum_bytes_billed"
        raise InvalidInput(field, expected, ", ".join(sorted(options)))
    if location is not None and not _LOCATION.fullmatch(location):
        raise InvalidInput(f"{field}.location", "a location such as EU or us-east1", location)
    return BigQueryAddress(
        project=found["project"],
        dataset=found["dataset"],
        location=location,
        bytes_max=BYTES_MAX if size is None else parse_bytes(size, f"{field}.maximum_bytes_billed"),
    )


def parse_bytes(text: str, field: str) -> int:
    """Parse a number of bytes such as `500MB`; BigQuery bills no less than 10 MiB."""
    found = _SIZE.fullmatch(text)
    size = 0 if found is None else int(found[1]) * _UNITS[found[2]]
    if not BYTES_LEAST <= size < 2**62:
        raise InvalidInput(field, "at least 10MiB, such as 500MB or 10GB", text)
    return size
