"""Ranges of partitions: all partitions between two given ones, by the pipeline's rule.

Pure. Partitions that are text, or not declared, have no order: a request must list them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Final

from penstock.core.errors import InvalidInput
from penstock.pipelines.partition import PartitionKind, PartitionRule, check_partition

PARTITIONS_MAX: Final = 10_000


def partitions_between(rule: PartitionRule | None, first: str, last: str) -> list[str]:
    """Return the partitions from `first` to `last`, both included, in order of time."""
    if rule is None or rule.kind is PartitionKind.TEXT:
        raise InvalidInput(
            "first",
            "a pipeline with partitions by day, hour, week or month",
            first,
            "List its partitions instead: --partition NAME, several times.",
        )
    check_partition(rule, first, "first")
    check_partition(rule, last, "last")
    if last < first:  # all forms sort by time
        raise InvalidInput("last", f"{first} or later", last, "Swap --from and --to.")
    found = [first]
    while found[-1] < last:
        if len(found) >= PARTITIONS_MAX:
            raise InvalidInput(
                "last",
                f"a range of at most {PARTITIONS_MAX:,} partitions",
                last,
                "Split the range.",
            )
        found.append(_following(rule.kind, found[-1]))
    return found


def partitions_listed(rule: PartitionRule | None, names: Sequence[str]) -> list[str]:
    """Return partitions that a request lists, each once, in the order given."""
    if len(names) > PARTITIONS_MAX:
        raise InvalidInput("partitions", f"at most {PARTITIONS_MAX:,} partitions", len(names))
    return list(dict.fromkeys(check_partition(rule, name, "partitions") for name in names))


def _following(kind: PartitionKind, value: str) -> str:
    if kind is PartitionKind.MONTH:
        months = int(value[:4]) * 12 + int(value[5:])
        return f"{months // 12:04}-{months % 12 + 1:02}"
    if kind is PartitionKind.WEEK:
        monday = date.fromisocalendar(int(value[:4]), int(value[6:]), 1) + timedelta(weeks=1)
        year, number, _ = monday.isocalendar()
        return f"{year:04}-W{number:02}"
    if kind is PartitionKind.HOUR:
        later = datetime.fromisoformat(f"{value}:00") + timedelta(hours=1)
        return f"{later.date().isoformat()}T{later.hour:02}"
    return (date.fromisoformat(value) + timedelta(days=1)).isoformat()
