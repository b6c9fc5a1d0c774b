"""Configs in requests and answers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from penstock.server.models import Asked, JsonObject, Time, Told

Number = float


class ConfigFields(Asked):
    """What a caller may say of a config; what is absent keeps its value or its default."""

    provider: str | None = Field(default=None, description="GCP, AWS, AZURE or any text.")
    domain: str | None = Field(
        default=None, description="COST, SECURITY, COMPLIANCE, OPERATIONS or any text."
    )
    schedule_type: Literal["CRON", "INTERVAL", "EVENT_DRIVEN"] | None = Field(
        default=None, description="Follows from the field that is given."
    )
    schedule_cron: str | None = Field(
        default=None, description="Five fields, in `timezone`.", examples=["0 2 * * *"]
    )
    schedule_interval_minutes: Number | None = Field(
        default=None, description="Elapsed time between starts."
    )
    timezone: str | None = Field(
        default=None, description="IANA name, UTC unless said.", examples=["America/New_York"]
    )
    event_topic: str | None = Field(default=None, description="Starts on messages of this topic.")
    event_filter: str | None = Field(default=None, description="Which messages start it.")
    parameters: JsonObject | None = Field(
        default=None,
        description="Checked against the pipeline's schema. A secret is a reference: "
        '`{"$secret": "name"}`.',
        examples=[{"billing_account_id": "012345-ABCDEF-678900"}],
    )
    retry_config: JsonObject | None = Field(
        default=None,
        description="max_attempts, base_delay_minutes, backoff_multiplier, max_delay_minutes, "
        "timeout_multiplier.",
        examples=[{"max_attempts": 3, "backoff_multiplier": 2}],
    )
    priority: int | None = Field(default=None, description="1 to 10, 10 first; 5 unless said.")
    max_execution_duration_minutes: Number | None = Field(
        default=None, description="Longer runs time out; 60 unless said."
    )
    sla_breach_threshold_minutes: Number | None = Field(
        default=None, description="A run that starts later than this breaches; 30 unless said."
    )
    catch_up: Literal["one", "all", "none"] | None = Field(
        default=None, description="What becomes of missed slots."
    )
    catch_up_window_minutes: Number | None = Field(
        default=None, description="How far back `all` goes."
    )
    overlap: Literal["allow", "skip", "queue"] | None = Field(
        default=None, description="What a slot does while an earlier run has not ended."
    )
    jitter_seconds: Number | None = Field(
        default=None, description="Spreads starts, the same for this config every time."
    )
    is_active: bool | None = Field(default=None, description="Whether it fires.")


class ConfigIn(ConfigFields):
    """A new config."""

    pipeline_template: str = Field(description="A registered pipeline.", examples=["cost_billing"])
    reason: str | None = Field(default=None, description="Why; goes into the audit trail.")


class ConfigPatch(ConfigFields):
    """A change of a config: fields that are absent stay."""

    pipeline_template: str | None = Field(
        default=None, description="A config keeps its pipeline: the same name, or nothing."
    )
    version: int | None = Field(
        default=None, description="The version the change is based on; If-Match says the same."
    )
    reason: str | None = Field(default=None, description="Why; goes into the audit trail.")


class ConfigOut(Told):
    """A config."""

    config_id: str = Field(description="Its id.", examples=["cfg_5m7t0c2d"])
    customer_id: str = Field(description="Whose it is.")
    pipeline_template: str = Field(description="The pipeline it starts.")
    provider: str = Field(description="Where the data comes from.")
    domain: str = Field(description="What it is about.")
    schedule_type: str = Field(description="CRON, INTERVAL or EVENT_DRIVEN.")
    schedule_cron: str | None = Field(description="Its cron expression.")
    schedule_interval_minutes: float | None = Field(description="Its interval.")
    timezone: str = Field(description="The zone of the cron expression.")
    event_topic: str | None = Field(description="The topic that starts it.")
    event_filter: str | None = Field(description="Which messages start it.")
    parameters: JsonObject = Field(description="What its runs are given.")
    retry_config: JsonObject | None = Field(description="Its own retry settings.")
    priority: int = Field(description="1 to 10, 10 first.")
    max_execution_duration_minutes: float = Field(description="Longer runs time out.")
    sla_breach_threshold_minutes: float = Field(description="Later starts breach.")
    catch_up: str = Field(description="one, all or none.")
    catch_up_window_minutes: float = Field(description="How far back `all` goes.")
    overlap: str = Field(description="allow, skip or queue.")
    jitter_seconds: float = Field(description="How far its starts are spread.")
    is_active: bool = Field(description="Whether it fires.")
    inactive_reason: str | None = Field(description="Why it does not.")
    is_paused: bool = Field(description="Whether a pause covers it.")
    version: int = Field(description="Grows with every change; the ETag.")
    next_run_time: Time | None = Field(description="When it fires next.")
    last_run_time: Time | None = Field(description="When its last run ended.")
    last_run_status: str | None = Field(description="How its last run ended.")
    consecutive_failures: int = Field(description="Runs that died in a row.")
    created_at: Time = Field(description="When it was created.")
    created_by: str = Field(description="Who created it.")
    updated_at: Time = Field(description="When it was changed last.")


class BulkItem(ConfigIn):
    """One config of a bulk call."""

    customer_id: str = Field(description="Whose it is.")


class BulkOutcome(Told):
    """What became of one item."""

    index: int = Field(description="Which item, from 0.")
    status: Literal["created", "refused", "checked"] = Field(
        description="Whether it was created; `checked` when it would be (a dry run)."
    )
    config_id: str | None = Field(default=None, description="Its id, when created.")
    config: ConfigOut | None = Field(default=None, description="The config, with `with_configs`.")
    code: str | None = Field(default=None, description="The problem's code, when refused.")
    detail: str | None = Field(default=None, description="What is wrong, when refused.")
    field: str | None = Field(default=None, description="Which field, when one is wrong.")
    expected: str | None = Field(default=None, description="What would have been right.")
    got: str | None = Field(default=None, description="What was there, cut short.")
    fix: str | None = Field(default=None, description="What to do about it, where it helps.")


class StartIn(Asked):
    """Start a config now."""

    trigger_source: str = Field(default="manual", description="What started it.", max_length=64)


class StartOut(Told):
    """What was started."""

    run_ids: list[str] = Field(description="The runs that were created.")


class PreviewIn(Asked):
    """A schedule that is not saved yet."""

    schedule_cron: str | None = Field(default=None, description="Five fields.")
    schedule_interval_minutes: Number | None = Field(default=None, description="Elapsed time.")
    timezone: str = Field(default="UTC", description="IANA name.")
    n: int = Field(default=5, description="How many fires.", ge=1, le=1000)


class FireOut(Told):
    """A future start."""

    at: Time = Field(description="The moment.")
    local: str = Field(description="What the wall clock shows.")
    utc_offset: str = Field(description="The zone's offset then.")
    note: str | None = Field(description="What daylight saving does to it.")


class PreviewOut(Told):
    """The next starts."""

    fires: list[FireOut] = Field(description="In order; empty for EVENT_DRIVEN.")


class AuditOut(Told):
    """A link of a customer's audit chain."""

    n: int = Field(description="Its place in the chain.")
    at: Time = Field(description="When.")
    action: str = Field(description="CREATED, UPDATED, ACTIVATED, DEACTIVATED, DELETED …")
    config_id: str | None = Field(description="Which config.")
    changed_by: str = Field(description="Who.")
    change_reason: str = Field(description="Why.")
    old_values: Any | None = Field(description="What was.")
    new_values: Any | None = Field(description="What is.")
    previous: str = Field(description="The hash before.")
    hash: str = Field(description="This link's hash.")


class OccurrenceOut(Told):
    """Slots that did not start."""

    slot_from: Time = Field(description="The first.")
    slot_to: Time = Field(description="The last.")
    slots: int = Field(description="How many.")
    outcome: str = Field(description="skipped_overlap, skipped_missed or paused.")
    at: Time = Field(description="When that was decided.")
