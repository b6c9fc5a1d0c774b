"""Partitions of a pipeline: the slice of data that an occurrence processes, and valid names.

    Pipeline("sales", partition=day("order_date", offset=-1))   # yesterday, such as 2025-12-31

A pipeline declares `day`, `hour`, `week`, `month` or `text`. The value of an occurrence is taken
from its scheduled time in the time zone of its config; `check_partition` rejects a value that does
not have the declared form. Pure: functions take the time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from penstock.core.clock import HOUR, Micros, iso, to_datetime
from penstock.core.errors import DeclarationError, InvalidInput, short_repr
from penstock.core.fields import check_text
from penstock.core.stored_json import from_json
from penstock.core.utc_offsets import zone_info

OFFSET_MAX: Final = 1_000


class PartitionKind(StrEnum):
    """The form of a pipeline's partitions."""

    DAY = "day"
    HOUR = "hour"
    WEEK = "week"
    MONTH = "month"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRule:
    """The form of a pipeline's partitions and, for times, how far they are from an occurrence."""

    kind: PartitionKind = PartitionKind.DAY
    offset: int = 0
    """Units (days, hours, weeks, months) from the scheduled time; negative for the past."""
    repeats: bool = False
    """Whether a config may fire several times per partition; each time reruns the partition."""

    @property
    def words(self) -> str:
        """The rule as text, such as "day" or "month (offset -1)"."""
        notes = [f"offset {self.offset:+d}"] if self.offset else []
        notes += ["repeats"] if self.repeats else []
        return f"{self.kind} ({', '.join(notes)})" if notes else str(self.kind)


DAY_RULE: Final = PartitionRule()
"""The rule of a pipeline that declares only a partition column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredPartition:
    """The declared partition of a pipeline; built by `day`, `hour`, `week`, `month`, `text`.

    column: the column that holds the partition, for every dependency that does not name its own.
    """

    rule: PartitionRule
    column: str | None = None


def day(column: str | None = None, *, offset: int = 0, repeats: bool = False) -> DeclaredPartition:
    """Partition by day, such as 2025-12-31.

    column: the column that holds it. offset: -1 processes the day before the scheduled time.
    repeats: allow configs that fire several times a day; each time reruns the partition.
    """
    return _declared(PartitionKind.DAY, column, offset, repeats)


def hour(column: str | None = None, *, offset: int = 0, repeats: bool = False) -> DeclaredPartition:
    """Partition by hour of the wall clock, such as 2025-12-31T23; options as for `day`.

    The hour that a clock change repeats is one partition: its second occurrence is a rerun.
    """
    return _declared(PartitionKind.HOUR, column, offset, repeats)


def week(column: str | None = None, *, offset: int = 0, repeats: bool = False) -> DeclaredPartition:
    """Partition by ISO week, which begins on Monday, such as 2026-W01; options as for `day`."""
    return _declared(PartitionKind.WEEK, column, offset, repeats)


def month(
    column: str | None = None, *, offset: int = 0, repeats: bool = False
) -> DeclaredPartition:
    """Partition by month, such as 2025-12; options as for `day`."""
    return _declared(PartitionKind.MONTH, column, offset, repeats)


def text(column: str | None = None) -> DeclaredPartition:
    """Partition by any text; the partition of an occurrence is its scheduled time in UTC."""
    return _declared(PartitionKind.TEXT, column, 0, False)


def partition_rule_of(definition: Mapping[str, Any]) -> PartitionRule | None:
    """Return the partition rule in a pipeline's definition; None if it declares none."""
    given = definition.get("partition_rule")
    if given is not None:
        return from_json(PartitionRule, given)
    return None if definition.get("partition") is None else DAY_RULE


def partition_at(rule: PartitionRule | None, at: Micros, timezone: str) -> str:
    """Return the partition of an occurrence; without a rule, its scheduled time in UTC."""
    if rule is None or rule.kind is PartitionKind.TEXT:
        return iso(at)
    if rule.kind is PartitionKind.HOUR:
        local = to_datetime(at + rule.offset * HOUR).astimezone(zone_info(timezone))
        return f"{local.date().isoformat()}T{local.hour:02}"
    return partition_on(rule, to_datetime(at).astimezone(zone_info(timezone)).date())


