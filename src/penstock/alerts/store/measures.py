"""Measurements for the rules of alerts: bounded reads of hot tables and folded counters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from penstock.alerts.fixes import bound_customer, lower_limit, replay_origin, restart_run
from penstock.alerts.measures import Measurement
from penstock.alerts.store.bus_measures import measure_deliveries
from penstock.alerts.store.flow_measures import measure_flows
from penstock.alerts.store.limit_measures import measure_limits, measure_shipping
from penstock.alerts.store.process_minutes import measure_processes
from penstock.alerts.store.usage_measures import measure_usage
from penstock.audit.store.journal import outbox_count
from penstock.core.clock import DAY, HOUR, MINUTE, SECOND, Micros, format_duration, iso
from penstock.core.naming import EXTERNAL_POOL, CustomerKey, is_http_pool
from penstock.db.store import Tx, one

BOUND: Final = 10_000
SAMPLE: Final = 500
"""Number of runs at the head of a pool's queue that determine its waiting time."""
RECENT_US: Final = 10 * MINUTE
PATIENCE_US: Final = 5 * MINUTE
FLOOD_MIN: Final = 100
"""Ready runs of a pool at which the alert names the customers."""
RUNS_MIN: Final = 20
"""Minimum number of ended runs, or delivery results, for a meaningful share."""


def measure(tx: Tx) -> list[Measurement]:
    """Measure all metrics of the rules, in one read."""
    now = tx.now()
    return [
        *_dead_letters(tx, now),
        *_pools(tx, now),
        *_schedule(tx, now),
        *_runs(tx, now),
        *_subscriptions(tx, now),
        *_system(tx, now),
        *measure_processes(tx, now),
        *measure_deliveries(tx, now),
        *measure_flows(tx, now),
        *measure_limits(tx, now),
        *measure_shipping(tx, now),
        *measure_usage(tx, now),
    ]


def conditions_read(tx: Tx) -> dict[str, Micros]:
    """Return the time since which each condition holds."""
    return {key: int(since) for key, since in tx.rows("alert_conditions_read")}


def conditions_keep(tx: Tx, held: Iterable[tuple[str, str]], dropped: Sequence[str]) -> None:
    """Record conditions that began to hold (key, rule), and drop those that ended."""
    rows = sorted(held)
    if rows:
        tx.run("alert_conditions_keep", None, rows)
    if dropped:
        tx.run("alert_conditions_drop", {"keys": sorted(dropped)})


def open_alerts(tx: Tx, rules: Sequence[str]) -> dict[str, tuple[str, Micros]]:
    """Return severity and last update of the open alerts of rules, by key."""
    rows = tx.rows("alert_open_of_rules", {"rules": list(rules)})
    return {key: (severity, int(last_at)) for key, severity, last_at in rows}


def rules_declare(
    tx: Tx, rules: Sequence[tuple[str, str, Sequence[str], str]], *, source: str | None = None
) -> None:
    """Store the rules in force: name, condition, severities and source of each.

    Others of the same kind are marked as disabled; source: `python` for rules declared in Python.
    """
    rows = [
        (name, condition, msgspec.json.encode(list(severities)).decode(), source)
        for name, condition, severities, source in rules
    ]
    tx.run("alert_rules_declare", None, rows)
    tx.run("alert_rules_disabled", {"rules": [row[0] for row in rows], "source": source})


def rules_read(tx: Tx) -> dict[str, tuple[str, list[str], str]]:
    """Return condition, severities and source of the rules as last declared, by name."""
    return {
        name: (condition, msgspec.json.decode(severities, type=list[str]), source)
        for name, condition, severities, source in tx.rows("alert_rules_read")
    }


def _dead_letters(tx: Tx, now: Micros) -> list[Measurement]:
    oldest = tx.rows("measure_dead_letters", {"bound": BOUND})
    if not oldest:
        return []
    recent = tx.rows("measure_recent_dead_letters", {"window_us": RECENT_US, "bound": BOUND})
    fresh = {(row[0], row[1]): int(row[2]) for row in recent}
    subscriptions = sorted({row[0] for row in oldest if row[0] is not None})
    names: dict[int, str] = dict(tx.rows("measure_subscription_names", {"ids": subscriptions}))
    processors = sorted({row[1] for row in oldest if row[0] is None and row[1] is not None})
    owners = {
        key: (pipeline, name)
        for key, pipeline, name in tx.rows("measure_names", {"ids": processors})
    }
    found = []
    for subscription, processor, count, died_at, low, high in oldest:
        is_delivery = subscription is not None
        pipeline, name = owners.get(processor, (None, "unknown"))
        shown = f"subscription {names.get(subscription)}" if is_delivery else f"{pipeline}/{name}"
        newest = fresh.get((subscription, processor), 0)
        facts = {"count": int(count), "recent": newest}
        for metric, value in (
            ("dead_letter_age_minutes", (now - died_at) / MINUTE),
            ("recent_dead_letters", float(newest)),
        ):
            found.append(
                Measurement(
                    metric=metric,
                    value=value,
                    subject_kind="subscription" if is_delivery else "processor",
                    subject=subscription if is_delivery else processor or 0,
                    name=shown,
                    customer_key=CustomerKey(low) if low == high and low else None,
                    pipeline=None if is_delivery else pipeline,
                    facts=facts,
                    fix=replay_origin(names.get(subscription), pipeline, name),
                )
            )
    return found


