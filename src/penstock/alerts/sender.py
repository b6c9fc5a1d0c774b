"""The alert sender: turns changes of alerts into notices and sends them through channels.

Any number of processes may run it. A process without channels leaves changes to those that declare
some; one that lacks a channel that another process declares leaves them to it for a minute. One
transaction at a time reads changes; a channel is leased by one process at a time and its notices
leave in order. Each channel is served on a thread of its own, so that a slow one delays neither the
others nor the changes to report. A notice is sent outside any transaction, and its result is stored
in the transaction that leases the next one: after a crash before that, it is sent again under the
same id. A channel that fails is tried again within a minute; it is itself an alert, and its
fallback sends what has waited for a minute.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.access.store.registry import customer_get
from penstock.alerts.channels.delivery import Deliver, NoticeRefused, target_of
from penstock.alerts.declared import PER_ALERT, AlertSettings, ChannelSpec, WindowSpec
from penstock.alerts.routing import CHANNEL_RULE, Routing, notices_for
from penstock.alerts.rows import UNDECLARED_US, LeasedNotice, SenderWork
from penstock.alerts.store.notices import (
    changes_take,
    channel_lease,
    channels_declare,
    channels_declared,
    channels_health,
    channels_notified,
    notice_dead,
    notice_failed,
    notice_put,
    notice_sent,
    notices_give_up,
    notices_move,
    sender_work,
)
from penstock.alerts.store.silences import SilenceDraft, silence_put, silences_refresh
from penstock.audit.rows import NewAlert
from penstock.audit.store.alerts import alert_open, alert_resolve, alert_rows
from penstock.core.clock import HOUR, MINUTE, SECOND, Micros, format_duration, parse_duration
from penstock.core.naming import CustomerKey
from penstock.db.store import Transactions, Tx
from penstock.schedules.cadence import cron, latest_at_or_before

log = logging.getLogger(__name__)

ACTOR: Final = "alert-sender"
LEASE_US: Final = MINUTE
"""How long a process may take for one notice before others may send it again."""
CHANGES_MAX: Final = 1_000
NOTICES_MAX: Final = 20
"""Maximum number of notices that are sent with one lease of a channel."""
TRIES_BEFORE_ALERT: Final = 3
RETRY_MIN_US: Final = 2 * SECOND
RETRY_MAX_US: Final = MINUTE
PAUSE_MAX_US: Final = HOUR
"""Longest pause that a channel can ask for."""
FALLBACK_US: Final = MINUTE
GIVE_UP_US: Final = 24 * HOUR
"""How long notices wait for a channel, and changes for a process that declares channels."""
DECLARE_US: Final = MINUTE
OTHERS_US: Final = MINUTE
"""How long changes are left to processes with channels that this process does not declare."""
NOTICE_TRIES_MAX: Final = 5
"""Maximum attempts of a notice that a working channel rejects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderCounts:
    """Counts of one pass; notices sent and failed since the last one."""

    changes: int = 0
    notices: int = 0
    sent: int = 0
    failed: int = 0
    moved: int = 0
    dead: int = 0


