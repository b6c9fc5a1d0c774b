"""Use cases of alerts: with another customer's alerts, and those of the whole installation."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from penstock.alerts.records import AlertSelection, NewSilence
from penstock.client import Client
from penstock.core.ids import encode
from penstock.usage.records import NewBudget
from tests.tenancy.tenants import Things


def silence_of(**fields: Any) -> NewSilence:
    """Return a silence of an hour."""
    return NewSilence(duration=timedelta(hours=1), reason="a test", **fields)


ALERT_FOREIGN: dict[str, list[Callable[[Client, Things], Any]]] = {
    "alerts.list": [lambda c, t: c.alerts.list(customer=t.customer_id)],
    "alerts.get": [lambda c, t: c.alerts.get(encode("alert", t.alert))],
    "alerts.acknowledge": [lambda c, t: c.alerts.acknowledge(encode("alert", t.alert))],
    "alerts.resolve": [lambda c, t: c.alerts.resolve(encode("alert", t.alert))],
    "alerts.acknowledge_many": [
        lambda c, t: c.alerts.acknowledge_many(
            AlertSelection(alert_ids=[encode("alert", t.alert)])
        ),
        lambda c, t: c.alerts.acknowledge_many(AlertSelection(customer=t.customer_id)),
    ],
    "alerts.resolve_many": [
        lambda c, t: c.alerts.resolve_many(AlertSelection(alert_ids=[encode("alert", t.alert)]))
    ],
    "alerts.silence": [
        lambda c, t: c.alerts.silence(silence_of(alert_id=encode("alert", t.alert))),
        lambda c, t: c.alerts.silence(silence_of(customer=t.customer_id)),
    ],
    "alerts.end_silence": [lambda c, t: c.alerts.end_silence(encode("sil", t.silence))],
}

SINK_FORBIDDEN: dict[str, list[Callable[[Client], Any]]] = {
    "audit_sinks.status": [lambda c: c.audit_sinks.status("parquet:x")],
    "audit_sinks.reset": [lambda c: c.audit_sinks.reset("parquet:x")],
}
"""Use cases of audit sinks, which have the rows of all customers."""

ALERT_FORBIDDEN: dict[str, list[Callable[[Client], Any]]] = {
    **SINK_FORBIDDEN,
    "budgets.set": [
        lambda c: c.budgets.set(NewBudget(scope="customer", subject="acme", amount=1)),
    ],
    "budgets.lift": [lambda c: c.budgets.lift("customer", "acme")],
    "budgets.remove": [lambda c: c.budgets.remove("customer", "acme")],
    "views.customer_counts": [lambda c: c.views.customer_counts()],
    "pools.list": [lambda c: c.pools.list()],
    "pools.desired_workers": [lambda c: c.pools.desired_workers("default")],
    "alerts.rules": [lambda c: c.alerts.rules()],
    "alerts.measured": [lambda c: c.alerts.measured()],
    "alerts.channels": [lambda c: c.alerts.channels()],
    "alerts.test_channel": [lambda c: c.alerts.test_channel("chat")],
    "alerts.resend": [lambda c: c.alerts.resend("chat")],
    "alerts.notices": [lambda c: c.alerts.notices()],
    "alerts.notice": [lambda c: c.alerts.notice("notice_5m7t0c2d")],
}
