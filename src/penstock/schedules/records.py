"""Records of configs, of their occurrences and audit trail, and of pauses."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from penstock.core.clock import DAY, MINUTE
from penstock.core.records.record import (
    UNSET,
    InBody,
    JsonObject,
    Meta,
    Minutes,
    Record,
    Seconds,
    Time,
    UnsetType,
    field,
    minutes,
    seconds,
    set_units,
)

__all__ = [
    "AuditEntry",
    "BulkOutcome",
    "Config",
    "ConfigChange",
    "DueConfig",
    "FutureOccurrence",
    "MissedOccurrences",
    "NewConfig",
    "Pause",
    "PauseResult",
    "SchedulePreview",
    "StartedRuns",
    "StoredConfig",
]

ScheduleTypeName: TypeAlias = Literal["CRON", "INTERVAL", "EVENT_DRIVEN"]
CatchUpName: TypeAlias = Literal["one", "all", "none"]
OverlapName: TypeAlias = Literal["allow", "skip", "queue"]
ConfigHealthWord: TypeAlias = Literal["well", "at_risk", "failing", "off", "paused"]
PauseScope: TypeAlias = Literal["all", "customer", "pipeline", "config"]
_Pipeline: TypeAlias = Annotated[str, Meta(examples=["cost_billing"])]
_Cron: TypeAlias = Annotated[str, Meta(examples=["0 2 * * *"])]
_Zone: TypeAlias = Annotated[str, Meta(examples=["America/New_York"])]
ChangeReason: TypeAlias = Annotated[
    str | None,
    InBody("reason"),
    Meta(description="Reason for the change, recorded in the audit trail."),
]

NULL_IS_DEFAULT: Final = frozenset({
    "provider", "domain", "parameters", "priority", "max_execution_duration_minutes",
    "sla_breach_threshold_minutes", "catch_up", "catch_up_window_minutes", "overlap",
    "jitter_seconds",
})  # fmt: skip


class Config(Record):
    """A schedule of a pipeline, or a topic whose messages start it."""

    null_is_absent: ClassVar[frozenset[str]] = NULL_IS_DEFAULT

    pipeline: _Pipeline = field(name="pipeline_template")
    """Registered name of the pipeline."""
    provider: str = ""
    """Source of the data: GCP, AWS, AZURE or any other text; may be empty."""
    domain: str = ""
    """Subject of the data: COST, SECURITY, COMPLIANCE, OPERATIONS or any other text."""
    schedule_type: ScheduleTypeName | None = None
    """Kind of schedule; derived from the other fields when omitted."""
    cron: _Cron | None = field(name="schedule_cron", default=None)
    """Cron expression of five fields, evaluated in `timezone`; null unless the type is CRON."""
    interval: Minutes | None = field(name="schedule_interval_minutes", default=None)
    """Elapsed minutes between two starts; null unless the type is INTERVAL."""
    timezone: _Zone = "UTC"
    """IANA time zone of the cron expression."""
    event_topic: str | None = None
    """Topic whose messages start the config; null unless the type is EVENT_DRIVEN."""
    event_filter: str | None = None
    """Filter expression; only matching messages start the config. Null: all messages do."""
    event_mapping: JsonObject | None = None
    """Where `parameters` and `partition` are found in the message that starts a run, such as
    `attributes.league` and `{data.day}`; if null, declared parameters are taken from the data by
    name, and the partition from the attribute `partition`.
    """
    parameters: JsonObject = field(default_factory=dict)
    """Parameters of the runs, validated by the pipeline's schema. A secret is a reference:
    `{"$secret": "name"}`."""
    retry: JsonObject | None = field(name="retry_config", default=None)
    """Retry settings: max_attempts, base_delay_minutes, backoff_multiplier, max_delay_minutes,
    timeout_multiplier; null for the pipeline's settings."""
    priority: int = 5
    """Priority from 1 to 10; runs with 10 are claimed first."""
    max_duration: Minutes | None = field(name="max_execution_duration_minutes", default=None)
    """Minutes after which a run ends in state TIMEOUT. The stricter of this and the processor's
    `timeout` applies; null for the processor's alone, 60 minutes if it declares none."""
    sla: Minutes = field(
        name="sla_breach_threshold_minutes", default_factory=lambda: minutes(30 * MINUTE)
    )
    """Minutes that a start may be late before it breaches the SLA."""
    expires_after: Minutes | None = field(name="expires_after_minutes", default=None)
    """Minutes after which a due run that was not started ends in state EXPIRED; null for the
    processor's `expires_after`."""
    catch_up: CatchUpName = "one"
    """Handling of missed occurrences: run one, all or none of them."""
    catch_up_window: Minutes = field(
        name="catch_up_window_minutes", default_factory=lambda: minutes(DAY)
    )
    """How many minutes back `catch_up: all` reaches."""
    overlap: OverlapName = "skip"
    """Handling of an occurrence while an earlier run is active."""
    jitter: Seconds = field(name="jitter_seconds", default_factory=lambda: seconds(0))
    """Upper bound in seconds of the start delay; each config always gets the same delay."""
    is_active: bool = True
    """Whether the schedule starts runs."""

    def __post_init__(self) -> None:
        """Convert the durations to the types that determine their JSON units."""
        set_units(self)


