"""Records of alerts from stored rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec

from penstock.alerts.catalog import runbook_of
from penstock.alerts.records import (
    AlertChannel,
    AlertState,
    Notice,
    NoticeState,
    Notified,
    Silence,
    StoredAlert,
)
from penstock.alerts.rows import UNDECLARED_US, ChannelRow, NoticeRow
from penstock.alerts.store.silences import SilenceRow
from penstock.alerts.store.states import NotifiedRow
from penstock.alerts.subjects import command_of, subject_id
from penstock.audit.rows import AlertRow
from penstock.core.formatting import id_or_none, parsed
from penstock.core.ids import encode
from penstock.core.records.record import time, time_or_none
from penstock.core.redact import redact


def alert_record(row: AlertRow, notified: Sequence[NotifiedRow] = ()) -> StoredAlert:
    """Convert an alert row to its public record."""
    detail = redact(parsed(row.detail))
    subject = subject_id(row.subject_kind, row.subject)
    values = detail.get("values")
    threshold = detail.get("threshold")
    return StoredAlert(
        alert_id=encode("alert", row.alert_id),
        rule=row.rule,
        severity=row.severity,
        customer=row.customer_id,
        subject_kind=row.subject_kind,
        subject=subject,
        message=row.message,
        detail=detail,
        state=cast("AlertState", row.shown_state),
        times=row.times,
        opened_at=time(row.opened_at),
        last_at=time(row.last_at),
        closed_at=time_or_none(row.closed_at),
        closed_by=row.closed_by,
        pipeline=row.pipeline,
        values=values if isinstance(values, dict) else {},
        threshold=threshold if isinstance(threshold, str) else None,
        command=command_of(row.subject_kind, subject, detail),
        runbook=runbook_of(row.rule),
        acknowledged_at=time_or_none(row.acknowledged_at),
        acknowledged_by=row.acknowledged_by,
        note=row.note,
        silence_id=id_or_none("sil", row.silence) if row.state == "open" else None,
        notified=[
            Notified(
                channel=one.channel,
                change=one.kind,
                state=cast("NoticeState", one.state),
                at=time(one.at),
            )
            for one in notified
        ],
    )


def silence_record(row: SilenceRow) -> Silence:
    """Convert a silence row to its public record."""
    return Silence(
        silence_id=encode("sil", row.silence_id),
        customer=row.customer_id,
        pipeline=row.pipeline,
        rule=row.rule,
        severity=row.severity,
        dedupe_key=row.dedupe_key,
        reason=row.reason,
        starts_at=time(row.starts_at),
        ends_at=time(row.ends_at),
        is_active=row.is_active,
        alerts=row.alerts,
        created_at=time(row.created_at),
        created_by=row.created_by,
        ended_by=row.ended_by,
    )


def channel_record(row: ChannelRow) -> AlertChannel:
    """Convert a channel row to its public record."""
    if row.declared_at < row.now - UNDECLARED_US:
        state = "undeclared"
    elif row.failures:
        state = "failing"
    else:
        state = "unused" if row.last_sent_at is None else "works"
    return AlertChannel(
        channel=row.name,
        kind=row.kind,
        target=row.target,
        routes=msgspec.json.decode(row.routes, type=list[str]),
        fallback=row.fallback,
        state=state,
        last_sent_at=time_or_none(row.last_sent_at),
        last_error=row.last_error,
        last_error_at=time_or_none(row.last_error_at),
        failing_since=time_or_none(row.failing_since),
        waiting=int(row.waiting),
        dead=int(row.dead),
        next_try_at=time(max(row.next_try_at, row.now)) if row.waiting else None,
    )


def notice_record(row: NoticeRow) -> Notice:
    """Convert a notice row to its public record."""
    return Notice(
        notice_id=encode("notice", row.notice_id),
        channel=row.channel,
        origin=row.origin,
        change=row.kind,
        state=cast("NoticeState", row.state),
        attempts=row.attempts,
        alerts=int(row.alerts),
        created_at=time(row.created_at),
        ended_at=time_or_none(row.ended_at),
        last_error=row.last_error,
    )
