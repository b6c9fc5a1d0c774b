"""Validation of input: one error that names the field, the expectation and the value."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest

from penstock.core.errors import InvalidInput
from penstock.core.records.record import JsonObject, Meta, Record, Seconds, Time, field
from penstock.core.records.validation import convert_input


class Colour(StrEnum):
    """An enumeration."""

    RED = "red"
    BLUE = "blue"


class Part(Record):
    """A nested record."""

    size: Annotated[int, Meta(ge=1, le=9)] = 1


class Thing(Record):
    """A record with a field of every kind."""

    name: Annotated[str, Meta(min_length=1, max_length=5)]
    kind: Literal["pull", "push"] = "pull"
    colour: Colour | None = None
    share: Annotated[float, Meta(gt=0)] | None = None
    is_on: bool = False
    data: bytes = b""
    at: Time | None = None
    wait: Seconds | None = field(name="wait_seconds", default=None)
    parts: Annotated[list[Part], Meta(max_length=2)] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    extra: JsonObject | None = None


WRONG: list[tuple[Any, str]] = [
    ([], "body: expected an object, got []."),
    ({}, "name: expected a value, got nothing. This field is required."),
    ({"name": 1}, "name: expected a string, got 1."),
    ({"name": ""}, "name: expected at least 1 characters, got ''."),
    ({"name": "abcdef"}, "name: expected at most 5 characters, got 'abcdef'."),
    ({"name": "a", "kind": "x"}, "kind: expected one of pull, push, got 'x'."),
    ({"name": "a", "colour": "x"}, "colour: expected one of red, blue, got 'x'."),
    ({"name": "a", "share": 0}, "share: expected a number greater than 0.0, got 0."),
    ({"name": "a", "share": "1"}, "share: expected a number or null, got '1'."),
    ({"name": "a", "is_on": 1}, "is_on: expected true or false, got 1."),
    ({"name": "a", "data": "$"}, "data: expected base64 text, got '$'."),
    ({"name": "a", "at": "2025"}, 'at: expected an ISO 8601 time with offset, such as '
     '"2025-11-17T02:00:00Z", got \'2025\'.'),
    ({"name": "a", "at": "2025-01-01T00:00:00"}, 'at: expected an ISO 8601 time with offset, such '
     'as "2025-11-17T02:00:00Z", got \'2025-01-01T00:00:00\'.'),
    ({"name": "a", "wait_seconds": "1m"}, "wait_seconds: expected a number of seconds, got '1m'."),
    ({"name": "a", "wait_seconds": True}, "wait_seconds: expected a number of seconds, got True."),
    ({"name": "a", "wait_seconds": 1e300},
     "wait_seconds: expected a smaller number of seconds, got 1e+300."),
    ({"name": "a", "parts": [{"size": 1}, {"size": 0}]},
     "parts.1.size: expected an integer at least 1, got 0."),
    ({"name": "a", "parts": [{}, {}, {}]}, "parts: expected at most 2 items, got [{}, {}, {}]."),
    ({"name": "a", "parts": {}}, "parts: expected a list, got {}."),
    ({"name": "a", "nme": 1}, "nme: expected a known field, got 'nme'. "
     "Did you mean name?"),
    ({"name": "a", "parts": [{"sise": 1}]},
     "parts.0.sise: expected a known field, got 'sise'. Did you mean size?"),
    ({"name": "a", "zzz": 1},
     "zzz: expected a known field, got 'zzz'. Check its spelling."),
]  # fmt: skip


@pytest.mark.parametrize(("value", "message"), WRONG, ids=[text[:40] for _, text in WRONG])
def test_messages(value: Any, message: str) -> None:
    """Each fault has its own message."""
    with pytest.raises(InvalidInput) as caught:
        convert_input(value, Thing)
    assert str(caught.value) == message


def test_values() -> None:
    """Valid input becomes a record; names in free JSON are not checked."""
    made = convert_input(
        {"name": "a", "data": "aGk=", "wait_seconds": 1.5, "extra": {"any": {"thing": 1}},
         "labels": {"x": "y"}, "parts": [{"size": 3}]},
        Thing,
    )  # fmt: skip
    assert (made.data, made.wait.total_seconds(), made.parts) == (b"hi", 1.5, [Part(size=3)])
    assert made.extra == {"any": {"thing": 1}}


@pytest.mark.parametrize(("text", "value"), [("5", 5), ("1", 1)])
def test_texts(text: str, value: int) -> None:
    """A query has numbers as text; a body does not."""
    assert convert_input({"size": text}, Part, is_text=True) == Part(size=value)
    with pytest.raises(InvalidInput, match="size: expected an integer"):
        convert_input({"size": text}, Part)
