"""Checks of groups of dead letters: how many a replay would accept now, and why it refuses others.

A bounded sample of each group is checked with a few statements. The replay itself also detects
attempts that started in the meantime.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from penstock.access.store.names import NameResolver
from penstock.audit.store.kept import HISTORY, kept_until
from penstock.core.clock import from_datetime
from penstock.core.errors import PenstockError
from penstock.core.records.record import time_or_none
from penstock.db.store import Tx
from penstock.dead_letters.client.replays import REPLAYS_MAX
from penstock.dead_letters.client.reports import report_check
from penstock.dead_letters.group_name import GroupKey, group_name
from penstock.dead_letters.records import DeadLetterGroup, RefusedReason
from penstock.dead_letters.store import (
    DeadLetterGroupRow,
    dead_letter_refused,
    dead_letter_reports,
)

CHECKED_EACH: Final = 50
CHECKED_MAX: Final = 500
"""Maximum number of dead letters that are checked, per group and in total."""
REASONS: Final = {
    "undeclared": "the processor is no longer declared",
    "replayed": f"already replayed {REPLAYS_MAX} times; penstock runs retry still retries the run",
    "deleted": "the subscription is deleted",
    "gone": "retention has removed the message",
    "delivering": "the message is still being delivered",
    "detached": "the subscription is detached",
    "replayed_often": "already replayed as often as the subscription allows (replays_max)",
    "unregistered": "the reported processor is not registered",
}


def with_checks(
    tx: Tx,
    names: NameResolver,
    rows: Sequence[DeadLetterGroupRow],
    groups: Sequence[DeadLetterGroup],
    *,
    is_open: bool,
) -> list[DeadLetterGroup]:
    """Return the groups with the result of checking their newest open dead letters.

    `rows` are the rows of the groups; `is_open`: only open ones were read.
    """
    sampled = _sample(rows, {group.group for group in groups})
    refused = _refused(tx, names, sampled)
    kept = kept_until(tx, HISTORY, 0) if is_open else None
    made = []
    for group in groups:
        found = sampled.get(group.group, [])
        whys = Counter(refused[one] for one in found if one in refused)
        until = None if kept is None else from_datetime(group.first_at) + kept
        made.append(
            replace(
                group,
                checked=len(found),
                replayable=len(found) - whys.total(),
                refused_reasons=[
                    RefusedReason(why=REASONS[word], count=n) for word, n in whys.most_common()
                ],
                keeps_until=time_or_none(until),
            )
        )
    return made


def _sample(rows: Sequence[DeadLetterGroupRow], shown: set[str]) -> dict[str, list[int]]:
    """Return the newest open dead letters of each group, an equal share of those to check."""
    found: dict[str, list[int]] = {}
    for row in rows:
        name = group_name(GroupKey._make(row[:6]))
        if row.ids and name in shown:
            found.setdefault(name, []).extend(int(one) for one in row.ids.split(","))
    each = min(CHECKED_EACH, max(1, CHECKED_MAX // max(1, len(found))))
    return {name: sorted(ids, reverse=True)[:each] for name, ids in found.items()}


def _refused(tx: Tx, names: NameResolver, sampled: Mapping[str, list[int]]) -> dict[int, str]:
    """Return why a replay would refuse dead letters, by dead letter."""
    runs = [one for name, ids in sampled.items() if name.startswith("run/") for one in ids]
    others = [one for name, ids in sampled.items() if not name.startswith("run/") for one in ids]
    refused = dead_letter_refused(tx, runs, others, replays_max=REPLAYS_MAX)
    for dead_letter_id, report in dead_letter_reports(tx, others).items():
        if not _is_registered(tx, names, report):
            refused[dead_letter_id] = "unregistered"
    return refused


def _is_registered(tx: Tx, names: NameResolver, report: str | None) -> bool:
    """Return whether the processor that a report names is registered now."""
    try:
        report_check(tx, names, report, None)
    except PenstockError:
        return False
    return True
