"""Records of configs, occurrences, audit entries and pauses from the rows of the store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from penstock.access.store.names import PipelineInfo
from penstock.core.clock import Micros
from penstock.core.formatting import id_or_none, parsed
from penstock.core.ids import encode
from penstock.core.records.record import minutes, seconds, time, time_or_none
from penstock.core.redact import redact
from penstock.pipelines.partition import partition_at, partition_rule_of
from penstock.pipelines.plan import mode_and_partition
from penstock.runs.attempt_result import FAILURES_DISABLE
from penstock.runs.store.admission import PauseRow
from penstock.schedules.description import health_of_config, schedule_text
from penstock.schedules.preview import Occurrence
from penstock.schedules.records import (
    AuditEntry,
    CatchUpName,
    FutureOccurrence,
    MissedOccurrences,
    OverlapName,
    Pause,
    PauseScope,
    SchedulePreview,
    ScheduleTypeName,
    StoredConfig,
)
from penstock.schedules.rows import ConfigRow
from penstock.schedules.store.configs import AuditRow
from penstock.schedules.store.schedule import LedgerEntry


def config_record(row: ConfigRow) -> StoredConfig:
    """Return the record of a config; secrets in its parameters are redacted."""
    return StoredConfig(
        config_id=encode("cfg", row.config_id),
        customer=row.customer_id,
        pipeline=row.pipeline,
        provider=row.provider,
        domain=row.domain,
        schedule_type=cast("ScheduleTypeName", row.schedule_type),
        cron=row.schedule_cron,
        interval=minutes(row.interval_us) if row.interval_us else None,
        timezone=row.timezone,
        event_topic=row.event_topic,
        event_filter=row.event_filter,
        event_mapping=parsed(row.event_mapping),
        parameters=redact(parsed(row.parameters)),
        retry=parsed(row.retry),
        priority=row.priority,
        max_duration=minutes(row.max_execution_us) if row.max_execution_us else None,
        sla=minutes(row.sla_us),
        expires_after=None if row.expires_us is None else minutes(row.expires_us),
        catch_up=cast("CatchUpName", row.catch_up),
        catch_up_window=minutes(row.catch_up_window_us),
        overlap=cast("OverlapName", row.overlap),
        jitter=seconds(row.jitter_us),
        is_active=row.is_active,
        inactive_reason=row.inactive_reason,
        is_paused=bool(row.is_paused),
        version=row.version,
        next_run_time=time_or_none(row.next_run_time),
        last_run_time=time_or_none(row.last_run_time),
        last_run_status=row.last_run_status,
        consecutive_failures=row.consecutive_failures,
        created_at=time(row.created_at),
        created_by=row.created_by,
        updated_at=time(row.updated_at),
        schedule_text=schedule_text(row),
        outcomes=row.outcomes[::-1],
        failures_until_disabled=max(FAILURES_DISABLE - row.consecutive_failures, 0)
        if row.is_active
        else None,
        health=health_of_config(row),
    )


def preview_record(
    occurrences: Iterable[Occurrence], info: PipelineInfo | None = None, zone: str = "UTC"
) -> SchedulePreview:
    """Return the record of future occurrences; for a config, with mode and partition."""
    found = []
    for one in occurrences:
        mode, partition = (None, None) if info is None else _target(info, one.at, zone)
        found.append(
            FutureOccurrence(
                at=time(one.at),
                local=one.local,
                utc_offset=one.utc_offset,
                note=one.note,
                partition=partition,
                mode=mode,
            )
        )
    return SchedulePreview(occurrences=found)


def _target(info: PipelineInfo, at: Micros, zone: str) -> tuple[str | None, str | None]:
    """Return the mode and the partition of an occurrence."""
    if info.has_flow:
        return mode_and_partition(info.definition, at, source="scheduler", zone=zone)
    rule = partition_rule_of(info.definition)
    return None, None if rule is None else partition_at(rule, at, zone)


def audit_record(row: AuditRow) -> AuditEntry:
    """Return the record of an entry in a customer's audit chain; secrets are redacted."""
    return AuditEntry(
        n=row.n,
        at=time(row.at),
        action=row.action,
        config_id=id_or_none("cfg", row.config_id),
        changed_by=row.actor,
        reason=row.reason,
        old_values=redact(parsed(row.old_values)),
        new_values=redact(parsed(row.new_values)),
        previous=row.previous,
        hash=row.hash,
    )


def missed_record(row: LedgerEntry) -> MissedOccurrences:
    """Return the record of occurrences that did not start."""
    return MissedOccurrences(
        first=time(row.slot_from),
        last=time(row.slot_to),
        occurrences=row.occurrences,
        outcome=row.outcome,
        at=time(row.at),
    )


def pause_record(row: PauseRow) -> Pause:
    """Convert a pause row to its public record."""
    named = row.customer_id if row.scope == "customer" else row.pipeline
    return Pause(
        scope=cast("PauseScope", row.scope),
        subject=encode("cfg", row.subject) if row.scope == "config" else named,
        paused_at=time(row.paused_at),
        paused_by=row.paused_by,
        reason=row.reason,
    )
