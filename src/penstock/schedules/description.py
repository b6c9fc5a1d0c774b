"""Conversions of a config to its API representation, to a draft and to a cadence."""

from __future__ import annotations

import json
from typing import Any

from penstock.core.clock import format_duration
from penstock.core.ids import stable_fraction
from penstock.runs.attempt_result import FAILURES_ALERT
from penstock.schedules.cadence import Cadence, CatchUp, Overlap, ScheduleType
from penstock.schedules.config_input import ConfigInput
from penstock.schedules.cron.words import cron_text
from penstock.schedules.records import ConfigHealthWord
from penstock.schedules.rows import ConfigRow


def cadence_of(config: ConfigRow) -> Cadence | None:
    """Return the cadence of a config; None for EVENT_DRIVEN."""
    if config.schedule_type == ScheduleType.EVENT_DRIVEN:
        return None
    return Cadence(
        cron=config.schedule_cron,
        timezone=config.timezone if config.schedule_cron else "UTC",
        interval_us=config.interval_us,
    )


def schedule_text(config: ConfigRow) -> str:
    """Return the schedule of a config in plain language."""
    if config.schedule_cron:
        return f"{cron_text(config.schedule_cron)}, {config.timezone}"
    if config.interval_us:
        return f"every {format_duration(config.interval_us)}"
    return f"when a message arrives on {config.event_topic}"


def health_of_config(config: ConfigRow) -> ConfigHealthWord:
    """Return the health of a config: whether it starts, and how its last runs ended."""
    if config.is_paused:
        return "paused"
    if not config.is_active:
        return "off"
    if config.consecutive_failures >= FAILURES_ALERT:
        return "failing"
    return "at_risk" if config.consecutive_failures else "well"


def describe(config: ConfigRow) -> dict[str, Any]:
    """Return a config's settings under their API names."""
    return describe_draft(as_draft(config))


def describe_draft(draft: ConfigInput) -> dict[str, Any]:
    """Return a draft's settings under their API names."""
    interval = draft.cadence.interval_us if draft.cadence else None
    return {
        "pipeline_template": draft.pipeline,
        "provider": draft.provider,
        "domain": draft.domain,
        "schedule_type": draft.schedule_type.value,
        "schedule_cron": draft.cadence.cron if draft.cadence else None,
        "schedule_interval_minutes": interval / 60_000_000 if interval else None,
        "timezone": draft.timezone,
        "event_topic": draft.event_topic,
        "event_filter": draft.event_filter,
        "event_mapping": json.loads(draft.event_mapping) if draft.event_mapping else None,
        "parameters": json.loads(draft.parameters),
        "retry_config": json.loads(draft.retry) if draft.retry else None,
        "priority": draft.priority,
        "max_execution_duration_minutes": draft.max_execution_us / 60_000_000 or None,
        "sla_breach_threshold_minutes": draft.sla_us / 60_000_000,
        "expires_after_minutes": draft.expires_us / 60_000_000 if draft.expires_us else None,
        "catch_up": draft.catch_up.value,
        "catch_up_window_minutes": draft.catch_up_window_us / 60_000_000,
        "overlap": draft.overlap.value,
        "jitter_seconds": draft.jitter_us / 1_000_000,
        "is_active": draft.is_active,
    }


def as_draft(config: ConfigRow) -> ConfigInput:
    """Return the draft that would create a stored config."""
    return ConfigInput(
        pipeline=config.pipeline,
        provider=config.provider,
        domain=config.domain,
        schedule_type=ScheduleType(config.schedule_type),
        cadence=cadence_of(config),
        timezone=config.timezone,
        event_topic=config.event_topic,
        event_filter=config.event_filter,
        event_mapping=config.event_mapping,
        parameters=config.parameters,
        retry=config.retry,
        priority=config.priority,
        max_execution_us=config.max_execution_us,
        sla_us=config.sla_us,
        expires_us=config.expires_us,
        catch_up=CatchUp(config.catch_up),
        catch_up_window_us=config.catch_up_window_us,
        overlap=Overlap(config.overlap),
        jitter_us=config.jitter_us,
        is_active=config.is_active,
    )


def offset_of(config_id: int, draft: ConfigInput) -> int:
    """Return a config's stable offset within its jitter window, in microseconds."""
    return int(stable_fraction(config_id) * draft.jitter_us)
