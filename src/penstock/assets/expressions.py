"""PromQL of alert rules, from their own declarations. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.alerts.built_in.rule import Condition, Rule
from penstock.alerts.catalog import EVENT_RULES, runbook_of
from penstock.alerts.measures import METRICS, shown_value
from penstock.alerts.rules import BUILT_IN
from penstock.assets.alert_metrics import NOT_EXPORTED, alert_metric, exported_value
from penstock.core.clock import SECOND


class PrometheusRule(NamedTuple):
    """An alerting rule for Prometheus."""

    alert: str
    expr: str
    for_seconds: int
    severity: str
    rule: str
    summary: str
    description: str
    command: str
    condition: str = ""
    """Metric that it compares, if the rule has several."""

    @property
    def runbook(self) -> str | None:
        """Section of the documentation about the rule."""
        return runbook_of(self.rule)


def alert_name(rule: str) -> str:
    """Return the name of an alert in Prometheus: `queue_age` is PenstockQueueAge."""
    return "Penstock" + "".join(part.capitalize() for part in rule.split("_"))


def measured_rules(rules: tuple[Rule, ...] = BUILT_IN) -> list[PrometheusRule]:
    """Return the rules over measurements, one for each condition.

    Alertmanager, not this module, inhibits less severe conditions of the same rule.
    """
    return [_measured(rule, one) for rule in rules for one in rule.conditions]


def event_rules() -> list[PrometheusRule]:
    """Return the rules whose alerts Penstock opens itself, one for each severity."""
    return [
        PrometheusRule(
            alert=alert_name(name),
            expr=f'max by (rule) (penstock_alerts{{rule="{name}",severity="{severity}"}}) > 0',
            for_seconds=0,
            severity=severity,
            rule=name,
            summary=rule.words,
            description=f"{rule.words[0].upper()}{rule.words[1:]}: {{{{ $value }}}} open alerts.",
            command=f"penstock alerts list --rule {name}",
        )
        for name, rule in EVENT_RULES.items()
        for severity in rule.severities
    ]


def process_rules() -> list[PrometheusRule]:
    """Return rules for conditions that only Prometheus can detect: the API itself, its errors,
    telemetry.
    """
    return [
        PrometheusRule(
            "PenstockDown", 'up{job=~"penstock.*"} == 0', 60, "CRITICAL",
            "penstock_down", "a Penstock process cannot be scraped",
            "{{ $labels.instance }} has not responded to a scrape for a minute.", "penstock doctor",
        ),
        PrometheusRule(
            "PenstockServerErrors",
            'sum(rate(penstock_http_requests_total{status=~"5.."}[5m])) / '
            "sum(rate(penstock_http_requests_total[5m])) > 0.01",
            0, "MEDIUM", "server_errors", "over 1 % of API requests fail",
            "{{ $value | humanizePercentage }} of API requests fail.", "penstock doctor",
        ),
        PrometheusRule(
            "PenstockServerErrors",
            'sum(rate(penstock_http_requests_total{status=~"5.."}[5m])) / '
            "sum(rate(penstock_http_requests_total[5m])) > 0.05",
            0, "CRITICAL", "server_errors", "over 5 % of API requests fail",
            "{{ $value | humanizePercentage }} of API requests fail.", "penstock doctor",
        ),
        PrometheusRule(
            "PenstockSlowGates",
            "histogram_quantile(0.95, sum by (le) (rate(penstock_gate_seconds_bucket[15m]))) > 30",
            300, "MEDIUM", "slow_gates", "gate checks are slow",
            "The 95th percentile of gate checks is {{ $value | humanizeDuration }}.",
            "penstock doctor",
        ),
        PrometheusRule(
            "PenstockTelemetryDropped",
            "sum by (signal) (rate(penstock_telemetry_dropped_total[10m])) > 0",
            600, "INFO", "telemetry_dropped", "telemetry is dropped",
            "{{ $value | humanize }} {{ $labels.signal }} per second are dropped.",
            "penstock doctor",
        ),
    ]  # fmt: skip


def _measured(rule: Rule, one: Condition) -> PrometheusRule:
    words = METRICS[one.metric].words
    if one.metric in NOT_EXPORTED:
        expr, hold = "penstock_up == 0", int(exported_value(one.metric, one.threshold))
        value = "no response"
    else:
        metric = alert_metric(one.metric)
        by = " by (subject)" if metric.name not in UNLABELLED else ""
        expr = f"max{by} ({metric.name}) >= {exported_value(one.metric, one.threshold):g}"
        hold, value = one.hold_us // SECOND, _value(one.metric)
    subject = "{{ with $labels.subject }} of {{ . }}{{ end }}"
    threshold = shown_value(one.metric, one.threshold)
    return PrometheusRule(
        alert=alert_name(rule.name),
        expr=expr,
        for_seconds=hold,
        severity=one.severity,
        rule=rule.name,
        summary=f"{words}: at least {threshold}",
        description=f"{words[0].upper()}{words[1:]}{subject}: {value}.",
        command=rule.command.replace("{subject}", "SUBJECT"),
        condition=one.metric if len({c.metric for c in rule.conditions}) > 1 else "",
    )


def _value(metric: str) -> str:
    unit = METRICS[metric].unit
    kind = {"minutes": "humanizeDuration", "seconds": "humanizeDuration"}.get(unit)
    kind = "humanizePercentage" if unit == "%" else kind or "humanize"
    return f"{{{{ $value | {kind} }}}}"


UNLABELLED: Final = frozenset({"penstock_sla_breaches_today"})
"""Metrics of rules that are exported without a subject."""
