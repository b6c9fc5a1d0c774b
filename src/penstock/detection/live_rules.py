"""Rules over live flows that are stuck, untriggered, stalled or wait for the same data. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.core.clock import HOUR, MINUTE, Micros, format_duration
from penstock.core.ids import encode
from penstock.detection.finding import Finding, command
from penstock.detection.rows import LiveFlow, LivePhase, StaleRuns
from penstock.flows.ladder.rungs import HEAL_EVERY, OVERDUE
from penstock.flows.phases import PhaseState
from penstock.flows.plan import FlowPlan
from penstock.pipelines.cycles import cycle_of, deadlocked
from penstock.pipelines.dependency import DependencyKind

UNTRIGGERED_AFTER: Final = 5 * MINUTE
STUCK_DEFAULT: Final = 6 * HOUR
"""How long a phase may be in progress in a mode without a service level."""
BLOCKING_AFTER: Final = 2 * HOUR
BLOCKED_MIN: Final = 2
MISSING_AFTER: Final = HOUR
MISSING_CRITICAL: Final = 2 * HOUR
STALE_CRITICAL: Final = 10
_OVER: Final = (PhaseState.COMPLETE, PhaseState.DEGRADED, PhaseState.SKIPPED)
_HELD: Final = (PhaseState.WAITING, PhaseState.BLOCKED)
PlanOf = Callable[[LiveFlow], FlowPlan]


class Wait(NamedTuple):
    """A gate that waits for a table, and since when."""

    flow: LiveFlow
    phase: str
    processors: tuple[str, ...]
    table: str
    is_same_day: bool
    since_at: Micros


def stuck_and_untriggered(
    flow: LiveFlow, of_flow: FlowPlan, now: Micros, *, is_behind: bool
) -> Iterator[Finding]:
    """Find phases that take too long or were not started, and flows that make no progress.

    is_behind: whether the flow waits for an earlier flow of its config.
    """
    rows = {row.phase: row for row in flow.phases if not row.processor}
    untriggered = False
    for phase in of_flow.plan.phases:
        row = rows.get(phase.name)
        if row is None:
            continue
        if row.state == PhaseState.IN_PROGRESS:
            limit = of_flow.mode.slo_us or STUCK_DEFAULT
            if now - row.since_at > limit:
                yield _about(
                    flow, "phase_stuck", phase.name, row.since_at, severity="CRITICAL",
                    message=f"{phase.name} has been in progress for "
                    f"{format_duration(now - row.since_at)}",
                    threshold=format_duration(limit),
                    fix=command("why", encode("flow", flow.flow_id), phase.name),
                )  # fmt: skip
        if row.state == PhaseState.PENDING and not is_behind:
            before = [rows[name] for name in phase.after if name in rows]
            if any(one.state not in _OVER for one in before):
                continue
            ready_at = max([one.ended_at or 0 for one in before] + [flow.created_at])
            if now - ready_at > UNTRIGGERED_AFTER:
                untriggered = True
                yield _about(
                    flow, "phase_untriggered", phase.name, ready_at, severity="HIGH",
                    message=f"{phase.name} could have started "
                    f"{format_duration(now - ready_at)} ago, but nothing started it",
                    threshold=format_duration(UNTRIGGERED_AFTER),
                    fix=command("trigger", flow.pipeline, flow.partition, phase.name,
                                "--customer", flow.customer_id),
                )  # fmt: skip
    if not untriggered and not is_behind:
        yield from _stalled(flow, of_flow, now)


def _stalled(flow: LiveFlow, of_flow: FlowPlan, now: Micros) -> Iterator[Finding]:
    """Find a flow in which nothing runs, nothing is planned, and self-heal did not help."""
    if any(row.state == PhaseState.IN_PROGRESS for row in flow.phases):
        return
    held = [row for row in flow.phases if row.state in _HELD]
    if not held or any(row.probe_at is not None and row.probe_at > now - OVERDUE for row in held):
        return
    since = max([row.since_at for row in held])
    limit = of_flow.mode.heals_after_us + HEAL_EVERY
    if now - since > limit:
        phase = held[0].phase
        yield _about(
            flow, "flow_stalled", phase, since, severity="HIGH",
            message=f"no progress for {format_duration(now - since)}; {phase} is "
            f"{held[0].state.lower()}, and no evaluation is planned",
            threshold=format_duration(limit),
            fix=command("gate", "recheck", flow.pipeline, flow.partition, "--customer",
                        flow.customer_id),
        )  # fmt: skip


def waits_of(flow: LiveFlow, of_flow: FlowPlan) -> Iterator[Wait]:
    """Yield the tables that the waiting and blocked gates of a flow lack."""
    for row in flow.phases:
        if row.state not in _HELD or row.gate is None:
            continue
        missing = set(json.loads(row.gate).get("missing", ()))
        for need in of_flow.needs(row.phase, row.processor) if missing else ():
            if need.dependency.table in missing:
                is_same_day = need.dependency.kind is DependencyKind.SAME_DAY
                since = row.waiting_since or row.since_at
                yield Wait(
                    flow, row.phase, need.needed_by, need.dependency.table, is_same_day, since
                )


def shared_waits(waits: Sequence[Wait], now: Micros) -> Iterator[Finding]:
    """Find tables that several processors wait for, and same-day tables that do not arrive."""
    by_table: dict[tuple[str, str], list[Wait]] = {}
    for one in waits:
        by_table.setdefault((one.flow.customer_id, one.table), []).append(one)
    for (_, table), found in sorted(by_table.items()):
        long = [one for one in found if now - one.since_at > BLOCKING_AFTER]
        names = sorted({f"{o.flow.pipeline}.{o.phase}.{p}" for o in long for p in o.processors})
        if len(names) >= BLOCKED_MIN:
            since = min(one.since_at for one in long)
            yield _missing(
                "dependency_blocking", long[0], table, since, severity="CRITICAL",
                message=f"{table} has blocked {len(names)} processors for "
                f"{format_duration(now - since)}: {', '.join(names[:5])}",
                threshold=f"{BLOCKED_MIN} processors for {format_duration(BLOCKING_AFTER)}",
                values={"processors": names, "partitions": _partitions(long)},
            )  # fmt: skip
            continue
        late = [one for one in found if one.is_same_day and now - one.since_at > MISSING_AFTER]
        if late:
            since = min(one.since_at for one in late)
            critical = now - since > MISSING_CRITICAL
            yield _missing(
                "dependency_missing", late[0], table, since,
                severity="CRITICAL" if critical else "MEDIUM",
                message=f"{table} has been missing for {format_duration(now - since)}, for "
                f"partition {', '.join(_partitions(late)[:3])}",
                threshold=format_duration(MISSING_AFTER),
                values={"partitions": _partitions(late)},
            )  # fmt: skip


def cycles(waits: Sequence[Wait], plan_of: PlanOf) -> Iterator[Finding]:
    """Find processors of any pipelines that wait for each other's tables in one partition."""
    groups: dict[tuple[str, str], list[Wait]] = {}
    for one in waits:
        groups.setdefault((one.flow.customer_id, one.flow.partition), []).append(one)
    for found in groups.values():
        wanted: dict[str, set[str]] = {}
        produced: dict[str, frozenset[str]] = {}
        for one in found:
            for name in one.processors:
                wanted.setdefault(f"{one.flow.pipeline}/{one.phase}/{name}", set()).add(one.table)
            products: Mapping[str, Any] = plan_of(one.flow).products
            produced |= {f"{one.flow.pipeline}/{key}": tables for key, tables in products.items()}
        held = deadlocked(wanted, produced)
        seen: set[frozenset[str]] = set()
        for name in sorted(held):
            cycle = cycle_of(name, wanted, produced)
            if not cycle or frozenset(cycle) in seen:
                continue
            seen.add(frozenset(cycle))
            first = next(w for w in found if f"{w.flow.pipeline}/{w.phase}" == _phase(cycle[0]))
            yield _missing(
                "gate_cycle", first, first.table, first.since_at, severity="CRITICAL",
                message=f"these processors wait for each other and can never start: "
                f"{' -> '.join(cycle)}",
                threshold="any cycle", values={"cycle": list(cycle)},
            )  # fmt: skip


