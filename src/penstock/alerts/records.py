"""Records of alerts, silences, rules, channels and notices."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from penstock.core.records.record import JsonObject, Meta, Minutes, Record, Time, field, set_units

__all__ = [
    "AlertChannel",
    "AlertRule",
    "AlertSelection",
    "AlertSeverity",
    "AlertState",
    "ChangedAlerts",
    "NewSilence",
    "Notice",
    "NoticeState",
    "Notified",
    "Silence",
    "StoredAlert",
]

AlertState: TypeAlias = Literal["open", "acknowledged", "silenced", "resolved"]
AlertSeverity: TypeAlias = Literal["INFO", "MEDIUM", "HIGH", "CRITICAL"]
NoticeState: TypeAlias = Literal["waiting", "sent", "dead"]

_Name: TypeAlias = Annotated[str, Meta(max_length=200)]


class Notified(Record):
    """A notice about an alert."""

    channel: str
    """Channel that it was sent to, or waits for."""
    change: str
    """What it reports: opened, escalated, acknowledged or resolved."""
    state: NoticeState
    """waiting, sent or dead."""
    at: Time
    """Time at which it was sent; while it waits, the time of the change."""


class StoredAlert(Record):
    """A condition that needs attention."""

    alert_id: str
    """Id of the alert (`alert_…`)."""
    rule: str
    """Name of the rule that raised it."""
    severity: str
    """INFO, MEDIUM, HIGH or CRITICAL."""
    customer: str | None = field(name="customer_id")
    """Customer concerned; null if it concerns the system."""
    subject_kind: str
    """Kind of resource it is about, such as `config` or `flow`."""
    subject: str
    """Id of the resource it is about."""
    message: str
    """Description of the condition in one sentence."""
    detail: JsonObject
    """Further facts as a JSON object; may be empty."""
    state: AlertState
    """open (it fires), acknowledged (a person is handling it), silenced (it fires, but a silence
    suppresses its notices) or resolved."""
    times: int
    """Number of times the condition occurred while it was open."""
    opened_at: Time
    """Time of the first occurrence."""
    last_at: Time
    """Time of the most recent occurrence."""
    closed_at: Time | None
    """Time at which it was resolved; null until then."""
    closed_by: str | None
    """Name of the key, user or service that resolved it; null until then."""
    pipeline: str | None = field(name="pipeline_template", default=None)
    """Pipeline concerned; null if there is none."""
    values: JsonObject = field(default_factory=dict)
    """Measured values by name; empty if the rule measures nothing."""
    threshold: str | None = None
    """Limit that was exceeded, in plain language; null if there is none."""
    command: str | None = None
    """Command that shows or repairs the cause; null if there is none."""
    runbook: str | None = None
    """Section of the documentation about the rule; null if there is none."""
    acknowledged_at: Time | None = None
    """Time at which a person acknowledged it; null until then."""
    acknowledged_by: str | None = None
    """Name of the key or user that acknowledged it."""
    note: str | None = None
    """Note from the person who acknowledged or resolved it."""
    silence_id: str | None = None
    """Silence (`sil_…`) that suppresses its notices; null if there is none."""
    notified: list[Notified] = field(default_factory=list)
    """Notices about it, oldest first; empty for a key restricted to a customer."""


class AlertSelection(Record):
    """Which alerts an action applies to: ids, or all that match every given field."""

    alert_ids: Annotated[list[_Name], Meta(max_length=1_000)] | None = None
    """Ids of alerts (`alert_…`)."""
    customer: _Name | None = field(name="customer_id", default=None)
    """Only alerts of this customer."""
    pipeline: _Name | None = field(name="pipeline_template", default=None)
    """Only alerts about this pipeline."""
    rule: _Name | None = None
    """Only alerts of this rule."""
    severity: AlertSeverity | None = None
    """Only alerts of this severity."""


class ChangedAlerts(Record):
    """The outcome of an action on several alerts."""

    changed: int
    """Number of alerts that changed."""
    alerts: list[StoredAlert]
    """The first hundred of them, newest first."""


class NewSilence(Record):
    """A silence to add. While it lasts, no notices are sent about alerts that match every field."""

    reason: Annotated[str, Meta(min_length=1, max_length=500)]
    """Reason, shown with the silence."""
    alert_id: _Name | None = None
    """Only this alert, even if it is resolved and opens again."""
    customer: _Name | None = field(name="customer_id", default=None)
    """Only alerts of this customer."""
    pipeline: _Name | None = field(name="pipeline_template", default=None)
    """Only alerts about this pipeline."""
    rule: _Name | None = None
    """Only alerts of this rule."""
    severity: AlertSeverity | None = None
    """Only alerts of this severity."""
    is_for_all: bool = False
    """Confirms that the silence covers all alerts; required if no field selects alerts."""
    starts_at: Time | None = None
    """Start of the silence, for planned maintenance; now when omitted."""
    ends_at: Time | None = None
    """End of the silence; give either this or `duration`."""
    duration: Minutes | None = field(name="duration_minutes", default=None)
    """How long the silence lasts, in minutes."""

    def __post_init__(self) -> None:
        """Convert the duration from minutes."""
        set_units(self)


class Silence(Record):
    """A period during which no notices are sent about matching alerts."""

    silence_id: str
    """Id of the silence (`sil_…`)."""
    customer: str | None = field(name="customer_id")
    """Only alerts of this customer; null for all."""
    pipeline: str | None = field(name="pipeline_template")
    """Only alerts about this pipeline; null for all."""
    rule: str | None
    """Only alerts of this rule; null for all."""
    severity: str | None
    """Only alerts of this severity; null for all."""
    dedupe_key: str | None
    """Only the alert with this key; null for all."""
    reason: str
    """Why it was added."""
    starts_at: Time
    """Start of the silence."""
    ends_at: Time
    """End of the silence."""
    is_active: bool
    """Whether it applies now."""
    alerts: int
    """Number of open alerts whose notices it suppresses."""
    created_at: Time
    """Time at which it was added."""
    created_by: str
    """Name of the key, user or maintenance window that added it."""
    ended_by: str | None
    """Name of the key or user that ended it early; null otherwise."""


class AlertRule(Record):
    """A rule that opens alerts."""

    rule: str
    """Name of the rule."""
    condition: str
    """Condition that opens an alert, in plain language."""
    severities: list[str]
    """Severities that its alerts can have, lowest first."""
    source: str
    """`built in`, `settings` (its thresholds or the whole rule) or `event` (the code that detects
    the condition opens the alert)."""
    state: str
    """firing, ok or disabled."""
    open_alerts: int
    """Number of its alerts that are not resolved."""
    last_fired_at: Time | None
    """Time at which it last opened an alert; null if it never did, or the alert was deleted."""
    fired_per_day: list[int]
    """Alerts opened in each of the last eight days, oldest first."""
    runbook: str | None
    """Section of the documentation about it; null if there is none."""


class AlertChannel(Record):
    """A channel that notices are sent to, and its health."""

    channel: str
    """Name of the channel."""
    kind: str
    """webhook, slack, discord, teams, pagerduty, opsgenie, email or apprise."""
    target: str
    """Server or address that it sends to, with secrets removed."""
    routes: list[str]
    """Alerts that are sent to it, one sentence per route."""
    fallback: str | None
    """Channel that takes over while this one fails; null if there is none."""
    state: str
    """works, failing, unused (nothing sent yet) or undeclared (no running process declares it)."""
    last_sent_at: Time | None
    """Time of the last notice that was accepted; null if there was none."""
    last_error: str | None
    """Text of the last failure; null if there was none."""
    last_error_at: Time | None
    """Time of the last failure."""
    failing_since: Time | None
    """Time of the first failure since the last success; null while it works."""
    waiting: int
    """Number of notices that have not been sent."""
    dead: int
    """Number of abandoned notices; `penstock alerts resend` sends them again."""
    next_try_at: Time | None
    """Time of the next attempt; null if no notice is waiting."""


class Notice(Record):
    """A message to a channel."""

    notice_id: str
    """Id of the notice (`notice_…`); receivers get it as the id of the message."""
    channel: str
    """Channel that sends it."""
    origin: str | None
    """Channel that it was meant for if a fallback sends it; null otherwise."""
    change: str
    """What it reports: opened, escalated, acknowledged, resolved, recovered or test."""
    state: NoticeState
    """waiting, sent or dead."""
    attempts: int
    """Number of attempts to send it."""
    alerts: int
    """Number of alerts that it reports."""
    created_at: Time
    """Time of the change."""
    ended_at: Time | None
    """Time at which it was sent or abandoned; null while it waits."""
    last_error: str | None
    """Text of the last failure; null if there was none."""
