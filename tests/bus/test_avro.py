"""Avro schemas: which definitions are valid, and which messages have them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bus.schemas.avro import AvroMismatch, check_message, parse
from penstock.core.errors import InvalidInput

ROSTER = {
    "type": "record",
    "name": "Roster",
    "namespace": "nba",
    "fields": [
        {"name": "team", "type": "string"},
        {"name": "size", "type": "int"},
        {"name": "salary", "type": ["null", "long"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "by_day", "type": {"type": "map", "values": "double"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "next", "type": ["null", "Roster"]},
        {"name": "home", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
    ],
}
GOOD: dict[str, Any] = {
    "team": "ATL", "size": 15, "salary": {"long": 1}, "tags": ["x"], "by_day": {"mon": 1.5},
    "kind": "A", "hash": "\u0001ÿ", "next": None, "home": True, "raw": "abc",
}  # fmt: skip
BINARY = (
    b"\x06ATL" b"\x1e" b"\x02\x02" b"\x02\x02x\x00" b"\x02\x06mon" b"\0\0\0\0\0\0\xf8\x3f" b"\x00"
    b"\x00" b"\x01\xff" b"\x00" b"\x01" b"\x06abc"
)  # fmt: skip


def check(value: object) -> None:
    """Check a value in JSON encoding."""
    check_message(parse(json.dumps(ROSTER)), json.dumps(value).encode(), "json")


def test_a_message_with_its_schema() -> None:
    """In both encodings, also nested in itself."""
    check(GOOD)
    check({**GOOD, "next": {"nba.Roster": GOOD}})
    check_message(parse(json.dumps(ROSTER)), BINARY, "binary")


@pytest.mark.parametrize(
    "change",
    [
        {"team": 1}, {"size": 2**31}, {"size": True}, {"size": 1.5}, {"salary": 1},
        {"salary": {"int": 1}}, {"salary": {"null": None}}, {"tags": "x"}, {"tags": [1]},
        {"by_day": []}, {"by_day": {"mon": "x"}}, {"kind": "C"}, {"hash": "x"}, {"hash": "é€"},
        {"next": {"Roster": GOOD}}, {"home": 1}, {"raw": "€"}, {"more": 1},
    ],
)  # fmt: skip
def test_a_message_without_it(change: dict[str, Any]) -> None:
    """Each value is refused by its path."""
    with pytest.raises(AvroMismatch):
        check({**GOOD, **change})
    missing = {name: value for name, value in GOOD.items() if name not in change}
    if missing != GOOD:
        with pytest.raises(AvroMismatch, match="expected a value"):
            check(missing)


@pytest.mark.parametrize(
    "definition",
    [
        "", "{}", '"string"', "[1", '{"type": "record"}', '{"type": "record", "name": "R"}',
        '{"type": "record", "name": "1", "fields": []}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "nothing"}]}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "int"]}]}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, '
        '{"name": "a", "type": "int"}]}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": '
        '{"type": "enum", "name": "E", "symbols": ["x", "x"]}}]}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": '
        '{"type": "fixed", "name": "F", "size": -1}}]}',
    ],
)  # fmt: skip
def test_invalid_definitions(definition: str) -> None:
    """Each is refused when the schema is created."""
    with pytest.raises(InvalidInput):
        parse(definition)


@given(st.binary(max_size=60))
def test_any_bytes_are_accepted_or_refused(data: bytes) -> None:
    """Never another error, never an endless loop."""
    kind = parse(json.dumps(ROSTER))
    for encoding in ("binary", "json"):
        try:
            check_message(kind, data, encoding)
        except AvroMismatch:
            continue


@given(st.integers(0, len(BINARY) - 1))
def test_a_truncated_message_is_refused(end: int) -> None:
    """Every part of a valid message is too short."""
    with pytest.raises(AvroMismatch):
        check_message(parse(json.dumps(ROSTER)), BINARY[:end], "binary")
