"""Measurements of deliveries over time: failures, permissions, growth of backlogs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.alerts.fixes import (
    replay_deliveries,
    replay_runs,
    resume_deliveries,
)
from penstock.alerts.measures import Measurement
from penstock.core.clock import HOUR, MINUTE, Micros
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx

SAMPLE_EVERY: Final = 5 * MINUTE
SAMPLES_KEPT: Final = 2 * HOUR
BACKLOG_MIN: Final = 10
"""Backlog size below which growth is not measured."""
BACKLOG_BOUND: Final = 10_000
RECENT_US: Final = 10 * MINUTE
BOUND: Final = 2_000
PERMISSION_ERRORS: Final = (
    "AUTHENTICATION_FAILED", "AUTHORIZATION_FAILED", "PERMISSION_DENIED", "PermissionDenied",
    "PermissionError", "Forbidden", "Unauthenticated", "Unauthorized",
)  # fmt: skip
"""Error types that retries cannot fix, because a permission is missing."""


def measure_deliveries(tx: Tx, now: Micros) -> list[Measurement]:
    """Measure failed deliveries, missing permissions and growth of backlogs."""
    return [*_failures(tx, now), *_permissions(tx, now), *_backlogs(tx, now)]


def _failures(tx: Tx, now: Micros) -> list[Measurement]:
    rows = tx.rows("measure_failed_deliveries", {"since": now - MINUTE, "bound": BOUND})
    return [
        Measurement(
            metric="failed_deliveries_per_minute", value=float(n), subject_kind="subscription",
            subject=subscription, name=name,
            customer_key=CustomerKey(customer) if customer else None, facts={"error": error},
            fix=resume_deliveries(name, owner),
        )
        for subscription, name, customer, n, error, owner in rows
    ]  # fmt: skip


def _permissions(tx: Tx, now: Micros) -> list[Measurement]:
    params = {"since": now - RECENT_US, "errors": list(PERMISSION_ERRORS), "bound": BOUND}
    return [
        Measurement(
            metric="permission_errors", value=float(n), subject_kind=kind, subject=subject,
            name=name, pipeline=pipeline, facts={"error": error},
            fix=replay_deliveries(name.removeprefix("subscription ")) if pipeline is None
            else replay_runs(pipeline, name.removeprefix(f"{pipeline}/")),
        )
        for kind, subject, name, pipeline, n, error in tx.rows("measure_permission_errors", params)
    ]  # fmt: skip


def _backlogs(tx: Tx, now: Micros) -> list[Measurement]:
    history: dict[int, list[tuple[Micros, int]]] = {}
    for subscription, at, backlog in tx.rows("backlog_samples_read", {"since": now - HOUR}):
        history.setdefault(subscription, []).append((at, int(backlog)))
    if not history:
        return []
    found = []
    for subscription, name, customer, backlog in tx.rows(
        "measure_backlogs", {"bound": BACKLOG_BOUND, "ids": sorted(history)}
    ):
        minutes = growing_minutes([*history[subscription], (now, int(backlog))])
        if minutes:
            found.append(
                Measurement(
                    metric="backlog_growth_minutes", value=minutes, subject_kind="subscription",
                    subject=subscription, name=name,
                    customer_key=CustomerKey(customer) if customer else None,
                    facts={"backlog": int(backlog)},
                )
            )  # fmt: skip
    return found


def backlogs_sample(tx: Tx) -> None:
    """Store the backlogs of subscriptions, and drop old samples."""
    tx.run("backlog_samples_add", {"bound": BACKLOG_BOUND})
    tx.run("backlog_samples_prune", {"before": tx.now() - SAMPLES_KEPT})


def growing_minutes(samples: Sequence[tuple[Micros, int]]) -> float:
    """Return for how long a backlog has grown from sample to sample; samples in order of time.

    A backlog that has reached the maximum of the count is treated as growing.
    """
    last_at, last = samples[-1]
    if last < BACKLOG_MIN:
        return 0.0
    since = last_at
    for at, backlog in reversed(samples[:-1]):
        is_bound = backlog == last == BACKLOG_BOUND
        if backlog >= last and not is_bound:
            break
        since, last = at, backlog
    return (last_at - since) / MINUTE
