"""Notices: messages to channels about changes of alerts, and the health of channels.

Triggers of the table `alerts` record every change, whatever code makes it, in its transaction. One
transaction at a time turns changes into notices (`changes_take`). A channel is leased by one
process at a time, which sends its notices in order; the result of each is recorded with the lease
of the next.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.alerts.rows import (
    AlertChange,
    ChannelHealth,
    ChannelRow,
    LeasedNotice,
    NoticeItem,
    NoticeRow,
    SenderWork,
)
from penstock.db.store import Tx, first, one

GROUP_MAX = 100
"""Maximum number of alerts in one notice; more of one rule are several notices."""


def sender_work(tx: Tx) -> SenderWork:
    """Return the pending work, without taking a lock."""
    now, *flags = one(tx.rows("alert_sender_work"))
    return SenderWork(now, *(bool(flag) for flag in flags))


def changes_take(tx: Tx, most: int, wait_us: int) -> list[AlertChange]:
    """Delete and return the changes to report, in order.

    Returns none before the oldest has waited for `wait_us`, so that alerts with one cause share a
    notice, or while another transaction routes changes. One whose time is further ahead is from
    before the clock was set back, and does not wait.
    """
    oldest, now = one(tx.rows("alert_changes_oldest"))
    if oldest is None or now - wait_us < oldest <= now + wait_us:
        return []
    if not one(tx.rows("alert_sender_lock"))[0]:
        return []
    rows = tx.rows("alert_changes_take", {"n": most})
    return sorted(AlertChange._make(row) for row in rows)


def channels_notified(tx: Tx, ids: Sequence[int]) -> dict[int, set[str]]:
    """Return the channels to which the opening of these alerts was routed, by alert."""
    found: dict[int, set[str]] = {}
    for alert_id, channel in tx.rows("alert_notice_channels", {"ids": sorted(set(ids))}):
        found.setdefault(alert_id, set()).add(channel)
    return found


def notice_put(
    tx: Tx, channel: str, kind: str, grouping: str, items: Sequence[tuple[int, str, str, int]]
) -> int:
    """Add alerts to the newest notice of the group if it can still change, else to new ones.

    items: alert id, severity, message and time of each. Returns the number of notices: one, or as
    many as the alerts fill.
    """
    parts = [items[at : at + GROUP_MAX] for at in range(0, len(items), GROUP_MAX)] or [items]
    for part in parts:
        _part_put(tx, channel, kind, grouping, part)
    return len(parts)


def _part_put(
    tx: Tx, channel: str, kind: str, grouping: str, items: Sequence[tuple[int, str, str, int]]
) -> None:
    params = {"channel": channel, "grouping": grouping}
    last = first(tx.rows("alert_notice_last", params))
    is_open = last is not None and last[1] == kind and last[2] == 0
    if last is not None and is_open and last[3] + len(items) <= GROUP_MAX:
        notice_id = int(last[0])
    else:
        notice_id = int(one(tx.rows("alert_notice_put", {**params, "kind": kind}))[0])
    if items:
        tx.run("alert_notice_items_put", {"notice_id": notice_id}, list(items))


def channels_declare(
    tx: Tx, channels: Sequence[tuple[str, str, str, Sequence[str], str | None]]
) -> None:
    """Store the channels of the settings: name, kind, target, routes and fallback of each."""
    rows = [
        (name, kind, target, msgspec.json.encode(list(routes)).decode(), fallback)
        for name, kind, target, routes, fallback in channels
    ]
    if rows:
        tx.run("alert_channel_declare", None, rows)


def channels_declared(tx: Tx) -> dict[str, int]:
    """Return when a process last declared each channel, by name."""
    return {name: int(at) for name, at in tx.rows("alert_channels_declared")}


def channel_list(tx: Tx) -> list[ChannelRow]:
    """Return the channels by name."""
    return [ChannelRow._make(row) for row in tx.rows("alert_channel_list")]


def channels_health(tx: Tx) -> dict[str, ChannelHealth]:
    """Return the health of channels, by name."""
    return {
        name: ChannelHealth(failures, since)
        for name, failures, since in tx.rows("alert_channels_health")
    }


def channel_lease(tx: Tx, name: str, lease_us: int, pause_us: int) -> LeasedNotice | None:
    """Lease a channel and its next notice; None if it has none, is leased, or must wait.

    pause_us: longest time that a channel waits after a failure.
    """
    params = {"name": name, "lease_us": lease_us, "pause_us": pause_us}
    row = first(tx.rows("alert_channel_lease", params))
    return None if row is None else _next(tx, name, int(row[0]), int(row[1]))


def notice_sent(
    tx: Tx, notice: LeasedNotice, lease_us: int, *, is_last: bool
) -> LeasedNotice | None:
    """Record that a notice was sent; return the next one, under the same lease.

    is_last: end the lease instead.
    """
    end = {"notice_id": notice.notice_id, "state": "sent", "error": None}
    tx.rows("alert_notice_end", end)
    tx.run("alert_channel_sent", {"name": notice.channel})
    return _extend(tx, notice, lease_us, is_last=is_last)


def notice_dead(
    tx: Tx, notice: LeasedNotice, error: str, lease_us: int, *, is_last: bool
) -> LeasedNotice | None:
    """Abandon a notice; return the next one, under the same lease; `is_last` ends it instead."""
    end = {"notice_id": notice.notice_id, "state": "dead", "error": error}
    tx.rows("alert_notice_end", end)
    tx.run("alert_channel_error", {"name": notice.channel, "error": error})
    return _extend(tx, notice, lease_us, is_last=is_last)


def notice_failed(tx: Tx, notice: LeasedNotice, error: str, delay_us: int) -> ChannelHealth | None:
    """Record a failure, end the lease, and delay the channel; None if the lease was lost."""
    tx.run("alert_notice_failed", {"notice_id": notice.notice_id, "error": error})
    params = {"name": notice.channel, "token": notice.token, "error": error, "delay_us": delay_us}
    row = first(tx.rows("alert_channel_failed", params))
    return None if row is None else ChannelHealth(int(row[0]), row[1])


def notices_move(
    tx: Tx, channel: str, fallback: str, after_us: int, *, is_per_alert: bool = False
) -> int:
    """Move notices that have waited for a failing channel to its fallback; return their number.

    is_per_alert: the fallback gets a notice for each alert, so that each has its own result.
    """
    params = {"channel": channel, "fallback": fallback, "after_us": after_us}
    moved = sorted(int(row[0]) for row in tx.rows("alert_notices_move", params))
    if is_per_alert and moved:
        _split(tx, moved)
    return len(moved)


def _split(tx: Tx, ids: Sequence[int]) -> None:
    """Replace notices by one for each alert, and all later ones, so that they keep their order."""
    alerts: dict[int, list[int]] = {}
    for notice_id, alert_id in tx.rows("alert_notices_alerts", {"ids": list(ids)}):
        alerts.setdefault(notice_id, []).append(alert_id)
    first_id = min((one for one, found in alerts.items() if len(found) > 1), default=None)
    if first_id is None:
        return
    for notice_id, found in sorted(alerts.items()):
        if notice_id < first_id:
            continue
        params = {"notice_id": notice_id}
        copies = sorted(int(row[0]) for row in tx.rows("alert_notice_copy", params))
        tx.run("alert_notice_items_split", params, list(zip(found, copies, strict=True)))
        tx.run("alert_notice_delete", params)


def notices_give_up(tx: Tx, after_us: int) -> list[str]:
    """Abandon notices that have waited too long; return the channel of each."""
    return [str(row[0]) for row in tx.rows("alert_notices_give_up", {"after_us": after_us})]


def notices_resend(tx: Tx, channel: str) -> int:
    """Send abandoned notices again; return their number."""
    tx.rows("alert_channel_try_now", {"name": channel})
    return tx.run("alert_notices_resend", {"channel": channel})


def notice_test(tx: Tx, channel: str) -> int | None:
    """Add a test notice that is sent immediately; None if the channel does not exist."""
    if not tx.rows("alert_channel_try_now", {"name": channel}):
        return None
    params = {"channel": channel, "kind": "test", "grouping": "test"}
    return int(one(tx.rows("alert_notice_put", params))[0])


def notice_list(
    tx: Tx, *, channel: str | None, state: str | None, before: int, limit: int
) -> list[NoticeRow]:
    """Return notices, newest first."""
    params = {"channel": channel, "state": state, "before": before, "limit": limit}
    return [NoticeRow._make(row) for row in tx.rows("alert_notice_list", params)]


def notice_get(tx: Tx, notice_id: int) -> NoticeRow | None:
    """Return one notice."""
    row = first(tx.rows("alert_notice_get", {"notice_id": notice_id}))
    return None if row is None else NoticeRow._make(row)


def _extend(tx: Tx, notice: LeasedNotice, lease_us: int, *, is_last: bool) -> LeasedNotice | None:
    if is_last:
        _free(tx, notice)
        return None
    params = {"name": notice.channel, "token": notice.token, "lease_us": lease_us}
    if not tx.rows("alert_channel_extend", params):
        return None
    following = _next(tx, notice.channel, notice.token, 0)
    if following is None:
        _free(tx, notice)
    return following


def _free(tx: Tx, notice: LeasedNotice) -> None:
    tx.run("alert_channel_free", {"name": notice.channel, "token": notice.token})


def _next(tx: Tx, channel: str, token: int, failures: int) -> LeasedNotice | None:
    row = first(tx.rows("alert_notice_next", {"channel": channel}))
    if row is None:
        return None
    items = tx.rows("alert_notice_items", {"notice_id": row[0], "limit": GROUP_MAX})
    made = tuple(NoticeItem._make(item) for item in items)
    return LeasedNotice._make((channel, token, failures, *row, made))
