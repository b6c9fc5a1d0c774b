"""Configs, their fires, audit rows and pauses as the API and the command line show them."""

from __future__ import annotations

from typing import Any

from penstock.core.clock import MINUTE, SECOND, iso
from penstock.core.formatting import id_or_none, iso_or_none, parsed
from penstock.core.ids import encode
from penstock.core.redact import redact
from penstock.runs.store.admission import Pause
from penstock.schedules.preview import Occurrence
from penstock.schedules.rows import Config
from penstock.schedules.store.configs import AuditRow
from penstock.schedules.store.schedule import LedgerEntry


def config_shape(config: Config) -> dict[str, Any]:
    """Return the JSON form of a config."""
    return {
        "config_id": encode("cfg", config.config_id),
        "customer_id": config.customer_id,
        "pipeline_template": config.pipeline,
        "provider": config.provider,
        "domain": config.domain,
        "schedule_type": config.schedule_type,
        "schedule_cron": config.schedule_cron,
        "schedule_interval_minutes": config.interval_us / MINUTE if config.interval_us else None,
        "timezone": config.timezone,
        "event_topic": config.event_topic,
        "event_filter": config.event_filter,
        "parameters": redact(parsed(config.parameters)),
        "retry_config": parsed(config.retry),
        "priority": config.priority,
        "max_execution_duration_minutes": config.max_execution_us / MINUTE,
        "sla_breach_threshold_minutes": config.sla_us / MINUTE,
        "catch_up": config.catch_up,
        "catch_up_window_minutes": config.catch_up_window_us / MINUTE,
        "overlap": config.overlap,
        "jitter_seconds": config.jitter_us / SECOND,
        "is_active": config.is_active,
        "inactive_reason": config.inactive_reason,
        "is_paused": bool(config.is_paused),
        "version": config.version,
        "next_run_time": iso_or_none(config.next_run_time),
        "last_run_time": iso_or_none(config.last_run_time),
        "last_run_status": config.last_run_status,
        "consecutive_failures": config.consecutive_failures,
        "created_at": iso(config.created_at),
        "created_by": config.created_by,
        "updated_at": iso(config.updated_at),
    }


def occurrence_shape(fire: Occurrence) -> dict[str, Any]:
    """Return the JSON form of a future occurrence."""
    return {
        "at": iso(fire.at),
        "local": fire.local,
        "utc_offset": fire.utc_offset,
        "note": fire.note,
    }


def audit_shape(row: AuditRow) -> dict[str, Any]:
    """Return the JSON form of an entry in a customer's audit chain."""
    return {
        "n": row.n,
        "at": iso(row.at),
        "action": row.action,
        "config_id": id_or_none("cfg", row.config_id),
        "changed_by": row.actor,
        "change_reason": row.reason,
        "old_values": redact(parsed(row.old_values)),
        "new_values": redact(parsed(row.new_values)),
        "previous": row.previous,
        "hash": row.hash,
    }


def ledger_shape(entry: LedgerEntry) -> dict[str, Any]:
    """Return the JSON form of occurrences that did not start."""
    return {
        "slot_from": iso(entry.slot_from),
        "slot_to": iso(entry.slot_to),
        "slots": entry.occurrences,
        "outcome": entry.outcome,
        "at": iso(entry.at),
    }


def pause_shape(pause: Pause) -> dict[str, Any]:
    """Return the JSON form of a pause."""
    named = pause.customer_id if pause.scope == "customer" else pause.pipeline
    subject = encode("cfg", pause.subject) if pause.scope == "config" else named
    return {
        "scope": pause.scope,
        "subject": subject,
        "paused_at": iso(pause.paused_at),
        "paused_by": pause.paused_by,
        "reason": pause.reason,
    }
