"""Sample data of the saas demo: customers and their configs, determined by the seed."""

from __future__ import annotations

from datetime import timedelta

from penstock.core.clock import DAY, HOUR, Micros, to_datetime
from penstock.core.ids import stable_fraction
from penstock.schedules.records import NewConfig

ZONES = (
    "America/New_York", "Europe/London", "Europe/Berlin", "Asia/Tokyo", "Australia/Sydney",
    "America/Sao_Paulo", "Asia/Kolkata", "UTC",
)  # fmt: skip
HOURLY_SHARE = 0.4
QUARTERLY_SHARE = 0.05
AUDIT_SHARE = 0.33


def customers(n: int) -> list[str]:
    """Return the ids of `n` customers."""
    return [f"customer-{number:04d}" for number in range(1, n + 1)]


def every_15_minutes(names: list[str], seed: int) -> list[str]:
    """Return the customers that report every 15 minutes; at least 8, because the scenario needs
    several.
    """
    chosen = [name for name in names if _fraction(seed, name, "report") < QUARTERLY_SHARE]
    return chosen if len(chosen) >= 8 else names[:8]


def configs(names: list[str], start: int, seed: int) -> list[NewConfig]:
    """Return every customer's configs, with the settings of the examples in the original design."""
    often = set(every_15_minutes(names, seed))
    wanted: list[NewConfig] = []
    for index, name in enumerate(names):
        wanted.append(_billing(name, seed))
        if index % 10 == 0 or _fraction(seed, name, "audit") < AUDIT_SHARE:
            wanted.append(_audit(name, start))
        if name in often:
            wanted.append(_report(name, "*/15 * * * *", "SOC2"))
        elif _fraction(seed, name, "report") < HOURLY_SHARE + QUARTERLY_SHARE:
            minute = int(60 * _fraction(seed, name, "minute"))
            wanted.append(_report(name, f"{minute} * * * *", "ISO27001"))
    return wanted


def audit_at(start: Micros) -> Micros:
    """Return the time of the security audits: the first 03:00 UTC of the simulated day."""
    at = start // DAY * DAY + 3 * HOUR
    return at if at > start else at + DAY


def _billing(name: str, seed: int) -> NewConfig:
    zone = ZONES[int(len(ZONES) * _fraction(seed, name, "zone"))]
    projects = 1 + int(4 * _fraction(seed, name, "projects"))
    return NewConfig(
        customer=name,
        pipeline="cost_billing",
        provider="GCP",
        domain="COST",
        cron="0 2 * * *",
        timezone=zone,
        parameters={
            "billing_account_id": f"{name[-4:]}00-ABCDEF-678900",
            "project_ids": [f"project-{n}" for n in range(1, projects + 1)],
            "date_range": "previous_day",
        },
        retry={"max_attempts": 3, "base_delay_minutes": 5, "backoff_multiplier": 2},
        max_duration=timedelta(minutes=60),
        sla=timedelta(minutes=30),
    )


def _audit(name: str, start: int) -> NewConfig:
    """Return a weekly config at 03:00 UTC, on a weekday within the simulated day."""
    day = to_datetime(audit_at(start))
    return NewConfig(
        customer=name,
        pipeline="security_audit",
        provider="AWS",
        domain="SECURITY",
        cron=f"0 3 * * {day.isoweekday() % 7}",
        timezone="UTC",
        parameters={
            "aws_account_id": f"12345678{name[-4:]}",
            "regions": ["us-east-1", "us-west-2", "eu-west-1"],
            "audit_services": ["iam", "s3", "ec2", "rds"],
            "compliance_framework": "CIS_AWS_FOUNDATIONS",
        },
        retry={"max_attempts": 3, "base_delay_minutes": 15, "backoff_multiplier": 1},
        max_duration=timedelta(minutes=180),
        sla=timedelta(minutes=60),
    )


def _report(name: str, cron: str, framework: str) -> NewConfig:
    return NewConfig(
        customer=name,
        pipeline="compliance_report",
        provider="AZURE",
        domain="COMPLIANCE",
        cron=cron,
        timezone="UTC",
        parameters={"framework": framework, "sections": 3},
        sla=timedelta(minutes=30),
    )


def _fraction(seed: int, name: str, what: str) -> float:
    return stable_fraction(f"{seed}/{name}/{what}")
