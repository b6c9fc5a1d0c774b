"""Request and response bodies of configs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from penstock.server.models import JsonObject, RequestModel, ResponseModel, Time
from penstock.server.openapi import texts

Number = float


class ConfigFields(RequestModel):
    """Fields of a config that a caller may set; omitted fields keep their value or default."""

    provider: str | None = Field(
        default=None, description="Source of the data: GCP, AWS, AZURE or any other text."
    )
    domain: str | None = Field(
        default=None,
        description="Subject of the data: COST, SECURITY, COMPLIANCE, OPERATIONS or any other "
        "text.",
    )
    schedule_type: Literal["CRON", "INTERVAL", "EVENT_DRIVEN"] | None = Field(
        default=None, description="Kind of schedule; derived from the other fields when omitted."
    )
    schedule_cron: str | None = Field(
        default=None,
        description="Cron expression of five fields, evaluated in `timezone`.",
        examples=["0 2 * * *"],
    )
    schedule_interval_minutes: Number | None = Field(
        default=None, description="Elapsed minutes between two starts."
    )
    timezone: str | None = Field(
        default=None,
        description="IANA time zone of the cron expression; UTC when omitted.",
        examples=["America/New_York"],
    )
    event_topic: str | None = Field(
        default=None, description="Topic whose messages start the config."
    )
    event_filter: str | None = Field(
        default=None, description="Filter expression; only matching messages start the config."
    )
    parameters: JsonObject | None = Field(
        default=None,
        description="Parameters of the runs, validated by the pipeline's schema. A secret is a "
        'reference: `{"$secret": "name"}`.',
        examples=[{"billing_account_id": "012345-ABCDEF-678900"}],
    )
    retry_config: JsonObject | None = Field(
        default=None,
        description="Retry settings: max_attempts, base_delay_minutes, backoff_multiplier, "
        "max_delay_minutes, timeout_multiplier.",
        examples=[{"max_attempts": 3, "backoff_multiplier": 2}],
    )
    priority: int | None = Field(
        default=None, description="Priority from 1 to 10, highest first; 5 when omitted."
    )
    max_execution_duration_minutes: Number | None = Field(
        default=None, description="Minutes after which a run times out; 60 when omitted."
    )
    sla_breach_threshold_minutes: Number | None = Field(
        default=None,
        description="Minutes after which a late start breaches the SLA; 30 when omitted.",
    )
    catch_up: Literal["one", "all", "none"] | None = Field(
        default=None, description="Handling of missed occurrences: run one, all or none of them."
    )
    catch_up_window_minutes: Number | None = Field(
        default=None, description="Minutes back that `catch_up: all` reaches; a day when omitted."
    )
    overlap: Literal["allow", "skip", "queue"] | None = Field(
        default=None,
        description="Handling of an occurrence while an earlier run is active; skip when omitted.",
    )
    jitter_seconds: Number | None = Field(
        default=None,
        description="Maximum delay of starts in seconds; the delay is the same for every start.",
    )
    is_active: bool | None = Field(default=None, description="Whether the schedule starts runs.")


class ConfigIn(ConfigFields):
    """A config to create."""

    pipeline_template: str = Field(description=texts.PIPELINE, examples=["cost_billing"])
    reason: str | None = Field(default=None, description=texts.CHANGE_REASON)


class ConfigPatch(ConfigFields):
    """Changes to a config; omitted fields keep their values."""

    pipeline_template: str | None = Field(
        default=None, description="Name of the config's pipeline; it cannot be changed."
    )
    version: int | None = Field(
        default=None, description="Version that the change is based on; equivalent to If-Match."
    )
    reason: str | None = Field(default=None, description=texts.CHANGE_REASON)


class ConfigOut(ResponseModel):
    """A schedule of a pipeline for a customer."""

    config_id: str = Field(description=texts.CONFIG_ID, examples=["cfg_5m7t0c2d"])
    customer_id: str = Field(description=texts.CUSTOMER)
    pipeline_template: str = Field(description=texts.PIPELINE)
    provider: str = Field(description="Source of the data, such as GCP; may be empty.")
    domain: str = Field(description="Subject of the data, such as COST; may be empty.")
    schedule_type: str = Field(description="CRON, INTERVAL or EVENT_DRIVEN.")
    schedule_cron: str | None = Field(description="Cron expression; null unless the type is CRON.")
    schedule_interval_minutes: float | None = Field(
        description="Minutes between two starts; null unless the type is INTERVAL."
    )
    timezone: str = Field(description="IANA time zone of the cron expression.")
    event_topic: str | None = Field(
        description="Topic whose messages start it; null unless the type is EVENT_DRIVEN."
    )
    event_filter: str | None = Field(
        description="Filter expression for its messages; null if all of them start it."
    )
    parameters: JsonObject = Field(description=texts.PARAMETERS)
    retry_config: JsonObject | None = Field(
        description="Retry settings of this config; null for the pipeline's."
    )
    priority: int = Field(description=texts.PRIORITY)
    max_execution_duration_minutes: float = Field(description=texts.MAX_DURATION)
    sla_breach_threshold_minutes: float = Field(
        description="Minutes after which a late start breaches the SLA."
    )
    catch_up: str = Field(description="Handling of missed occurrences: one, all or none.")
    catch_up_window_minutes: float = Field(description="Minutes back that `catch_up: all` reaches.")
    overlap: str = Field(description="Handling of overlapping occurrences: allow, skip or queue.")
    jitter_seconds: float = Field(description="Maximum delay of starts in seconds.")
    is_active: bool = Field(description="Whether the schedule starts runs.")
    inactive_reason: str | None = Field(
        description="Reason why it is inactive; null while it is active."
    )
    is_paused: bool = Field(description="Whether a pause currently applies to it.")
    version: int = Field(description="Version, incremented by every change; also the ETag.")
    next_run_time: Time | None = Field(
        description="Time of the next start; null if none is scheduled."
    )
    last_run_time: Time | None = Field(
        description="Time at which its last run ended; null if none has."
    )
    last_run_status: str | None = Field(
        description="Status of its last run; null if none has ended."
    )
    consecutive_failures: int = Field(
        description="Number of runs in a row that failed after all attempts."
    )
    created_at: Time = Field(description=texts.CREATED_AT)
    created_by: str = Field(description=texts.CREATED_BY)
    updated_at: Time = Field(description=texts.UPDATED_AT)


class BulkItem(ConfigIn):
    """A config to create in a bulk request."""

    customer_id: str = Field(description=texts.CUSTOMER)


class BulkOutcome(ResponseModel):
    """The outcome of one item of a bulk request."""

    index: int = Field(description="Position of the item in the request, from 0.")
    status: Literal["created", "refused", "checked"] = Field(
        description="`created`, `refused`, or `checked` for a valid item of a dry run."
    )
    config_id: str | None = Field(
        default=None, description="Id of the created config; absent unless it was created."
    )
    config: ConfigOut | None = Field(
        default=None, description="The created config; present only with `with_configs`."
    )
    code: str | None = Field(
        default=None, description="Code of the problem; present only if the item was refused."
    )
    detail: str | None = Field(
        default=None,
        description="Explanation of the problem; present only if the item was refused.",
    )
    field: str | None = Field(
        default=None,
        description="Name of the invalid field; absent if the problem is not about one.",
    )
    expected: str | None = Field(default=None, description=texts.EXPECTED)
    got: str | None = Field(default=None, description=texts.GOT)
    fix: str | None = Field(default=None, description=texts.FIX)


class ConfigStartIn(RequestModel):
    """Options for starting a config."""

    trigger_source: str = Field(
        default="manual", description="Trigger source to record on the runs.", max_length=64
    )


class ConfigStartOut(ResponseModel):
    """The runs that were started."""

    run_ids: list[str] = Field(description="Ids of the created runs (`run_…`).")


class PreviewIn(RequestModel):
    """A schedule that is not saved."""

    schedule_cron: str | None = Field(
        default=None, description="Cron expression of five fields; alternative to an interval."
    )
    schedule_interval_minutes: Number | None = Field(
        default=None, description="Elapsed minutes between two starts; alternative to cron."
    )
    timezone: str = Field(default="UTC", description="IANA time zone of the cron expression.")
    n: int = Field(default=5, description="Number of occurrences to return.", ge=1, le=1000)


class FutureOccurrenceOut(ResponseModel):
    """A future occurrence."""

    at: Time = Field(description="Scheduled time of the occurrence.")
    local: str = Field(description="The same time in the schedule's time zone.")
    utc_offset: str = Field(description="UTC offset of the time zone at that time.")
    note: str | None = Field(
        description="Effect of a daylight-saving change; null if there is none."
    )


class PreviewOut(ResponseModel):
    """The next occurrences of a schedule."""

    fires: list[FutureOccurrenceOut] = Field(
        description="Occurrences in order; empty for EVENT_DRIVEN."
    )


class AuditOut(ResponseModel):
    """An entry of a customer's audit chain."""

    n: int = Field(description="Position in the customer's chain, counted from 1.")
    at: Time = Field(description="Time of the change.")
    action: str = Field(
        description="CREATED, UPDATED, ACTIVATED, DEACTIVATED, DELETED or another action."
    )
    config_id: str | None = Field(
        description="Id of the config that was changed; null if none was."
    )
    changed_by: str = Field(description="Name of the key or user that made the change.")
    change_reason: str = Field(description="Reason given for the change; may be empty.")
    old_values: Any | None = Field(description="Values before the change; null for a new config.")
    new_values: Any | None = Field(
        description="Values after the change; null for a deleted config."
    )
    previous: str = Field(description="Hash of the previous entry in the chain.")
    hash: str = Field(description="Hash over this entry and the previous hash.")


class OccurrenceOut(ResponseModel):
    """Occurrences that did not start."""

    slot_from: Time = Field(description="Scheduled time of the first occurrence.")
    slot_to: Time = Field(description="Scheduled time of the last occurrence.")
    slots: int = Field(description="Number of occurrences in the range.")
    outcome: str = Field(description="skipped_overlap, skipped_missed or paused.")
    at: Time = Field(description="Time at which the outcome was recorded.")
