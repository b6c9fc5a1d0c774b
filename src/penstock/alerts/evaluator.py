"""The alert evaluator: measures, compares with the rules, opens and resolves alerts.

Any number of processes may run it: a counter in the database lets one of them evaluate in each
interval, and an alert is one row by its key. A pass is discarded only if one that began later was
applied before it. Conditions that have not held for long enough are stored, so another process
continues where one stopped. After each pass it requests the URL of the heartbeat, if one is
declared, for an external monitor.

The watchdog runs in processes without an evaluator, such as workers, and opens an alert when no
pass has ended for a minute: no scheduler runs, every pass fails, or each takes longer than that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.alerts.built_in.rule import Rule
from penstock.alerts.catalog import declared_rows
from penstock.alerts.measures import Measurement
from penstock.alerts.rules import Evaluation, Firing, evaluate, is_in_python
from penstock.alerts.store.bus_measures import SAMPLE_EVERY, backlogs_sample
from penstock.alerts.store.measures import (
    conditions_keep,
    conditions_read,
    measure,
    open_alerts,
    rules_declare,
)
from penstock.alerts.store.passes import (
    evaluation_apply,
    evaluation_begin,
    evaluation_ended,
)
from penstock.audit.rows import NewAlert
from penstock.audit.store.alerts import alert_open, alert_resolve
from penstock.core.clock import MINUTE, SECOND, Clock, Micros, SystemClock, format_duration, iso
from penstock.core.errors import StoreError
from penstock.db.store import Transactions, Tx
from penstock.flows.ladder.store import pass_take

ACTOR: Final = "alert-evaluator"
HEARTBEAT: Final = "alerts_heartbeat_at"
SAMPLED: Final = "backlogs_sampled_at"
STOPPED_RULE: Final = "monitor_stopped"
REFRESH_US: Final = 5 * MINUTE
"""How often the message of an open alert is updated."""
DECLARE_US: Final = MINUTE
GAP_SHOWN_US: Final = 10 * MINUTE
"""How long the alert about an unreachable database stays open once the database is back."""
STOPPED_US: Final = MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorCounts:
    """Counts of one pass; all are 0 if another process evaluates."""

    measured: int = 0
    firing: int = 0
    opened: int = 0
    resolved: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundHeartbeat:
    """Callback after a pass, at most once per interval across all processes."""

    send: Callable[[], None]
    interval_us: Micros


class _Known(NamedTuple):
    """What a pass reads."""

    measured: list[Measurement]
    since: dict[str, Micros]
    alerts: dict[str, tuple[str, Micros]]


class _Plan(NamedTuple):
    """What a pass writes."""

    opened: list[Firing]
    ended: list[str]
    begun: list[tuple[str, str]]
    dropped: list[str]


class AlertEvaluator:
    """Service that evaluates the rules of alerts."""

    name = ACTOR

    def __init__(
        self,
        store: Transactions,
        rules: tuple[Rule, ...],
        *,
        interval_us: Micros = 15 * SECOND,
        clock: Clock | None = None,
        local: Callable[[], Sequence[Measurement]] = tuple,
        heartbeat: OutboundHeartbeat | None = None,
    ) -> None:
        """`local` measures what is specific to this machine, such as the disk."""
        self._store = store
        self._rules = rules
        self._interval_us = interval_us
        self._clock = clock or SystemClock()
        self._local = local
        self._heartbeat = heartbeat
        self._declared_at: Micros | None = None
        self._lost_at: float | None = None
        self._gap: tuple[Micros, Micros] | None = None
        """Length and end of the last outage of the database."""

    def run_once(self) -> EvaluatorCounts:
        """Evaluate the rules, if no process has done so in this interval."""
        try:
            started, is_taken = self._store.write(self._begin)
            self._note_gap(started)
            if not is_taken:
                return EvaluatorCounts()
            if self._store.write(lambda tx: pass_take(tx, SAMPLED, SAMPLE_EVERY - SECOND)):
                self._store.write(backlogs_sample)
            known = self._store.read(self._read)
        except StoreError:
            if self._lost_at is None:
                self._lost_at = self._clock.monotonic()
            raise
        measured = [*known.measured, *self._local(), *self._gaps(started)]
        found = evaluate(self._rules, measured, known.since, started)
        plan = _plan(found, known, started)
        last = self._declared_at
        is_due = last is None or not last <= started < last + DECLARE_US
        is_applied = self._store.write(lambda tx: self._apply(tx, plan, started, is_due=is_due))
        if is_applied and is_due:
            self._declared_at = started
        self._send_heartbeat()
        return EvaluatorCounts(
            measured=len(measured),
            firing=len(found.firing),
            opened=sum(one.dedupe_key not in known.alerts for one in plan.opened),
            resolved=len(plan.ended),
        )

    def _begin(self, tx: Tx) -> tuple[Micros, bool]:
        """Return the time, and whether this process has claimed the interval."""
        is_taken = evaluation_begin(tx, self._interval_us - SECOND)
        return tx.now(), is_taken

    def _read(self, tx: Tx) -> _Known:
        rules = [*(rule.name for rule in self._rules), STOPPED_RULE]
        return _Known(
            measured=measure(tx),
            since={key: at for key, at in conditions_read(tx).items() if not is_in_python(key)},
            alerts=open_alerts(tx, rules),
        )

    def _apply(self, tx: Tx, plan: _Plan, started: Micros, *, is_due: bool) -> bool:
        """Open alerts for conditions that hold and resolve the others.

        Return False if a pass that began later was applied before: then nothing changes.
        """
        if not evaluation_apply(tx, started):
            return False
        if is_due:
            rules_declare(tx, declared_rows(self._rules))
        conditions_keep(tx, (), plan.dropped)
        conditions_keep(tx, plan.begun, ())
        for firing in plan.opened:
            alert_open(tx, alert_of(firing))
        for key in plan.ended:
            alert_resolve(tx, key, ACTOR)
        return True

    def _note_gap(self, now: Micros) -> None:
        """Record how long the database was unreachable, now that it has responded."""
        if self._lost_at is not None:
            self._gap = (int((self._clock.monotonic() - self._lost_at) * SECOND), now)
            self._lost_at = None

    def _gaps(self, now: Micros) -> list[Measurement]:
        if self._gap is None or not self._gap[1] <= now <= self._gap[1] + GAP_SHOWN_US:
            return []
        length, end = self._gap
        facts = {"since": iso(end)}
        return [Measurement(metric="database_gap_seconds", value=length / SECOND, facts=facts)]

    def _send_heartbeat(self) -> None:
        given = self._heartbeat
        if given is None:
            return
        if self._store.write(lambda tx: pass_take(tx, HEARTBEAT, given.interval_us - SECOND)):
            given.send()


class Watchdog:
    """Service that opens an alert when the rules are no longer evaluated."""

    name = "alert-watchdog"

    def __init__(self, store: Transactions, *, stopped_us: Micros = STOPPED_US) -> None:
        self._store = store
        self._stopped_us = stopped_us
        self._ahead: tuple[Micros, Micros] | None = None
        """A time in the future at which a pass ended, and when this process first read it."""

    def run_once(self) -> bool:
        """Return whether the evaluator has stopped; False in an installation without one."""
        late = self._store.read(self._late)
        if late is None:
            return False
        self._store.write(lambda tx: alert_open(tx, _stopped(late)))
        return True

    def _late(self, tx: Tx) -> Micros | None:
        last, now = evaluation_ended(tx), tx.now()
        if last > now:  # the clock was set back
            if self._ahead is None or self._ahead[0] != last:
                self._ahead = (last, now)
            last = self._ahead[1]
        return now - last if last and last < now - self._stopped_us else None


def _plan(found: Evaluation, known: _Known, now: Micros) -> _Plan:
    since = {key: at for key, at in known.since.items() if at <= now}
    opened = []
    for key, firing in found.firing.items():
        severity, last_at = known.alerts.get(key, ("", 0))
        if severity != firing.severity or last_at <= now - REFRESH_US:
            opened.append(firing)
    return _Plan(
        opened=opened,
        ended=[key for key in known.alerts if key not in found.firing],
        begun=[(key, rule) for key, rule in found.held.items() if key not in since],
        dropped=[key for key in known.since if key not in found.held or key not in since],
    )


def alert_of(firing: Firing) -> NewAlert:
    """Return the alert of a rule that fires."""
    one = firing.measurement
    return NewAlert(
        rule=firing.rule.name,
        dedupe_key=firing.dedupe_key,
        severity=firing.severity,
        subject_kind=one.subject_kind,
        subject=one.subject,
        message=firing.message(),
        customer_key=one.customer_key,
        pipeline=one.pipeline,
        detail={
            "values": {one.metric: round(one.value, 3), **one.facts},
            "threshold": firing.threshold,
            "fix": firing.command(),
            "name": one.name,
        },
    )


def _stopped(late: Micros) -> NewAlert:
    shown = format_duration(late // SECOND * SECOND)
    return NewAlert(
        rule=STOPPED_RULE,
        dedupe_key=STOPPED_RULE,
        severity="CRITICAL",
        subject_kind="system",
        subject=0,
        message=f"The alert rules were last evaluated {shown} ago: no scheduler process runs, or "
        "its evaluation fails",
        detail={
            "values": {"seconds": late // SECOND},
            "threshold": "a minute without an evaluation",
            "fix": "penstock scheduler",
        },
    )
