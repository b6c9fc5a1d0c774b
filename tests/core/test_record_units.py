"""Durations of records: users give timedeltas, JSON has numbers in the unit of the field."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock.core.errors import InvalidInput
from penstock.core.records.record import decode_record, encode_record, with_unit
from penstock.core.records.validation import convert_input
from penstock.schedules.records import Config, ConfigChange


def test_a_timedelta_has_the_unit_of_its_field() -> None:
    """The field decides between minutes and seconds."""
    config = Config(pipeline="p", interval=timedelta(seconds=90), jitter=timedelta(minutes=2))
    text = encode_record(config)
    assert b'"schedule_interval_minutes":1.5' in text
    assert b'"jitter_seconds":120' in text
    assert decode_record(text, Config) == config
    assert encode_record(ConfigChange(sla=timedelta(hours=1))) == (
        b'{"sla_breach_threshold_minutes":60}'
    )
    assert encode_record(ConfigChange(interval=None)) == b'{"schedule_interval_minutes":null}'


def test_other_values_stay() -> None:
    """Only timedeltas get a unit."""
    assert with_unit("5m", int) == "5m"
    assert with_unit(timedelta(1), int) == timedelta(1)


@pytest.mark.parametrize("value", ["5", True, 1e30, [5]])
def test_input(value: object) -> None:
    """A duration in JSON is a number of reasonable size."""
    with pytest.raises(InvalidInput, match="jitter_seconds: expected a"):
        convert_input({"jitter_seconds": value}, ConfigChange)
