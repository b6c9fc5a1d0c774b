"""Data of detections: live flows, trends, hourly executions, freshness, alerts."""

from __future__ import annotations

import json
import logging
from collections.abc import Hashable, Iterable, Sequence
from typing import Final

from penstock.audit.rows import NewAlert
from penstock.audit.store.alerts import alert_open
from penstock.core.clock import DAY, FAR_FUTURE, HOUR, MINUTE, Micros, format_duration
from penstock.core.errors import StoreError
from penstock.core.naming import CustomerKey, PipelineKey
from penstock.db.store import Tx, first
from penstock.detection.finding import LADDER_RULES, Finding, command
from penstock.detection.live_rules import (
    Wait,
    behind,
    cycles,
    is_quiet,
    shared_waits,
    stale_runs,
    stuck_and_untriggered,
    waits_of,
)
from penstock.detection.rows import (
    DependencyTrend,
    FreshnessRow,
    LiveFlow,
    LivePhase,
    SilentProducer,
    StaleRuns,
)
from penstock.detection.trend_rules import (
    LATE_AFTER,
    LATE_WINDOW,
    OPTIONAL_WINDOW,
    SILENT_DAYS_MIN,
    late_dependencies,
    missing_optionals,
    silent_producers,
    stale_tables,
)
from penstock.flows.forecast.forecast import (
    RISK_AT,
    Forecast,
    Frontier,
    History,
    forecast,
    frontier_of,
    is_safe,
)
from penstock.flows.forecast.store import history_read, weekday_of
from penstock.flows.plan import FlowPlan
from penstock.flows.store.logs import alert_resolve_many
from penstock.flows.store.plans import planned
from penstock.runs.durations import SAMPLES_MIN

log = logging.getLogger(__name__)

PAGE: Final = 2_000
FLOWS_MAX: Final = 50_000
GROUPS_MAX: Final = 200
"""Maximum number of findings per query."""
NEW_MAX: Final = 500
"""Maximum number of alerts that one pass opens; the next pass opens the rest."""
GRACE_US: Final = 2 * MINUTE
FOLD_ROWS: Final = 5_000
HOURS_KEPT: Final = 15 * DAY
DURATIONS_KEPT: Final = 8


