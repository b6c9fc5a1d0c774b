"""Conversion of records to JSON and back, for everything that is stored and replayed.

A record is a frozen dataclass of plain values, enums, tuples, sets, mappings and other records.
`to_json` omits fields that equal their default, so that adding a field does not change existing
JSON; `from_json` fills missing fields from the defaults. A `NOT_SERIALIZED` field is never written.
msgspec reads records without calling their constructors. It does not write them, because it cannot
omit the defaults of a dataclass. Nothing here reads or writes files.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from penstock.core.errors import InvalidInput

R = TypeVar("R")

NOT_SERIALIZED: Final[Mapping[str, Any]] = types.MappingProxyType({"keep_out": True})
"""Metadata of a field that is not written to JSON, such as a function."""

_ATOMS: Final = frozenset({str, int, float, bool, type(None)})


def canonical_json(value: Any) -> str:
    """Return the canonical JSON of a value: sorted keys, no spaces, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def to_json(record: Any) -> dict[str, Any]:
    """Return a record as JSON values, without the fields that equal their default."""
    found = {}
    of: Any = type(record)
    for name, default in _defaults(of):
        value = getattr(record, name)
        # 1 == 1.0 == True, so a value is omitted only if its type matches too.
        if value is default or (type(value) is type(default) and value == default):
            continue
        found[name] = value if type(value) in _ATOMS else _plain(value)
    return found


def from_json(cls: type[R], data: Mapping[str, Any]) -> R:
    """Return the record for the output of `to_json`. Unknown keys are ignored: a newer version may
    have written them.
    """
    try:
        return msgspec.convert(data, cls)
    except msgspec.ValidationError as error:
        raise _invalid(cls, data, error) from None


def dumps(record: Any) -> str:
    """Return a record as canonical JSON."""
    return canonical_json(to_json(record))


def loads(cls: type[R], text: str) -> R:
    """Return the record for its canonical JSON."""
    try:
        return msgspec.json.decode(text, type=cls)
    except msgspec.DecodeError as error:
        raise _invalid(cls, text, error) from None


def _invalid(cls: type[Any], data: object, error: msgspec.DecodeError) -> InvalidInput:
    return InvalidInput(cls.__name__, "a record of this type", data, f"{error}.")


@lru_cache(maxsize=256)
def _defaults(cls: type[Any]) -> tuple[tuple[str, Any], ...]:
    """Return the fields that are written to JSON, each with its default or MISSING."""
    found = []
    for field in dataclasses.fields(cls):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if not field.metadata.get("keep_out"):
            found.append((field.name, default))
    return tuple(found)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        return to_json(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(_plain(item) for item in value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value
