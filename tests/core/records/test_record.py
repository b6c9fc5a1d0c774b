"""Records: JSON and back, durations, names, documents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.records.record import (
    Minutes,
    Page,
    Record,
    Seconds,
    Time,
    decode_record,
    encode_record,
    field,
    minutes,
    seconds,
    time,
    to_json_value,
)


class Sample(Record):
    """A sample."""

    customer: str = field(name="customer_id")
    wait: Seconds = field(name="wait_seconds", default_factory=lambda: Seconds(minutes=1))
    longest: Minutes | None = field(name="longest_minutes", default=None)
    at: Time | None = None
    data: bytes = b""


def test_json() -> None:
    """Names, durations, times and bytes are as the API has them."""
    made = Sample(customer="acme", longest=minutes(90_000_000), at=time(1_000_000), data=b"hi")
    assert to_json_value(made) == {
        "customer_id": "acme", "wait_seconds": 60, "longest_minutes": 1.5,
        "at": "1970-01-01T00:00:01Z", "data": "aGk=",
    }  # fmt: skip
    assert decode_record(encode_record(made), Sample) == made


def test_a_newer_server() -> None:
    """A field that the client does not know is ignored."""
    assert decode_record(b'{"customer_id": "a", "later": 1}', Sample) == Sample(customer="a")


def test_pages() -> None:
    """A page of records is read with the class of its items."""
    page = Page(items=[Sample(customer="a")], next_cursor="c")
    assert decode_record(encode_record(page), Page[Sample]) == page


def test_records_do_not_change() -> None:
    """A record is immutable, and its fields are keyword arguments."""
    made = Sample(customer="a")
    with pytest.raises(AttributeError):
        made.customer = "b"  # type: ignore[misc]
    with pytest.raises(TypeError):
        Sample("a")  # type: ignore[call-arg]


@given(st.integers(min_value=0, max_value=10**15))
def test_durations_are_exact(us: int) -> None:
    """A duration survives JSON to the microsecond."""
    made = Sample(customer="a", wait=seconds(us))
    assert decode_record(encode_record(made), Sample).wait == timedelta(microseconds=us)


@given(st.datetimes(timezones=st.just(UTC)))
def test_times_are_exact(at: datetime) -> None:
    """A time survives JSON."""
    made = Sample(customer="a", at=at)
    assert decode_record(encode_record(made), Sample).at == at