class AlertSender:
    """Service that reports changes of alerts through the channels of the settings."""

    name = ACTOR

    def __init__(
        self,
        store: Transactions,
        settings: AlertSettings,
        deliver: Deliver,
        *,
        jitter: Callable[[], float],
        group_us: Micros = 5 * SECOND,
        is_threaded: bool = True,
    ) -> None:
        """`is_threaded`: serve each channel on its own thread, not in the calling one."""
        self._store = store
        self._settings = settings
        self._deliver = deliver
        self._jitter = jitter
        self._group_us = group_us
        self._declared_at: Micros | None = None
        self._is_threaded = is_threaded
        self._ended = threading.Condition()
        self._busy: set[str] = set()
        """Channels that a thread serves; it and what follows are guarded by `_ended`."""
        self._is_closing = False
        self._sent = self._failed = 0

    def run_once(self) -> SenderCounts:
        """Route changes and start sending due notices; with threads, do not wait for channels."""
        changes = notices = moved = dead = 0
        work, wait_us = self._store.read(self._pending)
        if wait_us is not None or work.has_silences or self._is_due(work.now):
            changes, notices = self._store.write(lambda tx: self._route(tx, wait_us))
        if work.has_notices:
            moved, dead = self._store.write(self._upkeep)
        if work.has_notices or notices:
            for name, spec in sorted(self._settings.channels.items()):
                self._start(name, spec)
        with self._ended:
            sent, failed = self._sent, self._failed
            self._sent = self._failed = 0
        return SenderCounts(
            changes=changes, notices=notices, sent=sent, failed=failed, moved=moved, dead=dead
        )

    def drain(self, seconds: float = 25.0) -> bool:
        """Send nothing more and wait for notices that are being sent; return True if none is left.

        One that is left is sent again by another process once its lease lapses.
        """
        with self._ended:
            self._is_closing = True
            return self._ended.wait_for(lambda: not self._busy, timeout=seconds)

    def _pending(self, tx: Tx) -> tuple[SenderWork, Micros | None]:
        """Return the pending work, and for how long changes wait before this process routes them.

        None if there are none, or other processes route them.
        """
        work = sender_work(tx)
        if not work.has_changes:
            return work, None
        others = channels_declared(tx)
        for name in self._settings.channels:
            others.pop(name, None)
        last = max(others.values(), default=0)
        if not self._settings.channels:
            return work, None if last > work.now - GIVE_UP_US else OTHERS_US
        is_partial = last > work.now - UNDECLARED_US
        return work, self._group_us + (OTHERS_US if is_partial else 0)

    def _route(self, tx: Tx, wait_us: Micros | None) -> tuple[int, int]:
        """Turn changes into notices; return the number of both."""
        self._declare(tx)
        _open_windows(tx, self._settings.windows)
        silences_refresh(tx)
        changes = [] if wait_us is None else changes_take(tx, CHANGES_MAX, wait_us)
        if not changes:
            return 0, 0
        ids = sorted({change.alert_id for change in changes})
        known = Routing(
            settings=self._settings,
            alerts=alert_rows(tx, ids),
            notified=channels_notified(tx, ids),
        )
        plans = notices_for(changes, known)
        made = [notice_put(tx, one.channel, one.kind, one.grouping, one.items) for one in plans]
        return len(changes), sum(made)

    def _is_due(self, now: Micros) -> bool:
        """Return whether it is time to store the declarations and check maintenance windows."""
        last = self._declared_at
        return last is None or not last <= now < last + DECLARE_US

    def _declare(self, tx: Tx) -> None:
        now = tx.now()
        if not self._is_due(now):
            return
        rows = [
            (name, spec.kind, target_of(spec), self._settings.routes_to(name), spec.fallback)
            for name, spec in sorted(self._settings.channels.items())
        ]
        channels_declare(tx, rows)
        tx.after_commit(lambda: self._set_declared(now))

    def _set_declared(self, at: Micros) -> None:
        self._declared_at = at

    def _upkeep(self, tx: Tx) -> tuple[int, int]:
        """Move notices of failing channels to their fallbacks, and abandon old ones."""
        moved = 0
        health = channels_health(tx)
        for name, spec in sorted(self._settings.channels.items()):
            own = health.get(name)
            other = health.get(spec.fallback or "")
            if own is None or own.failures < TRIES_BEFORE_ALERT or spec.fallback is None:
                continue
            if other is None or other.failures:
                continue
            is_per_alert = self._settings.channels[spec.fallback].kind in PER_ALERT
            count = notices_move(tx, name, spec.fallback, FALLBACK_US, is_per_alert=is_per_alert)
            if count:
                # It is retried until the channel works, so that the recovery is noticed.
                notice_put(tx, name, "recovered", "recovered", ())
            moved += count
        return moved, len(notices_give_up(tx, GIVE_UP_US))

    def _start(self, name: str, spec: ChannelSpec) -> None:
        """Serve a channel that has notices to send, unless a thread serves it already."""
        with self._ended:
            if self._is_closing or name in self._busy:
                return
        notice = self._store.write(lambda tx: channel_lease(tx, name, LEASE_US, PAUSE_MAX_US))
        if notice is None:
            return
        if not self._is_threaded:
            self._serve(spec, notice)
            return
        with self._ended:
            self._busy.add(name)
        threading.Thread(
            target=self._run, args=(spec, notice), name=f"penstock-channel-{name}", daemon=True
        ).start()

    def _run(self, spec: ChannelSpec, notice: LeasedNotice) -> None:
        """Serve a channel on its thread."""
        try:
            self._serve(spec, notice)
        except Exception:  # the lease lapses, and the notice is sent again
            log.exception("the result of channel %s could not be stored", notice.channel)
        finally:
            with self._ended:
                self._busy.discard(notice.channel)
                self._ended.notify_all()

    def _serve(self, spec: ChannelSpec, first: LeasedNotice) -> None:
        """Send the waiting notices of a channel, in order."""
        notice: LeasedNotice | None = first
        count = 0
        while notice is not None:
            error = self._attempt(spec, notice)
            count += 1
            with self._ended:
                self._sent += error is None
                self._failed += error is not None
                is_last = self._is_closing or count >= NOTICES_MAX
            notice = self._settle(notice, error, is_last=is_last)

    def _attempt(self, spec: ChannelSpec, notice: LeasedNotice) -> NoticeRefused | None:
        """Send a notice; return why it was not accepted, or None."""
        try:
            self._deliver(spec, notice)
        except NoticeRefused as error:
            return error
        except Exception as error:
            log.exception("channel %s failed", notice.channel)
            return NoticeRefused(f"{spec.kind}: {type(error).__name__}")
        return None

    def _settle(
        self, notice: LeasedNotice, error: NoticeRefused | None, *, is_last: bool
    ) -> LeasedNotice | None:
        """Store the result of an attempt; return the next notice of the channel."""
        if error is None:
            return self._store.write(lambda tx: self._accepted(tx, notice, is_last))
        return self._store.write(lambda tx: self._refused(tx, notice, error, is_last))

    def _accepted(self, tx: Tx, notice: LeasedNotice, is_last: bool) -> LeasedNotice | None:
        following = notice_sent(tx, notice, LEASE_US, is_last=is_last)
        if notice.failures:
            alert_resolve(tx, f"{CHANNEL_RULE}:{notice.channel}", ACTOR)
        return following

    def _refused(
        self, tx: Tx, notice: LeasedNotice, error: NoticeRefused, is_last: bool
    ) -> LeasedNotice | None:
        is_hopeless = error.is_of_notice and notice.attempts >= NOTICE_TRIES_MAX
        if notice.kind == "test" or is_hopeless:
            return notice_dead(tx, notice, error.message, LEASE_US, is_last=is_last)
        health = notice_failed(tx, notice, error.message, self._delay(notice.failures, error))
        if health is not None and health.failures >= TRIES_BEFORE_ALERT:
            self._alert(tx, notice, error, health.failures, health.failing_since)
        return None

    def _delay(self, failures: int, error: NoticeRefused) -> Micros:
        """Return the time until the next attempt: 2 s, doubled up to a minute."""
        wait = min(RETRY_MAX_US, RETRY_MIN_US * 2 ** min(failures, 10))
        wait = int(wait * (0.75 + 0.25 * self._jitter()))
        after = 0 if error.after_s is None else int(error.after_s * SECOND)
        return max(wait, min(after, PAUSE_MAX_US))

    def _alert(
        self,
        tx: Tx,
        notice: LeasedNotice,
        error: NoticeRefused,
        failures: int,
        since: Micros | None,
    ) -> None:
        spec = self._settings.channels[notice.channel]
        after = format_duration(max(0, tx.now() - (since or tx.now())))
        then = f"; {spec.fallback} sends its notices" if spec.fallback else "; its notices wait"
        alert_open(
            tx,
            NewAlert(
                rule=CHANNEL_RULE,
                dedupe_key=f"{CHANNEL_RULE}:{notice.channel}",
                severity="HIGH",
                subject_kind="channel",
                subject=0,
                message=f"Channel {notice.channel} has failed {failures} times in {after}: "
                f"{error.message}{then}",
                detail={
                    "channel": notice.channel,
                    "values": {"failures": failures},
                    "threshold": f"{TRIES_BEFORE_ALERT} failures in a row",
                    "fix": f"penstock alerts resend {notice.channel}",
                },
            ),
        )


def _open_windows(tx: Tx, windows: Mapping[str, WindowSpec]) -> None:
    """Add the silence of each maintenance window of the settings that is open now."""
    for name, window in windows.items():
        now = tx.now()
        duration = parse_duration(window.duration)
        start = latest_at_or_before(cron(window.cron, window.timezone), now, now - duration)
        if start is None or start + duration <= now:
            continue
        customer: CustomerKey | None = None
        if window.customer is not None:
            customer = customer_get(tx, window.customer)
            if customer is None:
                continue
        draft = SilenceDraft(
            starts_at=start, ends_at=start + duration, reason=window.reason,
            actor=f"window {name}", customer_key=customer, pipeline=window.pipeline,
            rule=window.rule, severity=window.severity, source=f"{name}:{start}",
        )  # fmt: skip
        silence_put(tx, draft)