def _pools(tx: Tx, now: Micros) -> list[Measurement]:
    found = []
    for pool, name, ready, since, workers in tx.rows(
        "measure_pools", {"bound": BOUND, "sample": SAMPLE}
    ):
        if not ready or since is None:
            continue
        waited = max(0.0, (now - since) / MINUTE)
        values = {"ready_runs": float(ready), "queue_age_minutes": waited}
        if not workers and name != EXTERNAL_POOL and not is_http_pool(name):
            values["unserved_minutes"] = waited
        facts = {"ready": int(ready), "workers": int(workers), "flood": ""}
        fix = None
        if int(ready) >= FLOOD_MIN:
            params = {"pool": pool, "bound": BOUND}
            customer, runs, slots = one(tx.rows("measure_pool_flood", params))
            fix = bound_customer(customer, int(runs), int(ready), int(slots))
            facts["flood"] = f", {int(runs):,} of them of {customer}" if fix else ""
        found += [
            Measurement(
                metric=metric, value=value, subject_kind="pool", subject=pool, name=name,
                facts=facts, fix=fix if metric == "ready_runs" else None,
            )
            for metric, value in values.items()
        ]  # fmt: skip
    return found


def _schedule(tx: Tx, now: Micros) -> list[Measurement]:
    due = one(tx.rows("measure_schedule"))[0]
    if due is None or due >= now:
        return []
    return [Measurement(metric="overdue_minutes", value=(now - due) / MINUTE)]


def _runs(tx: Tx, now: Micros) -> list[Measurement]:
    held = one(tx.rows("measure_held_runs", {"patience_us": PATIENCE_US}))
    overtime, unstoppable, late_run, deaf_run = held
    since = (now // HOUR - 1) * HOUR
    ended = {state: int(n) for state, n in tx.rows("measure_ended_runs", {"since": since})}
    failed = sum(ended.get(state, 0) for state in ("FAILED", "TIMEOUT"))
    total = failed + ended.get("COMPLETED", 0)
    late = int(one(tx.rows("measure_sla_breaches", {"since": now // DAY * DAY}))[0])
    found = [
        Measurement(metric="overtime_runs", value=float(overtime), fix=restart_run(late_run)),
        Measurement(metric="unstoppable_runs", value=float(unstoppable), fix=restart_run(deaf_run)),
        Measurement(metric="sla_breaches_today", value=float(late)),
    ]
    if total >= RUNS_MIN:
        facts = {"runs": total, "failed": failed, "since": iso(since)}
        found.append(Measurement(metric="failure_percent", value=100 * failed / total, facts=facts))
    return found


def _subscriptions(tx: Tx, now: Micros) -> list[Measurement]:
    since = (now // HOUR - 1) * HOUR
    found = []
    rows = tx.rows("measure_subscriptions", {"since": since})
    for subscription, name, customer, acked, nacked, oldest in rows:
        values: dict[str, float] = {}
        facts = {}
        total = int(acked or 0) + int(nacked or 0)
        if total >= RUNS_MIN:
            values["nack_percent"] = 100 * int(nacked or 0) / total
            facts = {"deliveries": total, "nacked": int(nacked or 0), "since": iso(since)}
        if oldest is not None:
            values["unacked_minutes"] = max(0.0, (now - oldest) / MINUTE)
        found += [
            Measurement(
                metric=metric, value=value, subject_kind="subscription", subject=subscription,
                name=name, customer_key=CustomerKey(customer) if customer else None, facts=facts,
            )
            for metric, value in values.items()
        ]  # fmt: skip
    return found


def _system(tx: Tx, now: Micros) -> list[Measurement]:
    waiting, oldest = outbox_count(tx)
    found = []
    if oldest is not None:
        age = (now - oldest) / MINUTE
        found.append(Measurement(metric="outbox_age_minutes", value=age, facts={"count": waiting}))
    granted = one(tx.rows("measure_overrides", {"since": now - DAY, "bound": BOUND}))[0]
    found.append(Measurement(metric="overrides_per_day", value=float(granted)))
    quotas = tx.rows("measure_quota_errors", {"window_us": RECENT_US, "bound": 100})
    found += [
        Measurement(
            metric="quota_errors", value=1.0, subject_kind="limit", subject=limit_id, name=name,
            customer_key=CustomerKey(customer) if customer else None,
            facts={"total": int(errors), "ago": format_duration((now - at) // SECOND * SECOND)},
            fix=None if customer else lower_limit(name, capacity, learned, rate),
        )
        for limit_id, name, customer, errors, at, capacity, learned, rate in quotas
    ]  # fmt: skip
    _, newest = one(tx.rows("newest_times"))
    lead = max(0, int(newest) - now) / SECOND
    found.append(Measurement(metric="clock_lead_seconds", value=lead))
    return found
