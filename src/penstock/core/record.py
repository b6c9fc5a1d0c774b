"""Conversion of records to JSON and back, for everything that is stored and replayed.

A record is a frozen dataclass of plain values, enums, tuples, sets, mappings and other records.
`to_json` omits fields that equal their default, so that adding a field does not change existing
JSON; `from_json` fills missing fields from the defaults. A field marked `NOT_SERIALIZED` is never
written. A record with its own constructor must provide `from_fields`. Nothing here reads or writes
files.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final, TypeVar

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
    """Return the record for the output of `plain`. Unknown keys are ignored: a newer version may
    have written them.
    """
    if not isinstance(data, Mapping):
        raise InvalidInput(cls.__name__, "a JSON object", data)
    given = {}
    of: Any = cls
    for name, (hint, needed) in _fields(of).items():
        if name in data:
            value = data[name]
            # Fast path: most values already have the declared type.
            is_exact = type(value) is hint
            given[name] = value if is_exact else _value(hint, value, f"{cls.__name__}.{name}")
        elif needed:
            raise InvalidInput(f"{cls.__name__}.{name}", "a value", None)
    made: R = getattr(cls, "from_fields", cls)(**given)
    return made


def dumps(record: Any) -> str:
    """Return a record as canonical JSON."""
    return canonical_json(to_json(record))


def loads(cls: type[R], text: str) -> R:
    """Return the record for its canonical JSON."""
    return from_json(cls, json.loads(text))


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


@lru_cache(maxsize=256)
def _fields(cls: type[Any]) -> dict[str, tuple[Any, bool]]:
    hints = typing.get_type_hints(cls)
    missing = dataclasses.MISSING
    return {
        field.name: (
            hints[field.name],
            field.default is missing and field.default_factory is missing,
        )
        for field in dataclasses.fields(cls)
        if not field.metadata.get("keep_out")
    }


def _value(hint: Any, value: Any, where: str) -> Any:
    """Convert a JSON value to the type of the hint. Raise InvalidInput if it does not fit."""
    if type(value) is hint:
        return value
    origin, args = _parts(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        return _value(next(arg for arg in args if arg is not type(None)), value, where)
    if origin in (tuple, frozenset):
        if not isinstance(value, list | tuple):
            raise InvalidInput(where, "a list", value)
        return origin(_value(args[0], item, where) for item in value)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise InvalidInput(where, "an object", value)
        return {_value(args[0], k, where): _value(args[1], v, where) for k, v in value.items()}
    return _scalar(hint, value, where)


@lru_cache(maxsize=1024)
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(hint), typing.get_args(hint)


def _scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is Any:
        return value
    if dataclasses.is_dataclass(hint):
        return from_json(typing.cast("type[Any]", hint), value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        try:
            return hint(value)
        except ValueError:
            known = ", ".join(str(item.value) for item in hint)
            raise InvalidInput(where, f"one of {known}", value) from None
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise InvalidInput(where, f"a value of type {hint.__name__}", value)
    return value
