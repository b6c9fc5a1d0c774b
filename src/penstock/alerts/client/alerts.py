"""Use cases of alerts: list, acknowledge, silence, resolve; rules, channels and notices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeAlias

from penstock.access.store.paging import Cursor, PageLimit, paged
from penstock.alerts.client.channels import NEWEST, AlertChannels
from penstock.alerts.from_rows import alert_record, silence_record
from penstock.alerts.records import (
    AlertSelection,
    AlertSeverity,
    AlertState,
    ChangedAlerts,
    NewSilence,
    Silence,
    StoredAlert,
)
from penstock.alerts.severity import SEVERITIES, rank
from penstock.alerts.store.silences import SilenceDraft, silence_end, silence_get, silence_list
from penstock.alerts.store.silences import silence_put as silence_put_row
from penstock.alerts.store.states import (
    alert_acknowledge,
    alert_get,
    alert_notified,
    alert_resolve_many,
)
from penstock.audit.rows import AlertFilter, AlertRow
from penstock.audit.store.alerts import alert_list, alert_rows
from penstock.core.clock import DAY, from_datetime, request_time
from penstock.core.errors import Conflict, InvalidInput, NotFound
from penstock.core.ids import decode, decode_or_not_found
from penstock.core.records.parameters import CustomerFilter, PipelineFilter, Since
from penstock.core.records.record import InBody, Meta, Page
from penstock.db.store import Tx

__all__ = ["Alerts"]

SHOWN_MAX = 100
SELECTED_MAX = 10_000
SILENCE_MAX = 366 * DAY

StateFilter: TypeAlias = Annotated[
    AlertState | None, Meta(description="Return only alerts in this state.")
]
SeverityFilter: TypeAlias = Annotated[
    AlertSeverity | None, Meta(description="Return only alerts of this severity.")
]
RuleFilter: TypeAlias = Annotated[
    Annotated[str, Meta(max_length=200)] | None,
    Meta(description="Return only alerts of this rule."),
]
AlertOrder: TypeAlias = Annotated[
    Literal["newest", "severity"],
    Meta(description="`newest` first, or the highest `severity` and of that the newest first."),
]
AlertId: TypeAlias = Annotated[str, Meta(description="Id of the alert (`alert_…`).", max_length=64)]
SilenceId: TypeAlias = Annotated[
    str, Meta(description="Id of the silence (`sil_…`).", max_length=64)
]
Note: TypeAlias = Annotated[
    Annotated[str, Meta(max_length=500)] | None,
    Meta(description="Note for others, shown with the alert and in notices."),
]
SharedNote: TypeAlias = Annotated[
    Annotated[str, Meta(max_length=500)] | None,
    InBody("note"),
    Meta(description="Note for others, shown with the alerts and in notices."),
]
Ended: TypeAlias = Annotated[bool, Meta(description="Include silences that have ended.")]


class Alerts(AlertChannels):
    """Use cases of alerts."""

    def list(
        self,
        *,
        state: StateFilter = None,
        severity: SeverityFilter = None,
        rule: RuleFilter = None,
        customer: CustomerFilter = None,
        pipeline: PipelineFilter = None,
        since: Since = None,
        sort: AlertOrder = "newest",
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[StoredAlert]:
        """List alerts, newest or most severe first."""
        if sort not in ("newest", "severity"):
            raise InvalidInput("sort", "newest or severity", sort)
        given = {"state": state, "severity": severity, "rule": rule, "pipeline": pipeline}
        since_us = 0 if since is None else from_datetime(since)
        notified: dict[int, Any] = {}

        def read(after: Sequence[Any] | None) -> Sequence[AlertRow]:
            def body(tx: Tx) -> Sequence[AlertRow]:
                key = self._names.customer_key(tx, customer)
                wanted = AlertFilter(**given, customer_key=key, since=since_us)
                rows = _sorted_list(tx, wanted, sort, after, limit)
                if tx.sees_all:
                    notified.update(alert_notified(tx, [row.alert_id for row in rows]))
                return rows

            return self._store.read(body)

        return paged(
            self._names,
            "alerts",
            read,
            cursor=cursor,
            limit=limit,
            position=lambda row: [row.alert_id, row.severity],
            record=lambda row: alert_record(row, notified.get(row.alert_id, ())),
            filters={**given, "customer": customer, "since": since_us, "sort": sort},
        )

    def get(self, alert_id: AlertId) -> StoredAlert:
        """Return one alert."""
        return self._store.read(lambda tx: self._shown(tx, self._must(tx, alert_id)))

    def acknowledge(self, alert_id: AlertId, *, note: Note = None) -> StoredAlert:
        """Acknowledge an alert: a person is handling it. Recurrences send no more notices."""

        def body(tx: Tx) -> StoredAlert:
            row = self._must(tx, alert_id)
            if not alert_acknowledge(tx, [row.alert_id], self._actor, note):
                raise Conflict(
                    f"{alert_id} is {row.state}: only an open alert can be acknowledged."
                )
            return self._shown(tx, self._must(tx, alert_id))

        return self._store.write(body)

    def resolve(self, alert_id: AlertId, *, note: Note = None) -> StoredAlert:
        """Resolve an alert manually. A rule whose condition still holds opens it again."""

        def body(tx: Tx) -> StoredAlert:
            row = self._must(tx, alert_id)
            if not alert_resolve_many(tx, [row.alert_id], self._actor, note):
                raise Conflict(f"{alert_id} is already resolved.")
            return self._shown(tx, self._must(tx, alert_id))

        return self._store.write(body)

    def acknowledge_many(
        self, selection: AlertSelection, *, note: SharedNote = None
    ) -> ChangedAlerts:
        """Acknowledge all open alerts of a selection."""
        return self._change(
            selection, lambda tx, ids: alert_acknowledge(tx, ids, self._actor, note)
        )

    def resolve_many(self, selection: AlertSelection, *, note: SharedNote = None) -> ChangedAlerts:
        """Resolve all alerts of a selection. Rules whose condition still holds open them again."""
        return self._change(
            selection, lambda tx, ids: alert_resolve_many(tx, ids, self._actor, note)
        )

    def silence(self, silence: NewSilence) -> Silence:
        """Add a silence: no notices are sent about matching alerts until it ends.

        They stay visible as `silenced`. Those that still fire when it ends are reported then.
        """

        def body(tx: Tx) -> Silence:
            made = silence_put_row(tx, self._draft(tx, silence))
            assert made is not None
            return self._silence(tx, made)

        return self._store.write(body)

    def silences(
        self,
        *,
        with_ended: Ended = False,
        customer: CustomerFilter = None,
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> Page[Silence]:
        """List silences, newest first."""
        return paged(
            self._names,
            "silences",
            lambda after: self._store.read(
                lambda tx: silence_list(
                    tx,
                    customer_key=self._names.customer_key(tx, customer),
                    is_ended=with_ended,
                    before=after[0] if after else NEWEST,
                    limit=limit,
                )
            ),
            cursor=cursor,
            limit=limit,
            position=lambda row: [row.silence_id],
            record=silence_record,
            filters={"with_ended": with_ended, "customer": customer},
        )

    def end_silence(self, silence_id: SilenceId) -> Silence:
        """End a silence now."""

        def body(tx: Tx) -> Silence:
            number = decode_or_not_found("sil", "silence", silence_id)
            customer = self._names.customer_key(tx, None)
            if silence_get(tx, number, customer) is None:
                raise NotFound("silence", silence_id)
            if not silence_end(tx, number, self._actor):
                raise Conflict(f"{silence_id} has already ended.")
            return self._silence(tx, number)

        return self._store.write(body)

    def _change(
        self, selection: AlertSelection, act: Callable[[Tx, Sequence[int]], Sequence[int]]
    ) -> ChangedAlerts:
        def body(tx: Tx) -> ChangedAlerts:
            changed = act(tx, self._selected(tx, selection))
            shown = sorted(changed, reverse=True)[:SHOWN_MAX]
            rows = alert_rows(tx, shown) if shown else {}
            return ChangedAlerts(
                changed=len(changed), alerts=[alert_record(rows[one]) for one in shown]
            )

        return self._store.write(body)

    def _selected(self, tx: Tx, selection: AlertSelection) -> Sequence[int]:
        """Return the ids of the alerts of a selection that are not resolved."""
        if selection == AlertSelection():
            raise InvalidInput(
                "alert_ids",
                "ids, or at least one filter",
                None,
                "Name the alerts, or select by customer, pipeline, rule or severity.",
            )
        wanted = AlertFilter(
            customer_key=self._names.customer_key(tx, selection.customer),
            pipeline=selection.pipeline,
            rule=selection.rule,
            severity=selection.severity,
        )
        if selection.alert_ids is not None:
            for one in selection.alert_ids:
                self._must(tx, one)
            named = {decode("alert", one) for one in selection.alert_ids}
        found: list[int] = []
        before = NEWEST
        for state in ("open", "acknowledged", "silenced"):
            rows = alert_list(tx, replace(wanted, state=state), before=before, limit=SELECTED_MAX)
            found += [row.alert_id for row in rows]
        if selection.alert_ids is not None:
            return [one for one in found if one in named]
        return found

    def _draft(self, tx: Tx, silence: NewSilence) -> SilenceDraft:
        """Return the silence to store; check its selection and its duration."""
        customer = self._names.customer_key(tx, silence.customer)
        dedupe_key = None
        if silence.alert_id is not None:
            dedupe_key = self._must(tx, silence.alert_id).dedupe_key
        chosen = (dedupe_key, silence.customer, silence.pipeline, silence.rule, silence.severity)
        if not silence.is_for_all and not any(chosen):
            raise InvalidInput(
                "rule",
                "at least one of alert_id, customer_id, pipeline_template, rule and severity",
                None,
                "To silence every alert, set is_for_all.",
            )
        now = tx.now()
        start = now if silence.starts_at is None else request_time(silence.starts_at, "starts_at")
        if (silence.ends_at is None) == (silence.duration is None):
            raise InvalidInput("ends_at", "either ends_at or duration", "both or neither")
        if silence.ends_at is not None:
            end = request_time(silence.ends_at, "ends_at")
        else:
            assert silence.duration is not None
            end = start + round(silence.duration.total_seconds() * 1_000_000)
        if not max(start, now) < end <= now + SILENCE_MAX:
            raise InvalidInput("ends_at", "a time after the start and within a year", end)
        return SilenceDraft(
            starts_at=None if silence.starts_at is None else start,
            ends_at=end,
            reason=silence.reason,
            actor=self._actor,
            customer_key=customer,
            pipeline=silence.pipeline,
            rule=silence.rule,
            severity=silence.severity,
            dedupe_key=dedupe_key,
        )

    def _must(self, tx: Tx, alert_id: str) -> AlertRow:
        number = decode_or_not_found("alert", "alert", alert_id)
        row = alert_get(tx, number, self._names.customer_key(tx, None))
        if row is None:
            raise NotFound("alert", alert_id)
        return row

    def _shown(self, tx: Tx, row: AlertRow) -> StoredAlert:
        if not tx.sees_all:
            return alert_record(row)
        return alert_record(row, alert_notified(tx, [row.alert_id]).get(row.alert_id, ()))

    def _silence(self, tx: Tx, number: int) -> Silence:
        row = silence_get(tx, number, self._names.customer_key(tx, None))
        assert row is not None
        return silence_record(row)


def _sorted_list(
    tx: Tx, wanted: AlertFilter, sort: str, after: Sequence[Any] | None, limit: int
) -> Sequence[AlertRow]:
    """Return alerts in an order, after the position of a row: its id and its severity."""
    if sort == "newest":
        return alert_list(tx, wanted, before=after[0] if after else NEWEST, limit=limit)
    worst = rank(after[1]) if after else len(SEVERITIES) - 1
    found: list[AlertRow] = []
    for severity in SEVERITIES[worst::-1]:
        if wanted.severity in (None, severity) and len(found) < limit:
            before = after[0] if after and severity == after[1] else NEWEST
            one = replace(wanted, severity=severity)
            found += alert_list(tx, one, before=before, limit=limit - len(found))
    return found
