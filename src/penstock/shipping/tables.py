"""The shipped logs: columns, key, and the column with the date of a row. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Form = Literal["text", "integer", "float", "boolean", "time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedTable:
    """A log and the format of its rows in a sink."""

    name: str
    columns: tuple[tuple[str, Form], ...]
    """Names and types of the columns, in row order; a time is in microseconds."""
    key: tuple[str, ...]
    """Columns that permanently identify a row."""
    dated_by: str
    """Column whose day (UTC) is the partition."""
    is_sealed: bool = False
    """Whether it is shipped by sealed blocks: positions are block numbers instead of times."""

    def index(self, column: str) -> int:
        """Return the position of a column in a row."""
        return [name for name, _ in self.columns].index(column)

    @property
    def key_at(self) -> tuple[int, ...]:
        """Positions of the key's columns in a row."""
        return tuple(self.index(name) for name in self.key)


def _columns(text: str) -> tuple[tuple[str, Form], ...]:
    """Parse `name name:form`; text is the default form."""
    found: list[tuple[str, Form]] = []
    for word in text.split():
        name, _, form = word.partition(":")
        found.append((name, form or "text"))  # type: ignore[arg-type]
    return tuple(found)


JOURNAL: Final = ShippedTable(
    name="journal",
    columns=_columns(
        "block:integer xid seq:integer recorded_at:time kind subject:integer customer:integer "
        "action actor from_state to_state token:integer why detail customer_id"
    ),
    key=("block", "seq"),
    dated_by="recorded_at",
    is_sealed=True,
)
SEALED_AT: Final = slice(1, 14)
"""Columns of a journal row that its seal covers."""

TABLES: Final = (
    JOURNAL,
    ShippedTable(
        name="history",
        columns=_columns(
            "run_id:integer customer_id pipeline phase processor config_id:integer flow_id:integer "
            "partition mode provider occurrence_at:time scheduled_time:time created_at:time "
            "claimed_at:time claimed_by started_at:time finished_at:time final_state status "
            "token:integer attempt:integer lapses:integer was_retried:boolean is_dead:boolean "
            "parent_run_id:integer root_run_id:integer records:integer bytes:integer result "
            "error_type error_details sla_met:boolean sla_breach_us:integer correlation_id "
            "trigger_source trigger_message_id item_key cost:float"
        ),
        key=("run_id",),
        dated_by="finished_at",
    ),
    ShippedTable(
        name="execution_log",
        columns=_columns(
            "execution_id:integer source_execution_id:integer correlation_id customer_id pipeline "
            "flow_id:integer phase processor event_type partition mode affected_entities status "
            "started_at:time completed_at:time duration_us:integer dependencies_met:boolean "
            "dependency_check_result dependency_failure_type missing_dependencies "
            "stale_dependencies message_acknowledgment manual_override_used:boolean "
            "override_reason overrides error_type error_message retry_count:integer "
            "retry_of:integer was_retried:boolean message_id subscription "
            "records_processed:integer records_inserted:integer records_updated:integer "
            "trigger_source parent_processor service revision definition metadata"
        ),
        key=("execution_id", "completed_at"),
        dated_by="completed_at",
    ),
    ShippedTable(
        name="dependency_check_log",
        columns=_columns(
            "check_id:integer check_time:time customer_id pipeline flow_id:integer phase processor "
            "partition mode required_table kind partition_spec expected_rows:integer "
            "found_rows:integer completeness_pct:float quality_score:float "
            "freshness_seconds:integer check_status issues contributed_to_decision correlation_id "
            "probed_us:integer scanned_bytes:integer"
        ),
        key=("check_id",),
        dated_by="check_time",
    ),
    ShippedTable(
        name="phase_completion_log",
        columns=_columns(
            "completion_id:integer customer_id pipeline flow_id:integer phase partition mode "
            "status started_at:time completed_at:time duration_us:integer "
            "expected_processor_count:integer completed_processor_count:integer "
            "processors_completed processors_missing overall_completeness:float "
            "overall_quality:float dependencies_met:boolean dependency_issues "
            "triggered_downstream:boolean triggered_at:time downstream_phase correlation_id "
            "flow_state flow_ended_at:time"
        ),
        key=("completion_id",),
        dated_by="flow_ended_at",
    ),
    ShippedTable(
        name="config_audit",
        columns=_columns(
            "customer:integer number:integer recorded_at:time action config_id:integer actor "
            "reason old_values new_values previous hash customer_id"
        ),
        key=("customer", "number"),
        dated_by="recorded_at",
    ),
)
"""Every log that is shipped."""
