"""Measurements for the rules of alerts: bounded reads of hot tables and folded counters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

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
ORIGIN_BOUND: Final = 100
"""Dead letters of an origin that are counted, in addition to recent ones."""
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


class _Origin(NamedTuple):
    """Open dead letters of a subscription or processor."""

    subscription: int | None
    processor: int | None
    total: int
    """At most ORIGIN_BOUND, unless more are recent."""
    oldest_at: Micros
    recent: int
    customers: set[int]


def _dead_letters(tx: Tx, now: Micros) -> list[Measurement]:
    origins = _origins(tx, now)
    if not origins:
        return []
    params = {"since": now - RECENT_US, "bound": BOUND}
    resolved = {
        (row[0], row[1]): int(row[2]) for row in tx.rows("measure_resolved_dead_letters", params)
    }
    subscriptions = sorted(
        {origin.subscription for origin in origins if origin.subscription is not None}
    )
    names: dict[int, str] = dict(tx.rows("measure_subscription_names", {"ids": subscriptions}))
    processors = sorted({origin.processor for origin in origins if origin.processor is not None})
    owners = {
        key: (pipeline, name)
        for key, pipeline, name in tx.rows("measure_names", {"ids": processors})
    }
    found = []
    for origin in origins:
        pipeline, name = owners.get(origin.processor, (None, "unknown"))
        shown = f"{pipeline}/{name}"
        if origin.subscription is not None:
            shown = f"subscription {names.get(origin.subscription)}"
        gone = resolved.get((origin.subscription, origin.processor), 0)
        more = "at least " if origin.total >= ORIGIN_BOUND else ""
        sizes = {"count": origin.total, "recent": origin.recent, "more": more}
        metrics: list[tuple[str, float, dict[str, Any]]] = [
            ("dead_letter_age_minutes", (now - origin.oldest_at) / MINUTE, sizes),
            ("recent_dead_letters", float(origin.recent), sizes),
        ]
        if origin.recent > gone:
            growth = {"died": origin.recent, "resolved": gone}
            metrics.append(("dead_letter_growth", float(origin.recent - gone), growth))
        customer = min(origin.customers) if len(origin.customers) == 1 else 0
        found += [
            Measurement(
                metric=metric,
                value=value,
                subject_kind="processor" if origin.subscription is None else "subscription",
                subject=origin.subscription or origin.processor or 0,
                name=shown,
                customer_key=CustomerKey(customer) if customer else None,
                pipeline=pipeline,
                facts=facts,
                fix=replay_origin(names.get(origin.subscription or 0), pipeline, name),
            )
            for metric, value, facts in metrics
        ]
    return found


def _origins(tx: Tx, now: Micros) -> list[_Origin]:
    """Return the origins of open dead letters."""
    found = []
    params = {"since": now - RECENT_US, "bound": ORIGIN_BOUND, "recent_bound": BOUND}
    for subscription, processor, *sums in tx.rows("measure_dead_letters", params):
        (count, oldest_at, low, high), (recent, _, *newer) = (json.loads(text) for text in sums)
        if count:
            customers = {key for key in (low, high, *newer) if key is not None}
            total = max(count, recent)
            found.append(_Origin(subscription, processor, total, oldest_at, recent, customers))
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
    today = {"since": now // DAY * DAY, "bound": BOUND}
    late = int(one(tx.rows("measure_sla_breaches", today))[0])
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
