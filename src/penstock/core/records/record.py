"""Records: a resource declared once for Python, JSON, the OpenAPI document and the terminal.

A subject declares its resources in `records.py` as frozen structs with text ids, aware datetimes,
timedeltas and parsed JSON. The docstring of the class and the string below each field become the
descriptions of the OpenAPI document; `Meta` holds the bounds. A field with a different name in JSON
declares it with `field(name=...)`.

    class Topic(Record):
        '''A topic that messages are published to.'''

        name: TopicName
        '''Name of the topic, unique per customer.'''
        retention: Seconds = field(name="retention_seconds", default_factory=week)
        '''Time that messages are kept after publication.'''
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    get_args,
)

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from penstock.core.clock import Duration, Micros, shown_datetime

__all__ = [
    "UNSET", "Changed", "DurationInput", "InBody", "InHeader", "JsonObject", "Meta", "Minutes",
    "Page", "Record", "RecordMeta", "Seconds", "Time", "UnsetType", "Wire", "decode_custom",
    "decode_record", "encode_record", "field", "from_row", "minutes", "seconds", "set_units",
    "time",
    "time_or_none", "to_json_value", "with_unit",
]  # fmt: skip

T = TypeVar("T")

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object whose names the user chooses."""
Time: TypeAlias = Annotated[datetime, Meta(tz=True)]
"""A point in time with its UTC offset; ISO 8601 in JSON."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class RecordMeta(msgspec.StructMeta):
    """Makes every record immutable, with fields that are keyword arguments."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], fields: dict[str, Any], **options: Any
    ) -> Any:
        """Create the class of a record."""
        options = {"frozen": True, "kw_only": True, **options}
        return super().__new__(cls, name, bases, fields, **options)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Record(msgspec.Struct, metaclass=RecordMeta):
    """Base of all records: immutable, and created with keyword arguments."""

    null_is_absent: ClassVar[frozenset[str]] = frozenset()
    """JSON names of fields for which a request may send null instead of omitting the field."""


class Page(Record, Generic[T]):
    """One page of a list."""

    items: list[T]
    """Rows of this page, in the order of the list."""
    next_cursor: str | None = None
    """Value of `cursor` for the next page; null on the last page."""


class Changed(Record):
    """Whether the request changed anything."""

    is_changed: bool = field(name="changed")
    """False if the requested state was already in place."""


class Wire:
    """Name of a parameter in the API where it differs from the name in Python."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class InHeader(Wire):
    """Puts a parameter in the header with this name."""


class InBody(Wire):
    """Puts a parameter in the body, in addition to the fields of the body's record."""


if TYPE_CHECKING:
    Seconds: TypeAlias = timedelta
    Minutes: TypeAlias = timedelta
    DurationInput: TypeAlias = Duration
else:
    DurationInput = str | float
    """A duration as users write it; JSON has no timedelta."""

    class Seconds(timedelta):
        """A duration that is a number of seconds in JSON."""

        unit = "seconds"

    class Minutes(timedelta):
        """A duration that is a number of minutes in JSON."""

        unit = "minutes"


def seconds(us: Micros) -> Seconds:
    """Return microseconds as a duration that is in seconds in JSON."""
    return Seconds(microseconds=us)


def minutes(us: Micros) -> Minutes:
    """Return microseconds as a duration that is in minutes in JSON."""
    return Minutes(microseconds=us)


def with_unit(value: Any, kind: Any) -> Any:
    """Return a duration with the unit that `kind`, the type of its field, has in JSON."""
    if type(value) is not timedelta:
        return value
    unit = _unit_class(kind)
    return value if unit is None else unit(microseconds=value // timedelta(microseconds=1))


def set_units(record: Record) -> None:
    """Convert the durations of a record that a user created to the types with their JSON units."""
    for name, kind in _durations(type(record)):
        value = getattr(record, name)
        if type(value) is timedelta:
            msgspec.structs.force_setattr(record, name, with_unit(value, kind))


@lru_cache(maxsize=256)
def _durations(record: type[Record]) -> list[tuple[str, Any]]:
    fields = msgspec.structs.fields(record)
    return [(one.name, one.type) for one in fields if _unit_class(one.type) is not None]


def _unit_class(kind: Any) -> Any:
    """Return Seconds or Minutes if `kind` is one of them or a union with one; None otherwise."""
    if isinstance(kind, type) and hasattr(kind, "unit"):
        return kind
    return next((one for one in map(_unit_class, get_args(kind)) if one is not None), None)


def time(us: Micros) -> datetime:
    """Convert the time of a row to the datetime of a record."""
    return shown_datetime(us)


def time_or_none(us: Micros | None) -> datetime | None:
    """Convert the time of a row to the datetime of a record; None stays None."""
    return None if us is None else shown_datetime(us)


def from_row(kind: type[T], row: Any, converted: Mapping[str, Any]) -> T:
    """Build a record from a row: the given fields, and the others from columns of the same name."""
    names = kind.__struct_fields__  # type: ignore[attr-defined]
    return kind(
        **converted, **{name: getattr(row, name) for name in names if name not in converted}
    )


def encode_record(value: Any) -> bytes:
    """Return a record, or a list of records, as JSON."""
    return _ENCODER.encode(value)


def to_json_value(value: Any) -> Any:
    """Return a record as plain JSON values: objects, lists, texts and numbers."""
    return msgspec.to_builtins(value, enc_hook=_encode_custom, str_keys=True)


def decode_record(body: bytes, kind: type[T]) -> T:
    """Read a record from JSON that Penstock wrote; unknown fields are ignored."""
    return msgspec.json.decode(body, type=kind, dec_hook=decode_custom)


def decode_custom(kind: type[Any], value: Any) -> Any:
    """Convert a JSON value to a class that msgspec does not support."""
    unit = getattr(kind, "unit", None)
    if unit is None:
        raise NotImplementedError(kind)
    if isinstance(value, timedelta):
        return kind(microseconds=value // timedelta(microseconds=1))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"Expected a number of {unit}")
    try:
        return kind(**{unit: value})
    except (OverflowError, ValueError):
        raise ValueError(f"Expected a smaller number of {unit}") from None


def _encode_custom(value: Any) -> Any:
    unit = getattr(value, "unit", None)
    if not isinstance(value, timedelta) or unit is None:
        raise NotImplementedError(f"{type(value).__name__} cannot be represented in JSON")
    amount = value / timedelta(**{unit: 1})
    return int(amount) if amount.is_integer() else amount


_ENCODER = msgspec.json.Encoder(enc_hook=_encode_custom)
