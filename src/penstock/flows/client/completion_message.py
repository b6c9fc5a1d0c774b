"""Conversion of completion messages, which use the source design's field names, to reports.

The API, the command line and bound subscriptions share this mapping. Fields without a counterpart
in the report (checks, completeness, the source) are kept in its metadata, with secrets masked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.core.errors import InvalidInput
from penstock.core.redact import redact
from penstock.flows.client.requests import ProcessorReport

METADATA_FIELDS: Final = ("trigger_source", "completeness", "dependencies_met", "dependency_checks")


def report_of(message: Mapping[str, Any]) -> ProcessorReport:
    """Convert a completion message to a report; `game_date` is an alias of `partition`."""
    given = {name: value for name, value in message.items() if value is not None}
    partition, other = given.get("partition"), given.get("game_date")
    if partition is not None and other not in (None, partition):
        raise InvalidInput("game_date", "the same value as partition, or no value", other)
    partition = other if partition is None else partition
    if partition is None:
        raise InvalidInput("partition", "the partition that was processed", None)
    done = given.get("completeness") or {}
    more = {name: given[name] for name in METADATA_FIELDS if given.get(name) not in (None, [], {})}
    metadata = redact({**(given.get("metadata") or {}), **more})
    return ProcessorReport(
        pipeline=given["pipeline_template"],
        processor=given["processor_name"],
        partition=partition,
        customer=given.get("customer_id"),
        phase=given.get("phase"),
        mode=given.get("processing_mode"),
        status=given.get("status", "success"),
        execution_id=given.get("execution_id"),
        correlation_id=given.get("correlation_id"),
        records=given.get("records_processed", done.get("total_processed")),
        quality=done.get("quality_score"),
        entities=given.get("entities_changed"),
        metadata=metadata or None,
    )
