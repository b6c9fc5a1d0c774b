"""Conversion of completion messages, which use the source design's field names, to reports.

The API, the command line and bound subscriptions share this mapping. A message is converted to the
record that the API takes first, so that every path checks the same types. Fields without a
counterpart in the report (checks, completeness, the source) are kept in its metadata, with secrets
masked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.core.errors import InvalidInput
from penstock.core.fields import check_json
from penstock.core.records.record import to_json_value
from penstock.core.records.validation import convert_input
from penstock.core.redact import redact
from penstock.entities.report import report_from
from penstock.flows.client.requests import ProcessorReport
from penstock.flows.records import Completeness, CompletionReport

METADATA_FIELDS: Final = ("trigger_source", "completeness", "dependencies_met", "dependency_checks")


def report_from_message(payload: Mapping[str, Any]) -> ProcessorReport:
    """Convert the data of a completion message to a report; raise InvalidInput for wrong types.

    Fields that are null count as absent, and fields that the report does not have are dropped.
    """
    given = {name: value for name, value in payload.items() if value is not None}
    return report_of(convert_input(given, CompletionReport, "data", ignores_unknown=True))


def report_of(report: CompletionReport) -> ProcessorReport:
    """Convert a completion record to a report; `game_date` is an alias of `partition`."""
    partition, other = report.partition, report.game_date
    if partition is not None and other not in (None, partition):
        raise InvalidInput("game_date", "the same value as partition, or no value", other)
    partition = other if partition is None else partition
    if partition is None:
        raise InvalidInput("partition", "the partition that was processed", None)
    given = to_json_value(report)
    more = {name: given[name] for name in METADATA_FIELDS if given.get(name) not in (None, [], {})}
    metadata = redact({**(report.metadata or {}), **more})
    check_json(metadata, "metadata")
    report_from(report.entities or {})
    done = report.completeness
    records = report.records
    if records is None and done is not None:
        records = done.total_processed
    return ProcessorReport(
        pipeline=report.pipeline,
        processor=report.processor,
        partition=partition,
        customer=report.customer,
        phase=report.phase,
        mode=report.mode,
        status=report.status,
        execution_id=report.execution_id,
        correlation_id=report.correlation_id,
        records=records,
        quality=None if done is None else done.quality_score,
        total_expected=None if done is None else done.total_expected,
        completeness_pct=None if done is None else _completeness(done, records),
        entities=report.entities,
        everything_changed=report.everything_changed,
        metadata=metadata or None,
    )


def _completeness(done: Completeness, records: int | None) -> float | None:
    """Return the completeness as reported, or the share of the expected records, at most 100."""
    if done.completeness_pct is not None:
        return done.completeness_pct
    if not done.total_expected or records is None:
        return None
    return min(records * 100 / done.total_expected, 100.0)
