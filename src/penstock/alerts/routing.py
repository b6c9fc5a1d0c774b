"""Routing of alert changes to channels, as one list of notices.

Pure. Changes of one alert that are read together form one notice, such as an alert that opened and
escalated immediately.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.alerts.declared import PER_ALERT, AlertSettings, ChannelSpec
from penstock.alerts.rows import AlertChange
from penstock.audit.rows import AlertRow

CHANNEL_RULE: Final = "alert_channel_failing"
"""Rule of the alert about a failing channel; other channels report it."""


class NoticePlan(NamedTuple):
    """A notice to add: channel, change, group and its alerts."""

    channel: str
    kind: str
    grouping: str
    items: tuple[tuple[int, str, str, int], ...]
    """Alert id, severity, message and time of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """Context for routing changes."""

    settings: AlertSettings
    alerts: Mapping[int, AlertRow]
    notified: Mapping[int, set[str]]
    """Channels to which the opening of an alert was routed."""


def notices_for(changes: Sequence[AlertChange], given: Routing) -> list[NoticePlan]:
    """Return the notices about changes, in order."""
    notified = {alert_id: set(names) for alert_id, names in given.notified.items()}
    grouped: list[tuple[str, str, str, list[tuple[int, str, str, int]]]] = []
    for change in _merged(changes):
        row = given.alerts.get(change.alert_id)
        if row is None:
            continue
        known = notified.setdefault(change.alert_id, set())
        for channel in _channels(change, row, known, given.settings):
            spec = given.settings.channels.get(channel)
            kind = None if spec is None else _kind(change.kind, spec, is_known=channel in known)
            if spec is None or kind is None:
                continue
            if kind in ("opened", "escalated"):
                known.add(channel)
            is_single = spec.kind in PER_ALERT
            grouping = f"alert:{row.alert_id}" if is_single else f"rule:{row.rule}"
            item = (row.alert_id, change.severity, row.message, change.at)
            _add(grouped, channel, kind, grouping, item)
    return [
        NoticePlan(channel, kind, grouping, tuple(items))
        for channel, kind, grouping, items in grouped
    ]


def _kind(kind: str, spec: ChannelSpec, *, is_known: bool) -> str | None:
    """Return the kind of notice that a channel gets about a change; None if it gets none.

    To a channel that has not reported an alert, its escalation is its opening.
    """
    if kind in spec.changes:
        return kind
    is_first = kind == "escalated" and not is_known and "opened" in spec.changes
    return "opened" if is_first else None


def _add(
    grouped: list[tuple[str, str, str, list[tuple[int, str, str, int]]]],
    channel: str,
    kind: str,
    grouping: str,
    item: tuple[int, str, str, int],
) -> None:
    """Add an item to the last notice of its group if that reports the same change."""
    for known_channel, known_kind, known_grouping, items in reversed(grouped):
        if (known_channel, known_grouping) == (channel, grouping):
            if known_kind != kind:
                break
            items.append(item)
            return
    grouped.append((channel, kind, grouping, [item]))


def _merged(changes: Iterable[AlertChange]) -> list[AlertChange]:
    """Merge changes into one message: an alert that opens and escalates before it is reported."""
    made: list[AlertChange] = []
    firing: dict[int, int] = {}
    for change in changes:
        if change.kind in ("opened", "escalated"):
            position = firing.get(change.alert_id)
            if position is not None:
                kinds = {made[position].kind, change.kind}
                kind = "opened" if "opened" in kinds else "escalated"
                made[position] = made[position]._replace(kind=kind, severity=change.severity)
                continue
            firing[change.alert_id] = len(made)
        made.append(change)
    return made


def _channels(
    change: AlertChange, row: AlertRow, known: set[str], settings: AlertSettings
) -> list[str]:
    """Return the channels that report a change.

    A resolution goes to the channels that reported the opening. A silenced alert, or one that was
    resolved before it was reported, has no channels.
    """
    if change.kind in ("acknowledged", "resolved"):
        return sorted(known)
    if row.silence is not None or (row.state == "acknowledged" and change.kind == "opened"):
        return []
    found = settings.channels_for(change.severity, row.rule, row.customer_id, row.pipeline)
    if row.rule == CHANNEL_RULE:
        failing = row.dedupe_key.partition(":")[2]
        fallback = settings.channels[failing].fallback if failing in settings.channels else None
        others = {name for name in found if name != failing} | ({fallback} if fallback else set())
        return sorted(others or {name for name in settings.channels if name != failing})
    return sorted(set(found) | (known if change.kind == "escalated" else set()))
