"""Records: durations, and input that does not fit."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock.core.errors import InvalidInput
from penstock.core.records.record import (
    Minutes,
    Record,
    Seconds,
    decode_record,
    encode_record,
    field,
    set_units,
)
from penstock.core.records.validation import convert_input

TEN = timedelta(minutes=10)


class Waits(Record):
    """A record with durations."""

    short: Seconds = field(name="short_seconds")
    long: Minutes | None = field(name="long_minutes", default=None)
    signing_secret: int = 0

    def __post_init__(self) -> None:
        """Accept plain timedeltas."""
        set_units(self)


def test_plain_timedeltas() -> None:
    """Plain timedeltas get the unit of their field; None and other values are unchanged."""
    assert encode_record(Waits(short=TEN, long=TEN)) == (
        b'{"short_seconds":600,"long_minutes":10,"signing_secret":0}'
    )
    assert Waits(short=TEN).long is None
    assert Waits(short=TEN).short == TEN
    exact = timedelta(days=20_000, microseconds=1)
    assert Waits(short=exact).short == exact, "not converted through a float"


def test_round_trip() -> None:
    """A record that was decoded equals the one that was encoded."""
    wanted = Waits(short=timedelta(milliseconds=1500), long=TEN)
    assert decode_record(encode_record(wanted), Waits) == wanted
    assert convert_input({"short_seconds": 1.5, "long_minutes": 10}, Waits) == wanted


def test_invalid_input() -> None:
    """Errors name the field; a value in place of a secret is not quoted."""
    with pytest.raises(InvalidInput, match="short_seconds: expected a number of seconds"):
        convert_input({"short_seconds": "1m"}, Waits)
    with pytest.raises(InvalidInput, match="signing_secret") as refused:
        convert_input({"short_seconds": 1, "signing_secret": "hunter2"}, Waits)
    assert "hunter2" not in refused.value.message
