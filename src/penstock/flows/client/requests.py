"""Requests to open a flow, and reports of work that was done outside Penstock.

They are validated here, field by field, before anything is written; `client.flows` executes them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.access.store.names import PipelineInfo
from penstock.access.store.registry import ProcessorRow
from penstock.core.errors import InvalidInput
from penstock.core.fields import check_text, did_you_mean, parameters_json
from penstock.core.naming import DEFAULT_CUSTOMER
from penstock.entities.report import NOT_REPORTED, EntityReport, everything_report, report_from
from penstock.flows.cascade import CompletionStatus
from penstock.flows.records import FlowRequest
from penstock.pipelines.parameters import validate
from penstock.pipelines.partition import check_partition, partition_rule_of
from penstock.runs.rows import MessageOrigin
from penstock.schedules.rows import ConfigRow


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorReport:
    """A completion report as it is recorded; `flows.client.completion_message` creates it.

    execution_id distinguishes a repeated report from a second execution.
    """

    pipeline: str
    processor: str
    partition: str
    customer: str | None = None
    phase: str | None = None
    mode: str | None = None
    status: str = CompletionStatus.SUCCESS.value
    execution_id: str | None = None
    correlation_id: str | None = None
    records: int | None = None
    quality: float | None = None
    total_expected: int | None = None
    completeness_pct: float | None = None
    entities: Mapping[str, Sequence[str | int]] | None = None
    everything_changed: str | None = None
    """Why everything may have changed."""
    metadata: Mapping[str, Any] | None = None
    origin: MessageOrigin | None = None
    """Message that contained the report. The receiver sets it; the message body cannot."""


def check_request(info: PipelineInfo, wanted: FlowRequest) -> None:
    """Validate a request to open a flow, except its parameters, which depend on its config."""
    if not info.has_flow:
        where = [] if wanted.partition is None else ["--partition", wanted.partition]
        where += (
            []
            if wanted.customer in (None, DEFAULT_CUSTOMER)
            else ["--customer", str(wanted.customer)]
        )
        command = shlex.join(["penstock", "runs", "submit", info.name, *where])
        fix = f"One processor without needs has runs, not flows. Submit a run: {command}"
        raise InvalidInput("pipeline", "a pipeline that has flows", info.name, fix)
    known = [phase["name"] for phase in info.definition["phases"]]
    for phase in wanted.phases:
        if phase not in known:
            expected = f"phases of {info.name} ({', '.join(known)})"
            raise InvalidInput("phases", expected, phase, did_you_mean(phase, known))
    if wanted.partition is not None:
        check_partition(partition_rule_of(info.definition), wanted.partition)
    if wanted.correlation_id is not None:
        check_text("correlation_id", wanted.correlation_id)
    if type(wanted.priority) is not int or not 1 <= wanted.priority <= 10:
        raise InvalidInput("priority", "a whole number from 1 to 10", wanted.priority)


def request_parameters(
    info: PipelineInfo, wanted: FlowRequest, config: ConfigRow | None
) -> str | None:
    """Return the parameters of a request as JSON text; None to use those of its config, if any."""
    if wanted.parameters is None and config is not None:
        return None  # its runs read the config's, which were validated with it
    given = {} if wanted.parameters is None else wanted.parameters
    text = parameters_json(given)
    validate(info.definition.get("parameters"), given)
    return None if wanted.parameters is None else text


def check_report(report: ProcessorReport) -> None:
    """Validate the fields of a completion report."""
    for name in ("processor", "partition"):
        check_text(name, getattr(report, name))
    for name in ("execution_id", "correlation_id", "phase", "mode"):
        value = getattr(report, name)
        if value is not None:
            check_text(name, value)
    if report.status not in tuple(CompletionStatus):
        raise InvalidInput("status", f"one of {', '.join(CompletionStatus)}", report.status)
    if report.quality is not None and not 0 <= report.quality <= 1:
        raise InvalidInput("quality", "a number from 0 to 1", report.quality)
    if report.records is not None and not 0 <= report.records < 2**63:
        raise InvalidInput("records", "a whole number from 0", report.records)


def entity_report(report: ProcessorReport) -> tuple[EntityReport, bool]:
    """Return the changes of an execution, and whether it reported them itself."""
    if report.status == CompletionStatus.FAILED:
        return EntityReport(unknown="failed and may have changed anything"), False
    if report.everything_changed is not None:
        return everything_report(report.everything_changed), True
    if report.entities is None:
        return EntityReport(unknown=NOT_REPORTED), False
    return report_from(report.entities), True


def reporting_processor(info: PipelineInfo, report: ProcessorReport) -> ProcessorRow | None:
    """Return the processor that a report names; None if the pipeline does not have it."""
    rows = [
        row
        for row in info.processors
        if row.is_current and row.name == report.processor and report.phase in (None, row.phase)
    ]
    if len(rows) > 1:
        phases = ", ".join(sorted(row.phase for row in rows))
        raise InvalidInput("phase", f"one of {phases}, which all have this processor", report.phase)
    return rows[0] if rows else None