class NewConfig(Config):
    """A config to create, with its customer."""

    customer: str = field(name="customer_id")
    """Customer that owns the config."""
    reason: str | None = None
    """Reason for the change, recorded in the audit trail."""


class StoredConfig(Config):
    """A schedule of a pipeline for a customer."""

    schedule_type: ScheduleTypeName
    """CRON, INTERVAL or EVENT_DRIVEN."""
    config_id: Annotated[str, Meta(examples=["cfg_5m7t0c2d"])]
    """Id of the config (`cfg_…`)."""
    customer: str = field(name="customer_id")
    """Customer that owns the config."""
    inactive_reason: str | None
    """Reason why it is inactive; null while it is active."""
    is_paused: bool
    """Whether a pause currently applies to it."""
    version: int
    """Version, incremented by every change; also the ETag."""
    next_run_time: Time | None
    """Time of the next start; null if none is scheduled."""
    last_run_time: Time | None
    """Time at which its last run ended; null if none has."""
    last_run_status: str | None
    """Status of its last run; null if none has ended."""
    consecutive_failures: int
    """Number of starts in a row, by schedule or message, in which a run failed after all
    attempts."""
    created_at: Time
    """Time at which the config was created."""
    created_by: str
    """Name of the key or user that created the config."""
    updated_at: Time
    """Time of the last change."""
    schedule_text: str = ""
    """The schedule in plain language: "every day at 02:00, America/New_York"."""
    outcomes: str = ""
    """How the last runs ended, oldest first: c completed, f failed, x cancelled; at most 14."""
    failures_until_disabled: int | None = None
    """Number of further failures in a row after which it is disabled; null while inactive."""
    health: ConfigHealthWord = "well"
    """`paused` if it has a pause, `off` while inactive, `failing` after three failures in a row,
    `at_risk` after one, else `well`."""


class ConfigChange(Record):
    """Changes to a config; omitted fields keep their values."""

    pipeline: str | UnsetType | None = field(name="pipeline_template", default=UNSET)
    """Name of the config's pipeline; it cannot be changed."""
    provider: str | UnsetType | None = UNSET
    """Source of the data; null or empty for none."""
    domain: str | UnsetType | None = UNSET
    """Subject of the data; null or empty for none."""
    schedule_type: ScheduleTypeName | UnsetType | None = UNSET
    """Kind of schedule; derived from the other fields when omitted or null."""
    cron: _Cron | UnsetType | None = field(name="schedule_cron", default=UNSET)
    """Cron expression of five fields, evaluated in `timezone`."""
    interval: Minutes | UnsetType | None = field(name="schedule_interval_minutes", default=UNSET)
    """Elapsed minutes between two starts."""
    timezone: _Zone | UnsetType = UNSET
    """IANA time zone of the cron expression."""
    event_topic: str | UnsetType | None = UNSET
    """Topic whose messages start the config."""
    event_filter: str | UnsetType | None = UNSET
    """Filter expression; null removes it, so that all messages start the config."""
    event_mapping: JsonObject | UnsetType | None = UNSET
    """Sources of parameters and partition in the message; null removes the mapping."""
    parameters: JsonObject | UnsetType | None = UNSET
    """Parameters of the runs, which replace the current ones; null keeps the current value."""
    retry: JsonObject | UnsetType | None = field(name="retry_config", default=UNSET)
    """Retry settings; null for the pipeline's settings."""
    priority: int | UnsetType | None = UNSET
    """Priority from 1 to 10, highest first; null keeps the current value."""
    max_duration: Minutes | UnsetType | None = field(
        name="max_execution_duration_minutes", default=UNSET
    )
    """Minutes after which a run ends in state TIMEOUT; null keeps the current value."""
    sla: Minutes | UnsetType | None = field(name="sla_breach_threshold_minutes", default=UNSET)
    """Minutes that a start may be late before it breaches the SLA; null keeps the current value."""
    expires_after: Minutes | UnsetType | None = field(name="expires_after_minutes", default=UNSET)
    """Minutes after which a due run that was not started expires; null for the processor's."""
    catch_up: CatchUpName | UnsetType | None = UNSET
    """Missed occurrences to run: one, all or none of them; null keeps the current value."""
    catch_up_window: Minutes | UnsetType | None = field(
        name="catch_up_window_minutes", default=UNSET
    )
    """How many minutes back `catch_up: all` reaches; null keeps the current value."""
    overlap: OverlapName | UnsetType | None = UNSET
    """Handling of an occurrence while an earlier run is active; null keeps the current value."""
    jitter: Seconds | UnsetType | None = field(name="jitter_seconds", default=UNSET)
    """Maximum delay of starts in seconds; null keeps the current value."""
    is_active: bool | UnsetType = UNSET
    """Whether the schedule starts runs."""

    def __post_init__(self) -> None:
        """Convert the durations to the types that determine their JSON units."""
        set_units(self)


