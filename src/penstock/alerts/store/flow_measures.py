"""Measurements of flows, gates, overrides and service levels, from folded hours and results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from penstock.access.store.registry import pipeline_list
from penstock.alerts.fixes import fill_history, replay_phase
from penstock.alerts.measures import LOW_QUALITY_PERCENT, Measurement
from penstock.core.clock import DAY, HOUR, MINUTE, SECOND, Micros, format_duration
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey
from penstock.core.stored_json import loads
from penstock.db.store import Tx, first
from penstock.flows.gates.rows import DecisionFilter
from penstock.flows.gates.store.gates import decision_list
from penstock.flows.gates.verdict import GateInput
from penstock.slos.objectives import LATENCY, budget_left, burn_rate
from penstock.slos.rows import Windows
from penstock.slos.store import slo_list, slo_sums

BOUND: Final = 2_000
WINDOW_US: Final = 28 * DAY
CHECKS_MIN: Final = 20
COMPLETIONS_BOUND: Final = 100_000
"""Latest completions of phases whose quality is read."""
CHECKS_BOUND: Final = 10_000
FAILED_CHECKS_MIN: Final = 5
"""Minimum number of failed history checks for which a fix is searched."""
RESULTS_MIN: Final = 10
"""Minimum number of results in six hours for a meaningful burn rate."""
CUSTOMERS_MAX: Final = 20
"""Customers of a phase that have an alert of their own about its quality."""
MEAN_MIN: Final = 3
SHOWN_US: Final = 10 * MINUTE
"""How long a missed target is shown after the flow has ended."""


def measure_flows(tx: Tx, now: Micros) -> list[Measurement]:
    """Measure flows, their data and service levels."""
    return [
        *_late(tx, now),
        *_quality(tx, now),
        *_durations(tx, now),
        *_levels(tx, now),
        *_checks(tx, now),
        *_overrides(tx, now),
    ]


def _late(tx: Tx, now: Micros) -> list[Measurement]:
    rows = tx.rows("measure_late_flows", {"since": now - SHOWN_US, "bound": BOUND})
    groups: dict[tuple[int, str], list[Any]] = {}
    for row in rows:
        groups.setdefault((row[0], row[2]), []).append(row)
    found = []
    for (pipeline_key, mode), late in sorted(groups.items()):
        first = min(late, key=lambda row: row[5])
        customers = {row[3] for row in late}
        facts = {
            "mode": mode, "partition": first[4], "flow": encode("flow", first[7]),
            "late": format_duration(max(0, (first[6] or now) - first[5]) // SECOND * SECOND),
        }  # fmt: skip
        found.append(
            Measurement(
                metric="late_flows", value=float(len(late)), subject_kind="pipeline",
                subject=pipeline_key, name=first[1], pipeline=first[1], key=mode, facts=facts,
                customer_key=CustomerKey(first[3]) if len(customers) == 1 else None,
            )
        )  # fmt: skip
    return found


def _quality(tx: Tx, now: Micros) -> list[Measurement]:
    """Measure the lowest quality of the last hour, for each phase and customer.

    If more than CUSTOMERS_MAX customers of a phase are affected, its worst one stands for all.
    """
    groups: dict[tuple[int, str], list[Any]] = {}
    params = {"since": now - HOUR, "bound": BOUND, "read_bound": COMPLETIONS_BOUND}
    for row in tx.rows("measure_quality", params):
        groups.setdefault((row[0], row[2]), []).append(row)
    found = []
    for (pipeline_key, phase), rows in sorted(groups.items()):
        affected = sum(100 * (1 - float(row[3])) >= LOW_QUALITY_PERCENT for row in rows)
        is_many = affected > CUSTOMERS_MAX
        for _, name, _, quality, partition, customer_key, customer in rows[
            : 1 if is_many else CUSTOMERS_MAX
        ]:
            facts = {
                "phase": phase, "partition": partition, "quality": f"{quality:.2f}",
                "customer": customer, "customers": affected,
                "of_many": f" for {customer}, the lowest of {affected:,} customers" if is_many
                else "",
            }  # fmt: skip
            found.append(
                Measurement(
                    metric="quality_loss_percent", value=100 * (1 - float(quality)),
                    subject_kind="pipeline", subject=pipeline_key, name=name, pipeline=name,
                    customer_key=None if is_many else CustomerKey(customer_key),
                    key=phase if is_many else f"{phase}:{customer}", facts=facts,
                )
            )  # fmt: skip
    return found


def _durations(tx: Tx, now: Micros) -> list[Measurement]:
    found = []
    rows = tx.rows("measure_durations", {"since": now - DAY, "bound": BOUND})
    for pipeline_key, name, mode, phase, n, mean in rows:
        if int(n) < MEAN_MIN:
            continue
        found.append(
            Measurement(
                metric="phase_mean_minutes" if phase else "flow_mean_minutes",
                value=float(mean) / MINUTE, subject_kind="pipeline", subject=pipeline_key,
                name=name, pipeline=name, key=f"{mode}:{phase}",
                facts={"phase": phase, "mode": mode, "results": int(n)},
            )
        )  # fmt: skip
    return found


def _levels(tx: Tx, now: Micros) -> list[Measurement]:
    wanted = {"pipeline": None, "mode": None, "phase": None, "measure": None, "customer": 0}
    rows = slo_list(tx, wanted, ("", "", "", ""), BOUND)
    if not rows:
        return []
    keys = sorted({row.pipeline_key for row in rows})
    sums = slo_sums(tx, keys, 0, now - WINDOW_US, now)
    day = slo_sums(tx, keys, 0, now - DAY, now)
    found: list[Measurement] = []
    for row in rows:
        place = (row.pipeline_key, row.mode, row.phase, row.measure)
        windows = sums.get(place, Windows())
        level = " ".join(part for part in (row.mode, row.phase, row.measure) if part)
        common: dict[str, Any] = {
            "subject_kind": "pipeline", "subject": row.pipeline_key, "name": row.pipeline,
            "pipeline": row.pipeline, "key": level,
        }  # fmt: skip
        if row.measure == "duplicate_triggers":
            found += _duplicates(tx, now, day.get(place, Windows()), common)
        elif row.measure == "cascade":
            found += _cascade(day.get(place, Windows()), common)
        if row.measure in (LATENCY, "completeness", "quality", "failures", "sla"):
            found += _budget(windows, row.objective, common, level)
    return found


def _budget(
    windows: Windows, objective: float, common: Mapping[str, Any], level: str
) -> list[Measurement]:
    found = []
    slow, fast = windows.slow, windows.fast
    if slow.total >= RESULTS_MIN:
        rates = [burn_rate(one, objective) or 0.0 for one in (slow, fast)]
        facts = {"level": level, "missed": slow.bad, "results": slow.total}
        found.append(Measurement(metric="burn_rate", value=min(rates), **common, facts=facts))
    whole = windows.whole
    left = budget_left(whole, objective)
    if left is not None and whole.total >= 2 * RESULTS_MIN:
        facts = {"level": level, "missed": whole.bad, "results": whole.total}
        spent = 100 * (1 - left)
        found.append(Measurement(metric="budget_spent_percent", value=spent, **common, facts=facts))
    return found


def _duplicates(
    tx: Tx, now: Micros, windows: Windows, common: Mapping[str, Any]
) -> list[Measurement]:
    bad = windows.whole.bad
    if not bad:
        return []
    params = {"pipeline": common["subject"], "since": now - DAY, "bound": BOUND}
    row = first(tx.rows("measure_repeated_phase", params))
    fix = None if row is None else replay_phase(common["name"], row[1], row[2], row[0])
    facts = {"flows": windows.whole.total}
    return [
        Measurement(metric="duplicate_triggers", value=float(bad), **common, facts=facts, fix=fix)
    ]


def _cascade(windows: Windows, common: Mapping[str, Any]) -> list[Measurement]:
    whole = windows.whole
    if whole.total < CHECKS_MIN:
        return []
    value = 100 * whole.bad / whole.total
    facts = {"results": whole.total, "missed": whole.bad}
    return [Measurement(metric="cascade_miss_percent", value=value, **common, facts=facts)]


def _checks(tx: Tx, now: Micros) -> list[Measurement]:
    found = []
    for pipeline_key, name, table, n in tx.rows(
        "measure_failing_tables", {"since": now - 7 * DAY, "bound": BOUND}
    ):
        found.append(
            Measurement(
                metric="dependency_failures_per_week", value=float(n), subject_kind="pipeline",
                subject=pipeline_key, name=name, pipeline=name, key=table, facts={"table": table},
            )
        )  # fmt: skip
    rows = tx.rows("measure_historical_checks", {"since": now - 6 * HOUR, "bound": CHECKS_BOUND})
    for pipeline_key, name, checks, failures in rows:
        common: dict[str, Any] = {
            "subject_kind": "pipeline", "subject": pipeline_key, "name": name, "pipeline": name,
            "facts": {"checks": int(checks), "failures": int(failures)},
            "fix": _history_fix(tx, now, pipeline_key, name) if failures >= FAILED_CHECKS_MIN
            else None,
        }  # fmt: skip
        found.append(Measurement(metric="historical_failures", value=float(failures), **common))
        if checks >= CHECKS_MIN:
            share = 100 * int(failures) / int(checks)
            found.append(Measurement(metric="historical_failure_percent", value=share, **common))
    return found


def _history_fix(tx: Tx, now: Micros, pipeline_key: int, pipeline: str) -> str | None:
    """Return the command that fills the days that the newest failed history check found missing."""
    params = {"pipeline": pipeline_key, "since": now - 6 * HOUR}
    row = first(tx.rows("measure_failed_history", params))
    if row is None:
        return None
    customer, flow_id, phase, table = row
    wanted = DecisionFilter(pipeline=pipeline_key, flow_id=flow_id, phase=phase, limit=1)
    days: tuple[str, ...] = ()
    for decision in decision_list(tx, wanted):
        given = loads(GateInput, decision.input)
        days = next((one.days_missing for one in given.assessments if one.table == table), ())
    return fill_history(pipeline, customer, days, _producer(tx, table, pipeline) if days else None)


def _producer(tx: Tx, table: str, preferred: str) -> tuple[str, str] | None:
    """Return the pipeline and the phase that produce a table; those of one pipeline come first."""
    found = [
        (name, str(phase["name"]))
        for _, name, _, definition, *_ in pipeline_list(tx)
        for phase in json.loads(definition)["phases"]
        for processor in phase["processors"]
        if table in processor.get("produces", ())
    ]
    return min(found, key=lambda one: one[0] != preferred, default=None)


def _overrides(tx: Tx, now: Micros) -> list[Measurement]:
    days: dict[tuple[int, str, str], set[int]] = {}
    rows = tx.rows("measure_override_days", {"since": now - 3 * DAY, "bound": BOUND})
    for pipeline_key, name, processor, approved_at in rows:
        days.setdefault((pipeline_key, name, processor), set()).add((now - approved_at) // DAY)
    return [
        Measurement(
            metric="override_days", value=float(len(seen)), subject_kind="pipeline",
            subject=pipeline_key, name=f"{name}/{processor}" if processor else name, pipeline=name,
            key=processor, facts={"processor": processor},
        )
        for (pipeline_key, name, processor), seen in sorted(days.items())
        if len(seen) > 1
    ]  # fmt: skip
