"""The setting `alerts`: channels, routes, rules, maintenance windows and a heartbeat.

Pure. Secrets are named (`url_secret = "slack_oncall"`), never written here: a process resolves them
when it sends. An address that is itself a credential, such as the webhook of a chat service, can
only be named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Literal, TypeAlias

from penstock.alerts.records import AlertSeverity
from penstock.core.clock import MINUTE, SECOND, Micros, parse_duration
from penstock.core.errors import InvalidInput, SettingsError
from penstock.core.records.record import Meta, Record, field
from penstock.core.records.validation import convert_input
from penstock.core.redact import REFERENCE_NAME
from penstock.egress.policy import STRICT, EgressRules, parse_target
from penstock.schedules.cadence import cron

ChannelKind: TypeAlias = Literal[
    "webhook", "slack", "discord", "teams", "pagerduty", "opsgenie", "email", "apprise"
]
NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "webhook": ("signing_secret",),
    "slack": ("url_secret",),
    "discord": ("url_secret",),
    "teams": ("url_secret",),
    "pagerduty": ("token_secret",),
    "opsgenie": ("token_secret",),
    "email": ("host", "sender", "to"),
    "apprise": ("url_secret",),
}
"""Fields that a channel of each kind requires."""
PER_ALERT: Final = frozenset({"pagerduty", "opsgenie"})
"""Kinds whose receiver keeps an incident per alert; the others get one message per rule."""
CHANGES: Final = ("opened", "escalated", "acknowledged", "resolved")
WINDOW_MAX: Final = 366 * 24 * 60 * MINUTE

_Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=2_000)]


class ChannelSpec(Record):
    """A channel of the settings."""

    kind: ChannelKind
    url: _Text | None = None
    url_secret: _Text | None = None
    token_secret: _Text | None = None
    signing_secret: _Text | None = None
    host: _Text | None = None
    port: Annotated[int, Meta(ge=1, le=65_535)] | None = None
    user: _Text | None = None
    password_secret: _Text | None = None
    tls: Literal["starttls", "tls", "none"] = "starttls"
    sender: _Text | None = field(name="from", default=None)
    to: list[_Text] = field(default_factory=list)
    fallback: _Text | None = None
    changes: list[Literal["opened", "escalated", "acknowledged", "resolved"]] = field(
        default_factory=lambda: list(CHANGES)
    )


class RouteSpec(Record):
    """A route of the settings: alerts that match every given field go to its channels."""

    channels: Annotated[list[_Text], Meta(min_length=1)]
    severity: list[AlertSeverity] | None = None
    rule: list[_Text] | None = None
    customer: list[_Text] | None = None
    pipeline: list[_Text] | None = None

    def matches(self, severity: str, rule: str, customer: str | None, pipeline: str | None) -> bool:
        """Return whether an alert takes this route; names may contain `*` and `?`."""
        return (
            (self.severity is None or severity in self.severity)
            and _fits(self.rule, rule)
            and _fits(self.customer, customer)
            and _fits(self.pipeline, pipeline)
        )

    def words(self) -> str:
        """Describe the alerts that take this route."""
        parts = [
            f"{name} {', '.join(values)}"
            for name, values in (
                ("severity", self.severity),
                ("rule", self.rule),
                ("customer", self.customer),
                ("pipeline", self.pipeline),
            )
            if values is not None
        ]
        return "; ".join(parts) or "all alerts"


class RuleSpec(Record):
    """A change to a built-in rule, or a user-defined rule (if `metric` is given)."""

    enabled: bool = True
    metric: _Text | None = None
    info: float | None = None
    medium: float | None = None
    high: float | None = None
    critical: float | None = None
    hold: _Text | None = field(name="for", default=None)
    message: _Text | None = None
    command: _Text | None = None

    def thresholds(self) -> dict[str, float]:
        """Return the thresholds that are given, by severity."""
        given = {
            "INFO": self.info,
            "MEDIUM": self.medium,
            "HIGH": self.high,
            "CRITICAL": self.critical,
        }
        return {severity: value for severity, value in given.items() if value is not None}

    def hold_us(self) -> Micros | None:
        """Return how long the condition must hold; None if not given."""
        return None if self.hold is None else parse_duration(self.hold, "for")


class WindowSpec(Record):
    """A recurring maintenance window: a silence whenever its schedule fires."""

    cron: _Text
    duration: _Text
    timezone: _Text = "UTC"
    reason: _Text = "planned maintenance"
    rule: _Text | None = None
    severity: AlertSeverity | None = None
    customer: _Text | None = None
    pipeline: _Text | None = None


class HeartbeatSpec(Record):
    """A URL that is requested while rules are evaluated, for an external monitor."""

    url: _Text | None = None
    url_secret: _Text | None = None
    interval: _Text = "60s"


class AlertSettings(Record):
    """The parsed and checked setting `alerts`."""

    channels: dict[str, ChannelSpec] = field(default_factory=dict)
    routes: list[RouteSpec] = field(default_factory=list)
    rules: dict[str, RuleSpec] = field(default_factory=dict)
    windows: dict[str, WindowSpec] = field(default_factory=dict)
    heartbeat: HeartbeatSpec | None = None
    interval: _Text = "15s"
    """How often the rules are evaluated."""
    group_wait: _Text = "5s"
    """How long a change waits, so that alerts with one cause share a notice."""

    def channels_for(
        self, severity: str, rule: str, customer: str | None, pipeline: str | None
    ) -> list[str]:
        """Return the channels that an alert goes to; all of them if there are no routes."""
        if not self.routes:
            return sorted(self.channels)
        found = {
            name
            for route in self.routes
            if route.matches(severity, rule, customer, pipeline)
            for name in route.channels
        }
        return sorted(found)

    def routes_to(self, channel: str) -> list[str]:
        """Describe the routes to a channel."""
        if not self.routes:
            return ["all alerts"]
        return [route.words() for route in self.routes if channel in route.channels]


def parse_alerts(table: object, rules: EgressRules = STRICT) -> AlertSettings:
    """Return the setting `alerts`; raise SettingsError that names the field."""
    try:
        made: AlertSettings = convert_input(_plain(table), AlertSettings, "alerts")
        for name, spec in made.channels.items():
            _check_channel(name, spec, made, rules)
        for number, route in enumerate(made.routes):
            for name in route.channels:
                if name not in made.channels:
                    known = ", ".join(sorted(made.channels)) or "none is declared"
                    raise InvalidInput(f"routes[{number}].channels", f"one of {known}", name)
        for name, window in made.windows.items():
            cron(window.cron, window.timezone)
            if not 0 < parse_duration(window.duration, f"windows.{name}.duration") <= WINDOW_MAX:
                raise InvalidInput(
                    f"windows.{name}.duration", "more than 0 and at most a year", window.duration
                )
        for name, rule in made.rules.items():
            rule.hold_us()
            if rule.metric is not None and not rule.thresholds():
                raise InvalidInput(
                    f"rules.{name}", "a threshold: info, medium, high or critical", "none"
                )
        if not 5 * SECOND <= parse_duration(made.interval, "interval") <= MINUTE:
            raise InvalidInput("interval", "5s to 1m", made.interval)
        if not 0 <= parse_duration(made.group_wait, "group_wait") <= MINUTE:
            raise InvalidInput("group_wait", "0s to 1m", made.group_wait)
        if made.heartbeat is not None:
            _check_heartbeat(made.heartbeat, rules)
    except InvalidInput as error:
        name = error.field.removeprefix("body").removeprefix("alerts").removeprefix(".")
        where = f"alerts.{name}" if name else "alerts"
        raise SettingsError(where, error.expected, error.got, error.fix) from None
    return made


def _check_channel(
    name: str, spec: ChannelSpec, declared: AlertSettings, rules: EgressRules
) -> None:
    path = f"channels.{name}"
    if not NAME.fullmatch(name):
        raise InvalidInput(path, "a name of lowercase letters, digits, _ and -", name)
    for wanted in NEEDED[spec.kind]:
        if not getattr(spec, wanted):
            shown = "from" if wanted == "sender" else wanted
            raise InvalidInput(f"{path}.{shown}", f"a value, for kind {spec.kind}", "nothing")
    if spec.kind == "webhook" and (spec.url is None) == (spec.url_secret is None):
        raise InvalidInput(f"{path}.url", "either url or url_secret", "both or neither")
    if spec.url is not None:
        if spec.kind in ("slack", "discord", "teams", "apprise", "email"):
            raise InvalidInput(
                f"{path}.url", f"url_secret: the address of {spec.kind} is a credential", "url"
            )
        parse_target(spec.url, rules, f"{path}.url")
    for part in ("url_secret", "token_secret", "signing_secret", "password_secret"):
        value = getattr(spec, part)
        if value is not None and not REFERENCE_NAME.fullmatch(value):
            raise InvalidInput(
                f"{path}.{part}",
                "the name of a secret, not its value",
                "other text (not shown)",
                f"Set PENSTOCK_SECRET_{name.upper().replace('-', '_')} and name it here.",
            )
    if spec.fallback is not None and (
        spec.fallback not in declared.channels or spec.fallback == name
    ):
        raise InvalidInput(f"{path}.fallback", "the name of another channel", spec.fallback)


def _check_heartbeat(spec: HeartbeatSpec, rules: EgressRules) -> None:
    if (spec.url is None) == (spec.url_secret is None):
        raise InvalidInput("heartbeat.url", "either url or url_secret", "both or neither")
    if spec.url is not None:
        parse_target(spec.url, rules, "heartbeat.url")
    if parse_duration(spec.interval, "heartbeat.interval") <= 0:
        raise InvalidInput("heartbeat.interval", "a positive duration", spec.interval)


def _fits(patterns: list[str] | None, value: str | None) -> bool:
    if patterns is None:
        return True
    return value is not None and any(fnmatchcase(value, pattern) for pattern in patterns)


def _plain(table: object) -> Any:
    """Return a table of the settings as plain JSON values."""
    if isinstance(table, Mapping):
        return {str(name): _plain(value) for name, value in table.items()}
    return [_plain(one) for one in table] if isinstance(table, list | tuple) else table