class BulkOutcome(Record, omit_defaults=True):
    """The outcome of one item of a bulk request."""

    index: int
    """Position of the item in the request, from 0."""
    status: Literal["created", "refused", "checked"]
    """`created`, `refused` if the item is invalid, or `checked` for a valid item of a dry run."""
    config_id: str | None = None
    """Id of the created config. In a dry run, the id of an active config of the customer that has
    the same schedule and parameters; absent if there is none.
    """
    config: StoredConfig | None = None
    """The created config; present only with `with_configs`."""
    code: str | None = None
    """Code of the problem; present only if the item was rejected."""
    detail: str | None = None
    """Explanation of the problem; present only if the item was rejected."""
    field: str | None = None
    """Name of the invalid field; absent if the problem does not concern a field."""
    expected: str | None = None
    """Description of the values that the field accepts."""
    got: str | None = None
    """Value that was received, shortened."""
    fix: str | None = None
    """Suggested correction; absent if there is none."""


class StartedRuns(Record):
    """The runs that were started."""

    run_ids: list[str]
    """Ids of the created runs (`run_…`)."""


class FutureOccurrence(Record):
    """A future occurrence, with its local time, partition and mode."""

    at: Time
    """Scheduled time of the occurrence."""
    local: str
    """The same time in the schedule's time zone."""
    utc_offset: str
    """UTC offset of the time zone at that time."""
    note: str | None
    """Effect of a daylight-saving change; null if there is none."""
    partition: str | None = None
    """Partition that it processes; null for a run without one, or a schedule that is not saved."""
    mode: str | None = None
    """Mode of the flow that it opens; null for a pipeline with one processor."""


class SchedulePreview(Record):
    """The next occurrences of a schedule."""

    occurrences: list[FutureOccurrence] = field(name="fires")
    """Occurrences in order; empty for EVENT_DRIVEN."""


class AuditEntry(Record):
    """An entry of a customer's audit chain."""

    n: int
    """Position in the customer's chain, counted from 1."""
    at: Time
    """Time of the change."""
    action: str
    """CREATED, UPDATED, ACTIVATED, DEACTIVATED, DELETED or another action."""
    config_id: str | None
    """Id of the config that was changed; null if none was."""
    changed_by: str
    """Name of the key or user that made the change."""
    reason: str = field(name="change_reason")
    """Reason given for the change; may be empty."""
    old_values: Any
    """Values before the change; null for a new config."""
    new_values: Any
    """Values after the change; null for a deleted config."""
    previous: str
    """Hash of the previous entry in the chain."""
    hash: str
    """Hash over this entry and the previous hash."""


class DueConfig(Record):
    """A config that fires in a window of time."""

    config_id: str
    """Id of the config (`cfg_…`)."""
    customer: str = field(name="customer_id")
    """Customer that owns it."""
    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    at: Time = field(name="scheduled_time")
    """Its first scheduled time in the window."""
    starts_at: Time
    """Time at which that occurrence starts: the scheduled time plus the config's fixed delay within
    its jitter.
    """
    occurrences: int
    """Number of occurrences in the window, at most 1,000."""
    is_paused: bool
    """Whether the config itself is paused."""


class MissedOccurrences(Record):
    """Occurrences that did not start."""

    first: Time = field(name="slot_from")
    """Scheduled time of the first occurrence."""
    last: Time = field(name="slot_to")
    """Scheduled time of the last occurrence."""
    occurrences: int = field(name="slots")
    """Number of occurrences in the range."""
    outcome: str
    """skipped_overlap, skipped_missed or paused."""
    at: Time
    """Time at which the outcome was recorded."""


class Pause(Record):
    """A pause that is in effect."""

    scope: PauseScope
    """Whether everything, a customer, a pipeline or a config is paused."""
    subject: str | None
    """Customer, pipeline or config that is paused; null for scope `all`."""
    paused_at: Time
    """Time at which the pause began."""
    paused_by: str
    """Name of the key or user that paused it."""
    reason: str
    """Reason for the pause; empty if none was given."""


class PauseResult(Record):
    """Whether a request to pause or resume changed anything."""

    is_changed: bool = field(name="changed")
    """False if the requested state was already in place."""