def stale_runs(rows: Sequence[StaleRuns], now: Micros) -> Iterator[Finding]:
    """Find held runs whose lease or time limit has passed and that no sweeper ended."""
    for row in rows:
        yield Finding(
            rule="runs_stale",
            key=f"{row.customer_id}:{row.pipeline}",
            severity="CRITICAL" if row.runs >= STALE_CRITICAL else "HIGH",
            message=f"{row.runs} held run{'' if row.runs == 1 else 's'} of {row.pipeline} "
            f"({row.customer_id}) lapsed up to {format_duration(now - row.since_at)} ago, but no "
            "sweeper ended them: start a scheduler process, or end them",
            fix=command("runs", "cancel", "--force", "--retry", encode("run", row.run_id)),
            threshold="2m past the lease or time limit",
            since_at=row.since_at,
            customer_key=row.customer_key,
            customer_id=row.customer_id,
            subject_kind="run",
            subject=row.run_id,
            pipeline=row.pipeline,
            values={"runs": row.runs},
        )


def behind(flows: Sequence[LiveFlow]) -> set[int]:
    """Return the flows that wait for an earlier open flow of the same config."""
    first: dict[int, int] = {}
    for flow in flows:
        if flow.config_id:
            first[flow.config_id] = min(flow.flow_id, first.get(flow.config_id, flow.flow_id))
    return {
        flow.flow_id
        for flow in flows
        if flow.is_ordered and first.get(flow.config_id, flow.flow_id) < flow.flow_id
    }


def is_quiet(phases: Sequence[LivePhase], now: Micros) -> bool:
    """Return whether no rule can apply to a flow, because every phase changed recently."""
    return all(now - row.since_at <= UNTRIGGERED_AFTER for row in phases)


def _phase(name: str) -> str:
    return name.rpartition("/")[0]


def _partitions(waits: Sequence[Wait]) -> list[str]:
    return sorted({one.flow.partition for one in waits})


def _about(
    flow: LiveFlow, rule: str, phase: str, since_at: Micros, *, message: str, **more: Any
) -> Finding:
    return Finding(
        rule=rule,
        key=f"{flow.flow_id}:{phase}",
        message=f"{flow.pipeline} {flow.partition} ({flow.mode}, {flow.customer_id}): {message}",
        since_at=since_at,
        customer_key=flow.customer_key,
        customer_id=flow.customer_id,
        subject=flow.flow_id,
        pipeline=flow.pipeline,
        values={"phase": phase, "flow_id": encode("flow", flow.flow_id), "mode": flow.mode},
        **more,
    )


def _missing(
    rule: str, first: Wait, table: str, since_at: Micros, *, values: dict[str, Any], **more: Any
) -> Finding:
    flow = first.flow
    return Finding(
        rule=rule,
        key=f"{flow.customer_id}:{table}",
        since_at=since_at,
        customer_key=flow.customer_key,
        customer_id=flow.customer_id,
        subject=flow.flow_id,
        pipeline=flow.pipeline,
        values={"table": table, **values},
        fix=command("override", "grant", flow.pipeline, flow.partition, "--dependency", table,
                    "--customer", flow.customer_id, "--expires", "4h", "--reason",
                    f"{table} does not arrive"),
        **more,
    )  # fmt: skip
