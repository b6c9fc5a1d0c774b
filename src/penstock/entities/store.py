"""Store of changed entities: reports, watermarks, and the inputs of incremental processors.

Ending runs only append reports, so that they never contend. The transaction that starts incremental
processors takes the next number of their flows' config under a lock and assigns it to every report
that has committed: the numbers follow the commits, and a report that commits later gets a later
number. The input of a run is stored with its flow and is the same on every attempt.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from penstock.core.naming import CustomerKey, PipelineKey, ProcessorKey
from penstock.db.store import Tx
from penstock.entities.changed import (
    OUTSIDE,
    PRUNED,
    TOO_MANY_IDS,
    ChangedEntities,
    ReportFact,
    Watermark,
    ids_at_most,
    reason_at_start,
    reason_of_reports,
)
from penstock.entities.report import IDS_MAX, LISTED_MAX, EntityId, EntityReport, merged
from penstock.entities.rows import (
    ChangeReport,
    EntityChange,
    InputKey,
    InputRequest,
    InputRow,
    NewInput,
    ReportedEntities,
)


def reports_put_many(tx: Tx, reports: Sequence[ChangeReport]) -> None:
    """Record the reports of runs that ended in this transaction."""
    given = {one.run_id: one for one in reports}
    rows = tx.rows(
        "entity_change_from_runs",
        batch=[
            (one.run_id, json.dumps(one.report.counts), one.report.unknown, one.is_reported)
            for one in given.values()
        ],
    )
    _ids_put(tx, [(row[0], row[2], given[row[1]].report) for row in rows])


def report_put(
    tx: Tx,
    flow_id: int,
    processor_key: ProcessorKey,
    report: EntityReport,
    *,
    execution_id: str | None,
    is_reported: bool,
) -> None:
    """Record the report of an execution outside Penstock, or that a required report is missing."""
    rows = tx.rows(
        "entity_change_from_report",
        {
            "flow_id": flow_id,
            "processor": processor_key,
            "execution_id": execution_id,
            "counts": json.dumps(report.counts),
            "unknown": report.unknown,
            "is_reported": is_reported,
        },
    )
    _ids_put(tx, [(row[0], row[1], report) for row in rows])


def _ids_put(tx: Tx, changes: Sequence[tuple[int, int, EntityReport]]) -> None:
    batch = [
        (change_id, kind, str(one), customer, isinstance(one, int))
        for change_id, customer, report in changes
        for kind, ids in report.ids.items()
        for one in ids
    ]
    if batch:
        tx.run("entity_ids_put_many", batch=batch)


def inputs_open(tx: Tx, wanted: Sequence[InputRequest]) -> None:
    """Determine and store the inputs of incremental processors that start in this transaction."""
    if not wanted:
        return
    series = sorted({one.series for one in wanted})
    rows = tx.rows("entity_epoch_next_many", batch=series)
    epochs = {(row[0], row[1], row[2]): (int(row[3]), int(row[4])) for row in rows}
    stamps = [(*key, epochs[key][0]) for key in series]
    tx.run("entity_change_stamp_many", batch=stamps)
    marks = _watermarks(tx, wanted)
    reasons = [
        reason_at_start(mark, one.signature, epochs[one.series][1], is_rerun=one.is_rerun)
        for one, mark in zip(wanted, marks, strict=True)
    ]
    reports = _reports(tx, wanted, marks, reasons, {key: found[0] for key, found in epochs.items()})
    made = []
    for position, one in enumerate(wanted):
        reason, found = reasons[position], reports.get(position, [])
        if reason is None:
            reason = reason_of_reports(found, one.names, one.required)
        if reason is None and ids_at_most(found, one.kinds) > IDS_MAX:
            reason = _reason_of_count(tx, found, one.kinds)
        listed = [] if reason is not None else [fact.change_id for fact in found]
        made.append(
            NewInput(
                one.flow_id,
                one.processor_key,
                one.customer_key,
                one.pipeline_key,
                one.config_id,
                one.partition,
                epochs[one.series][0],
                one.signature,
                json.dumps(one.kinds),
                json.dumps(listed),
                reason,
                one.moves,
            )
        )
    tx.run("entity_input_put_many", batch=made)


def inputs_choose(tx: Tx, inputs: Sequence[NewInput]) -> None:
    """Store chosen inputs for processors that have not started in a flow, in place of the reported
    changes.
    """
    tx.run("entity_input_put_many", batch=inputs)


def _watermarks(tx: Tx, wanted: Sequence[InputRequest]) -> list[Watermark | None]:
    """Return the watermarks of processors, in order."""
    rows = tx.rows(
        "entity_watermark_get_many",
        batch=[(n, *one.series, one.processor_key, one.partition) for n, one in enumerate(wanted)],
    )
    found = {int(row[0]): Watermark(int(row[1]), row[2]) for row in rows}
    return [found.get(position) for position in range(len(wanted))]


def _reports(
    tx: Tx,
    wanted: Sequence[InputRequest],
    marks: Sequence[Watermark | None],
    reasons: Sequence[str | None],
    epochs: Mapping[tuple[int, int, int], int],
) -> dict[int, list[ReportFact]]:
    """Return the reports that processors have not received, by their position."""
    batch = [
        (position, *one.series, one.partition, mark.epoch, epochs[one.series], key)
        for position, (one, mark, reason) in enumerate(zip(wanted, marks, reasons, strict=True))
        if reason is None and mark is not None
        for key in sorted(one.names)
    ]
    if not batch:
        return {}
    most = (IDS_MAX + 1) * len({row[0] for row in batch})
    rows = tx.rows("entity_change_list", {"n": most}, batch)
    found: dict[int, list[ReportFact]] = {}
    for position, change_id, processor, counts, unknown, is_reported in rows:
        fact = ReportFact(change_id, processor, json.loads(counts), unknown, bool(is_reported))
        found.setdefault(position, []).append(fact)
    if len(rows) == most:  # truncated: every list may be incomplete
        return {row[0]: [ReportFact(0, row[7], {}, None, True)] * (IDS_MAX + 1) for row in batch}
    return found


def _reason_of_count(tx: Tx, found: Sequence[ReportFact], kinds: Sequence[str]) -> str | None:
    params = {
        "ids": [fact.change_id for fact in found],
        "kinds": list(kinds),
        "n": IDS_MAX + 1,
    }
    count = int(tx.rows("entity_count", params)[0][0])
    return TOO_MANY_IDS if count > IDS_MAX else None


def watermarks_move(tx: Tx, succeeded: Sequence[InputKey]) -> None:
    """Move the watermarks of incremental processors that succeeded in flows."""
    if succeeded:
        tx.run("entity_watermark_move_many", batch=sorted(set(succeeded)))


def changed_of(tx: Tx, keys: Iterable[InputKey]) -> dict[InputKey, ChangedEntities]:
    """Return the inputs of processors in flows; one without a stored input receives everything."""
    wanted = set(keys)
    if not wanted:
        return {}
    found = _changed(tx, [row for row in _inputs(tx, wanted) if row.key in wanted])
    return {key: found.get(key) or ChangedEntities(reason=OUTSIDE) for key in wanted}


def inputs_of_flow(tx: Tx, flow_id: int) -> dict[tuple[str, str], ChangedEntities]:
    """Return the inputs of the incremental processors of a flow, by phase and name."""
    rows = _inputs(tx, [(flow_id, 0)])
    found = _changed(tx, rows)
    return {(row.phase, row.name): found[row.key] for row in rows}


def _inputs(tx: Tx, keys: Iterable[InputKey]) -> list[InputRow]:
    flows = sorted({flow_id for flow_id, _ in keys})
    return [InputRow._make(row) for row in tx.rows("entity_input_list", {"ids": flows})]


def _changed(tx: Tx, rows: Sequence[InputRow]) -> dict[InputKey, ChangedEntities]:
    changes = {row.key: json.loads(row.changes) for row in rows}
    every = sorted({number for listed in changes.values() for number in listed})
    kept = tx.rows("entity_change_get_many", {"ids": every}) if every else []
    partitions = {int(row[0]): row[1] for row in kept}
    ids = ids_of_changes(tx, every)
    found = {}
    for row in rows:
        key = row.key
        reason, listed = row.reason, changes[key]
        if reason is None and any(number not in partitions for number in listed):
            reason = PRUNED
        if reason is not None:
            found[key] = ChangedEntities(reason=reason)
            continue
        kinds = json.loads(row.kinds)
        if row.chosen is not None:
            chosen = json.loads(row.chosen)
            found[key] = ChangedEntities(
                entities={kind: tuple(chosen.get(kind, ())) for kind in (*kinds, *chosen)}
            )
            continue
        union = merged(ids.get(number, {}) for number in listed)
        found[key] = ChangedEntities(
            entities={kind: tuple(union.get(kind, ())) for kind in kinds},
            partitions=tuple(sorted({partitions[n] for n in listed if partitions[n] is not None})),
        )
    return found


def reported_of(
    tx: Tx, keys: Iterable[InputKey], *, listed_max: int = LISTED_MAX
) -> dict[InputKey, ReportedEntities]:
    """Return the reports of processors in flows; those without a report are missing."""
    wanted = set(keys)
    if not wanted:
        return {}
    flows = sorted({flow_id for flow_id, _ in wanted})
    changes: dict[InputKey, list[tuple[int, dict[str, int], str | None]]] = {}
    for row in tx.rows("entity_change_of_flows", {"ids": flows}):
        if (row[0], row[1]) in wanted:
            found = (row[2], json.loads(row[3]), row[4])
            changes.setdefault((row[0], row[1]), []).append(found)
    counts = {key: _sums(counted for _, counted, _ in rows) for key, rows in changes.items()}
    listed = {
        key: [change_id for change_id, _, _ in rows]
        for key, rows in changes.items()
        if sum(counts[key].values()) <= listed_max
    }
    ids = ids_of_changes(tx, [number for numbers in listed.values() for number in numbers])
    return {
        key: ReportedEntities(
            counts[key],
            merged([dict.fromkeys(counts[key], ()), *(ids.get(n, {}) for n in listed[key])])
            if key in listed
            else None,
            next((unknown for _, _, unknown in rows if unknown is not None), None),
        )
        for key, rows in changes.items()
    }


def _sums(counted: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for one in counted:
        for kind, count in one.items():
            found[kind] += count
    return dict(found)


def changes_of_entity(
    tx: Tx,
    customer_key: CustomerKey,
    entity: tuple[str, str],
    *,
    partition: str | None,
    pipeline_key: PipelineKey | None,
    n: int,
) -> list[EntityChange]:
    """Return the newest reports that name an entity, given as kind and id."""
    params = {
        "customer": customer_key,
        "kind": entity[0],
        "entity": entity[1],
        "partition": partition,
        "pipeline": pipeline_key,
        "n": n,
    }
    return [EntityChange._make(row) for row in tx.rows("entity_change_of_entity", params)]


def input_rows_of_flow(tx: Tx, flow_id: int) -> list[InputRow]:
    """Return the inputs of the incremental processors of a flow, without the ids."""
    return _inputs(tx, [(flow_id, 0)])


def watermarks_of_flow(
    tx: Tx, series: tuple[int, int, int], partition: str
) -> dict[tuple[str, str], tuple[int, int]]:
    """Return (epoch, flow) of the watermarks of incremental processors, by phase and name."""
    customer, pipeline, config_id = series
    params = {
        "customer": customer,
        "pipeline": pipeline,
        "config_id": config_id,
        "partition": partition,
    }
    rows = tx.rows("entity_watermark_of_flow", params)
    return {(row[0], row[1]): (int(row[2]), int(row[3])) for row in rows}


def ids_of_changes(
    tx: Tx, changes: Sequence[int], n: int | None = None
) -> dict[int, dict[str, list[EntityId]]]:
    """Return the ids of reports by kind, at most `n` in all."""
    if not changes:
        return {}
    most = (IDS_MAX + 1) * len(changes) if n is None else n
    found: dict[int, dict[str, list[EntityId]]] = {}
    for change_id, kind, entity, is_number in tx.rows(
        "entity_ids_list", {"ids": list(changes), "n": most}
    ):
        ids = found.setdefault(change_id, {}).setdefault(kind, [])
        ids.append(int(entity) if is_number else entity)
    return found