def partition_on(rule: PartitionRule, today: date) -> str:
    """Return the partition of a date, for rules by day, week or month."""
    if rule.kind is PartitionKind.WEEK:
        year, number, _ = (today + timedelta(weeks=rule.offset)).isocalendar()
        return f"{year:04}-W{number:02}"
    if rule.kind is PartitionKind.MONTH:
        months = today.year * 12 + today.month - 1 + rule.offset
        return f"{months // 12:04}-{months % 12 + 1:02}"
    return (today + timedelta(days=rule.offset)).isoformat()


def range_text(first: str, last: str) -> str:
    """Return the partition of a flow that processes a whole range at once."""
    return f"{first}{_TO}{last}"


def range_of(partition: str) -> tuple[str, str] | None:
    """Return the first and the last partition of a range; None for a single partition."""
    first, found, last = partition.partition(_TO)
    if not found or not any(_is_valid(kind, first) and _is_valid(kind, last) for kind in _FORMS):
        return None
    return first, last


def check_partition(rule: PartitionRule | None, value: str, field: str = "partition") -> str:
    """Return the value if it is a partition of this rule. Raise InvalidInput with the fix if not.

    Without a rule, and for `text`, any text is valid.
    """
    check_text(field, value)
    if rule is None or rule.kind is PartitionKind.TEXT or _is_valid(rule.kind, value):
        return value
    expected = f"{_ARTICLES[rule.kind]}, such as {_EXAMPLES[rule.kind]}"
    raise InvalidInput(field, expected, value, _partition_fix(rule.kind, value))


def _partition_fix(kind: PartitionKind, value: str) -> str | None:
    day = kind is PartitionKind.DAY
    if day and re.fullmatch(r"\d{4}-\d{2}-\d{2}", value, re.ASCII):
        return "The calendar has no such day."
    if day and (parts := re.fullmatch(r"(\d{4})[-/.]?(\d{1,2})[-/.]?(\d{1,2})", value, re.ASCII)):
        written = f"{parts[1]}-{int(parts[2]):02}-{int(parts[3]):02}"
        return f"Did you mean {written}?" if _is_valid(kind, written) else None
    if day and re.fullmatch(r"\d{1,2}[-/.]\d{1,2}[-/.]\d{4}", value, re.ASCII):
        return "Write year, month and day, in this order."
    if any(mark in value for mark in ("..", ",", "/", " to ")):
        return f"One call takes one partition: repeat it for each {kind} of the range."
    return None


@lru_cache(maxsize=4096)
def _is_valid(kind: PartitionKind, value: str) -> bool:
    match = _FORMS[kind].fullmatch(value)
    if match is None:
        return False
    try:
        if kind is PartitionKind.WEEK:
            date.fromisocalendar(int(match[1]), int(match[2]), 1)
        elif kind is PartitionKind.MONTH:
            date(int(match[1]), int(match[2]), 1)
        else:
            date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        return False
    return True


def _declared(
    kind: PartitionKind, column: str | None, offset: int, repeats: bool
) -> DeclaredPartition:
    if type(offset) is not int or not -OFFSET_MAX <= offset <= OFFSET_MAX:
        raise DeclarationError(
            f"{kind}(offset=...) must be a whole number from {-OFFSET_MAX} to {OFFSET_MAX}, "
            f"got {short_repr(offset)}."
        )
    if not isinstance(repeats, bool):
        raise DeclarationError(
            f"{kind}(repeats=...) must be True or False, got {short_repr(repeats)}."
        )
    rule = PartitionRule(kind=kind, offset=offset, repeats=repeats)
    return DeclaredPartition(rule=rule, column=column)


_TO: Final = ".."
_DAY_FORM: Final = r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
_FORMS: Final = {
    PartitionKind.DAY: re.compile(_DAY_FORM, re.ASCII),
    PartitionKind.HOUR: re.compile(_DAY_FORM + r"T(?:[01][0-9]|2[0-3])", re.ASCII),
    PartitionKind.WEEK: re.compile(r"([0-9]{4})-W([0-9]{2})", re.ASCII),
    PartitionKind.MONTH: re.compile(r"([0-9]{4})-([0-9]{2})", re.ASCII),
}
_ARTICLES: Final = {
    PartitionKind.DAY: "a day",
    PartitionKind.HOUR: "an hour",
    PartitionKind.WEEK: "an ISO week",
    PartitionKind.MONTH: "a month",
}
_EXAMPLES: Final = {
    PartitionKind.DAY: "2025-12-31",
    PartitionKind.HOUR: "2025-12-31T23",
    PartitionKind.WEEK: "2026-W01",
    PartitionKind.MONTH: "2025-12",
}
