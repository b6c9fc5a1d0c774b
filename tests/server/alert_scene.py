"""Alerts of a customer, a channel, and one valid call of every route about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from penstock.alerts.records import NewSilence
from penstock.alerts.store.notices import channels_declare
from penstock.audit.rows import NewAlert
from penstock.audit.store.alerts import alert_open
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey
from tests.kits.client_harness import Harness


@dataclass(frozen=True, slots=True)
class AlertThings:
    """Ids of a customer's alerts and silence, and of a notice."""

    alerts: tuple[str, ...] = ("alert_00000000",) * 4
    silence: str = "sil_00000000"
    notice: str = "notice_00000000"


def alert_things(harness: Harness, customer: str) -> AlertThings:
    """Open alerts of a customer, silence a rule, declare a channel, send a test message."""
    client = harness.client
    key = client._names.lookup_customer_key(customer)
    alerts = [_open(harness, key, f"{customer}-{number}") for number in range(4)]
    silence = client.alerts.silence(
        NewSilence(
            customer=customer, rule="unknown", duration=timedelta(hours=1), reason="maintenance"
        )
    )
    declared = [("chat", "slack", "slack (secret s)", ["all alerts"], None)]
    harness.store.write(lambda tx: channels_declare(tx, declared))
    notice = client.alerts.test_channel("chat")
    return AlertThings(tuple(alerts), silence.silence_id, notice.notice_id)


def _open(harness: Harness, customer: CustomerKey, key: str) -> str:
    alert = NewAlert(
        rule="drill", dedupe_key=key, severity="HIGH", subject_kind="system", subject=0,
        message="a drill", customer_key=customer,
        detail={"values": {"n": 3}, "threshold": "at least 2", "fix": "penstock status"},
    )  # fmt: skip
    return encode("alert", harness.store.write(lambda tx: alert_open(tx, alert)))


ALERT_CALLS: Mapping[str, Callable[[AlertThings], tuple[str, Any]]] = {
    "GET /api/v1/alerts": lambda _: ("/alerts", None),
    "GET /api/v1/alerts/{alert_id}": lambda s: (f"/alerts/{s.alerts[0]}", None),
    "POST /api/v1/alerts/{alert_id}/acknowledge": lambda s: (
        f"/alerts/{s.alerts[0]}/acknowledge",
        {"note": "mine"},
    ),
    "POST /api/v1/alerts/{alert_id}/resolve": lambda s: (f"/alerts/{s.alerts[1]}/resolve", {}),
    "POST /api/v1/alerts/acknowledge": lambda s: (
        "/alerts/acknowledge",
        {"alert_ids": [s.alerts[2]], "note": "both"},
    ),
    "POST /api/v1/alerts/resolve": lambda s: ("/alerts/resolve", {"alert_ids": [s.alerts[3]]}),
    "GET /api/v1/silences": lambda _: ("/silences", None),
    "POST /api/v1/silences": lambda s: (
        "/silences",
        {"alert_id": s.alerts[0], "duration_minutes": 30, "reason": "known"},
    ),
    "POST /api/v1/silences/{silence_id}/end": lambda s: (f"/silences/{s.silence}/end", None),
    "GET /api/v1/alert-rules": lambda _: ("/alert-rules", None),
    "GET /api/v1/alert-channels": lambda _: ("/alert-channels", None),
    "POST /api/v1/alert-channels/{channel}/test": lambda _: ("/alert-channels/chat/test", None),
    "POST /api/v1/alert-channels/{channel}/resend": lambda _: ("/alert-channels/chat/resend", None),
    "GET /api/v1/alert-notices": lambda _: ("/alert-notices", None),
    "GET /api/v1/alert-notices/{notice_id}": lambda s: (f"/alert-notices/{s.notice}", None),
}
"""A valid call of every route about alerts, in order."""

ALERT_BODIES = ("POST /api/v1/alerts/acknowledge", "POST /api/v1/alerts/resolve",
                "POST /api/v1/silences")  # fmt: skip
"""Routes whose body names an alert."""