class Plans:
    """The plans and histories of one pass, read once; a plan that cannot be read is left out."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._plans: dict[tuple[str, str], FlowPlan | None] = {}
        self._histories: dict[tuple[str, str], History] = {}
        self._weekdays: dict[tuple[str, int], int] = {}
        self.forecasts: dict[Hashable, Forecast | None] = {}
        """Forecasts relative to time 0, by their inputs to the minute, so that many flows share
        one.
        """

    def of(self, flow: LiveFlow) -> FlowPlan | None:
        """Return the plan of a flow; None if its declaration cannot be read."""
        key = (flow.digest, flow.mode)
        if key not in self._plans:
            try:
                found = planned(self._tx, flow.pipeline_key, flow.digest, flow.mode)
            except StoreError:
                raise
            except Exception:
                log.exception("the declaration of %s cannot be read", flow.pipeline)
                self._plans[key] = None
            else:
                self._plans[key] = found
        return self._plans[key]

    def known(self, flow: LiveFlow) -> FlowPlan:
        """Return the plan of a flow that has one."""
        found = self.of(flow)
        assert found is not None
        return found

    def weekday(self, flow: LiveFlow) -> int:
        """Return the weekday of a flow in its pipeline's time zone."""
        timezone = self.known(flow).timezone
        key = (timezone, flow.created_at // (15 * MINUTE))
        if key not in self._weekdays:
            self._weekdays[key] = weekday_of(flow.created_at, timezone)
        return self._weekdays[key]

    def history(self, flow: LiveFlow) -> History:
        """Return the samples of a flow's pipeline and mode."""
        key = (flow.digest, flow.mode)
        if key not in self._histories:
            self._histories[key] = history_read(self._tx, flow.pipeline_key, self.known(flow))
        return self._histories[key]


def live_findings(tx: Tx, customer: CustomerKey | None = None) -> list[Finding]:
    """Return the findings of all rules over live flows and runs."""
    now, plans = tx.now(), Plans(tx)
    flows = [flow for flow in live_flows(tx, customer) if plans.of(flow) is not None]
    waiting = behind(flows)
    found: list[Finding] = []
    waits: list[Wait] = []
    for flow in flows:
        of_flow = plans.known(flow)
        if not is_quiet(flow.phases, now):
            is_behind = flow.flow_id in waiting
            found += stuck_and_untriggered(flow, of_flow, now, is_behind=is_behind)
            waits += waits_of(flow, of_flow)
        risk = _risk(flow, of_flow, plans, now)
        if risk is not None:
            found.append(risk)
    found += shared_waits(waits, now)
    found += cycles(waits, plans.known)
    params = {"customer": customer, "grace_us": GRACE_US, "n": GROUPS_MAX}
    stale = [StaleRuns._make(row) for row in tx.rows("detect_stale_runs", params)]
    found += stale_runs(stale, now)
    return found


def live_flows(tx: Tx, customer: CustomerKey | None = None) -> list[LiveFlow]:
    """Return open flows with their phases, page by page, up to a bound."""
    found: list[LiveFlow] = []
    after = (-1, 0)
    while len(found) < FLOWS_MAX:
        params = {"customer": customer, "deadline_at": after[0], "flow_id": after[1], "n": PAGE}
        page = tx.rows("detect_flows", params)
        phases: dict[int, list[LivePhase]] = {row[0]: [] for row in page}
        if page:
            for row in tx.rows("detect_phases", {"ids": sorted(phases)}):
                phases[row[0]].append(LivePhase._make(row[1:]))
        found += [LiveFlow._make((*row, phases[row[0]])) for row in page]
        if len(page) < PAGE:
            break
        after = (page[-1][10], page[-1][0])
    return found


def _risk(flow: LiveFlow, of_flow: FlowPlan, plans: Plans, now: Micros) -> Finding | None:
    """Return the finding about a flow that will probably miss its service level or deadline."""
    slo = of_flow.mode.slo_us
    target_at = flow.deadline_at if slo is None else flow.created_at + slo
    if target_at <= now or flow.deadline_at >= FAR_FUTURE:
        return None
    history = plans.history(flow)
    if len(history.samples) < SAMPLES_MIN:
        return None
    states = {row.phase: (row.state, row.ended_at) for row in flow.phases if not row.processor}
    open_phases = frontier_of(of_flow.plan, states, flow.created_at)
    weekday = plans.weekday(flow)
    if is_safe(history, open_phases, now=now, weekday=weekday, target_at=target_at):
        return None
    # To the minute and relative to now, so that flows in the same position share a forecast.
    left = (target_at - now) // MINUTE
    since = tuple((one.phase, (now - one.ready_at) // MINUTE) for one in open_phases)
    key = (flow.digest, flow.mode, weekday, since, left)
    if key not in plans.forecasts:
        relative = [Frontier(phase, -elapsed * MINUTE) for phase, elapsed in since]
        plans.forecasts[key] = forecast(
            history, relative, now=0, weekday=weekday, target_at=left * MINUTE
        )
    seen = plans.forecasts[key]
    if seen is None or seen.miss is None or seen.miss < RISK_AT:
        return None
    names = ", ".join(one.phase for one in open_phases)
    late = format_duration(max(0, seen.p50_at - left * MINUTE))
    what = "service level" if slo is not None else "deadline"
    return Finding(
        rule="deadline_risk",
        key=str(flow.flow_id),
        severity="HIGH" if seen.miss > 0.9 else "MEDIUM",
        message=f"{flow.pipeline} {flow.partition} ({flow.mode}, {flow.customer_id}) will miss its "
        f"{what} with a probability of {seen.miss:.0%}, probably by {late}; it is in {names}",
        fix=command("explain", flow.pipeline, flow.partition, "--customer", flow.customer_id),
        threshold=f"{RISK_AT:.0%}",
        since_at=now,
        customer_key=flow.customer_key,
        customer_id=flow.customer_id,
        subject=flow.flow_id,
        pipeline=flow.pipeline,
        values={
            "probability": round(seen.miss, 3), "target_at": target_at,
            "eta_p50_at": now + seen.p50_at, "eta_p90_at": now + seen.p90_at,
            "samples": seen.samples,
        },
    )  # fmt: skip


def trend_findings(tx: Tx, customer: CustomerKey | None = None) -> list[Finding]:
    """Return the findings of all rules over recorded history."""
    now = tx.now()
    shared = {"customer": customer, "late_us": LATE_AFTER, "n": GROUPS_MAX}
    found: list[Finding] = []
    late = tx.rows(
        "detect_dependency_trends", {**shared, "kind": "same_day", "window_us": LATE_WINDOW}
    )
    found += late_dependencies([DependencyTrend._make(map(_number, row)) for row in late])
    optional = tx.rows(
        "detect_dependency_trends", {**shared, "kind": "optional", "window_us": OPTIONAL_WINDOW}
    )
    found += missing_optionals([DependencyTrend._make(map(_number, row)) for row in optional])
    params = {
        "customer": customer,
        # The newest hour that ended an hour ago, so that a completion may be a little late.
        "hour_at": now // HOUR * HOUR - 2 * HOUR,
        "days_min": SILENT_DAYS_MIN,
        "n": GROUPS_MAX,
    }
    silent = [SilentProducer._make(row) for row in tx.rows("detect_silent", params)]
    newest = {(row.customer_key, row.processor_key): row for row in reversed(silent)}
    found += silent_producers(list(newest.values()), now)
    return found


def freshness_findings(tx: Tx) -> list[Finding]:
    """Return the findings about stale tables; none in a tenant transaction."""
    return list(stale_tables(freshness_list(tx))) if tx.sees_all else []


def _number(value: object) -> object:
    """Return a sum as a whole number; PostgreSQL returns sums as decimals."""
    return value if isinstance(value, str | int) else int(str(value))


def findings_apply(
    tx: Tx, found: Iterable[Finding], rules: Sequence[str], actor: str
) -> tuple[int, int]:
    """Open an alert for each new finding, and resolve those of these rules that no longer hold.

    Returns how many were opened and resolved. An open alert is updated only if its severity
    changed.
    """
    known = {finding.dedupe_key: finding for finding in found}
    rows = tx.rows("alerts_open_of_rules", {"rules": list(rules)})
    is_open: dict[str, str] = dict(rows)
    new = [one for key, one in known.items() if is_open.get(key) != one.severity]
    for one in sorted(new, key=lambda one: one.rank)[:NEW_MAX]:
        alert_open(
            tx,
            NewAlert(
                rule=one.rule,
                dedupe_key=one.dedupe_key,
                severity=one.severity,
                customer_key=one.customer_key,
                subject_kind=one.subject_kind,
                subject=one.subject,
                pipeline=one.pipeline,
                message=one.message,
                detail={
                    "values": one.values, "threshold": one.threshold, "fix": one.fix,
                    "pipeline": one.pipeline,
                },
            ),
        )  # fmt: skip
    gone = [key for key in is_open if key not in known]
    alert_resolve_many(tx, gone, actor)
    return len(new), len(gone)


def ladder_alerts_close(tx: Tx, actor: str) -> int:
    """Resolve the alerts of fallbacks and self-heal about flows that have ended."""
    params = {"rules": list(LADDER_RULES), "actor": actor}
    return tx.run("alert_resolve_ended_flows", params)


def executions_fold(tx: Tx) -> int:
    """Add completed executions to the hourly counts, and delete old ones. Return how many were
    read.
    """
    row = first(tx.rows("counter_get", {"name": "executions_folded_to"}))
    until = tx.now() - MINUTE  # an execution that commits late is not missed
    after = int(row[0]) if row is not None else until - 8 * DAY
    params = {"after": after, "until": until, "n": FOLD_ROWS}
    rows = tx.rows("executions_since", params)
    hours: dict[tuple[int, int, int], list[int]] = {}
    for processor, customer, at, duration in rows:
        hours.setdefault((processor, customer, at // HOUR * HOUR), []).append(duration or 0)
    batch = [
        (*key, len(found), json.dumps(found[:DURATIONS_KEPT], separators=(",", ":")))
        for key, found in hours.items()
    ]
    if batch:
        tx.run("execution_hours_add", batch=batch)
    folded_to = rows[-1][2] if len(rows) == FOLD_ROWS else until
    tx.run("executions_folded", {"value": folded_to})
    tx.run("execution_hours_prune", {"before": until - HOURS_KEPT, "n": FOLD_ROWS})
    return len(rows)


def freshness_list(tx: Tx, pipeline_key: PipelineKey | None = None) -> list[FreshnessRow]:
    """Return the newest checks of freshness policies."""
    params = {"pipeline": pipeline_key, "n": 1_000}
    return [FreshnessRow._make(row) for row in tx.rows("freshness_list", params)]


def freshness_put_many(
    tx: Tx, rows: Sequence[tuple[int, str, int, int | None, str, str | None]], stale_before: Micros
) -> None:
    """Store checks of freshness policies, and delete those that have not been checked for a long
    time.
    """
    tx.run("freshness_put_many", batch=rows)
    tx.run("freshness_drop", {"before": stale_before})
