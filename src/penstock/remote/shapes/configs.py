"""Customers' schedules: create, change, preview, audit.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class BulkItem(TypedDict):
    """One config of a bulk call."""

    provider: NotRequired[str | None]  # GCP, AWS, AZURE or any text.
    domain: NotRequired[str | None]  # COST, SECURITY, COMPLIANCE, OPERATIONS or any text.
    # Follows from the field that is given.
    schedule_type: NotRequired[Literal["CRON", "INTERVAL", "EVENT_DRIVEN"] | None]
    schedule_cron: NotRequired[str | None]  # Five fields, in `timezone`.
    schedule_interval_minutes: NotRequired[float | None]  # Elapsed time between starts.
    timezone: NotRequired[str | None]  # IANA name, UTC unless said.
    event_topic: NotRequired[str | None]  # Starts on messages of this topic.
    event_filter: NotRequired[str | None]  # Which messages start it.
    # Checked against the pipeline's schema. A secret is a reference: `{"$secret": "name"}`.
    parameters: NotRequired[dict[str, Any] | None]
    # max_attempts, base_delay_minutes, backoff_multiplier, max_delay_minutes, timeout_multiplier.
    retry_config: NotRequired[dict[str, Any] | None]
    priority: NotRequired[int | None]  # 1 to 10, 10 first; 5 unless said.
    # Longer runs time out; 60 unless said.
    max_execution_duration_minutes: NotRequired[float | None]
    # A run that starts later than this breaches; 30 unless said.
    sla_breach_threshold_minutes: NotRequired[float | None]
    catch_up: NotRequired[Literal["one", "all", "none"] | None]  # What becomes of missed slots.
    catch_up_window_minutes: NotRequired[float | None]  # How far back `all` goes.
    # What a slot does while an earlier run has not ended.
    overlap: NotRequired[Literal["allow", "skip", "queue"] | None]
    # Spreads starts, the same for this config every time.
    jitter_seconds: NotRequired[float | None]
    is_active: NotRequired[bool | None]  # Whether it fires.
    pipeline_template: str  # A registered pipeline.
    reason: NotRequired[str | None]  # Why; goes into the audit trail.
    customer_id: str  # Whose it is.


class ConfigOut(TypedDict):
    """A config."""

    config_id: str  # Its id.
    customer_id: str  # Whose it is.
    pipeline_template: str  # The pipeline it starts.
    provider: str  # Where the data comes from.
    domain: str  # What it is about.
    schedule_type: str  # CRON, INTERVAL or EVENT_DRIVEN.
    schedule_cron: str | None  # Its cron expression.
    schedule_interval_minutes: float | None  # Its interval.
    timezone: str  # The zone of the cron expression.
    event_topic: str | None  # The topic that starts it.
    event_filter: str | None  # Which messages start it.
    parameters: dict[str, Any]  # What its runs are given.
    retry_config: dict[str, Any] | None  # Its own retry settings.
    priority: int  # 1 to 10, 10 first.
    max_execution_duration_minutes: float  # Longer runs time out.
    sla_breach_threshold_minutes: float  # Later starts breach.
    catch_up: str  # one, all or none.
    catch_up_window_minutes: float  # How far back `all` goes.
    overlap: str  # allow, skip or queue.
    jitter_seconds: float  # How far its starts are spread.
    is_active: bool  # Whether it fires.
    inactive_reason: str | None  # Why it does not.
    is_paused: bool  # Whether a pause covers it.
    version: int  # Grows with every change; the ETag.
    next_run_time: str | None  # When it fires next.
    last_run_time: str | None  # When its last run ended.
    last_run_status: str | None  # How its last run ended.
    consecutive_failures: int  # Runs that died in a row.
    created_at: str  # When it was created.
    created_by: str  # Who created it.
    updated_at: str  # When it was changed last.


class BulkOutcome(TypedDict):
    """What became of one item."""

    index: int  # Which item, from 0.
    # Whether it was created; `checked` when it would be (a dry run).
    status: Literal["created", "refused", "checked"]
    config_id: NotRequired[str | None]  # Its id, when created.
    config: NotRequired[ConfigOut | None]  # The config, with `with_configs`.
    code: NotRequired[str | None]  # The problem's code, when refused.
    detail: NotRequired[str | None]  # What is wrong, when refused.
    field: NotRequired[str | None]  # Which field, when one is wrong.
    expected: NotRequired[str | None]  # What would have been right.
    got: NotRequired[str | None]  # What was there, cut short.
    fix: NotRequired[str | None]  # What to do about it, where it helps.


class ConfigIn(TypedDict):
    """A new config."""

    provider: NotRequired[str | None]  # GCP, AWS, AZURE or any text.
    domain: NotRequired[str | None]  # COST, SECURITY, COMPLIANCE, OPERATIONS or any text.
    # Follows from the field that is given.
    schedule_type: NotRequired[Literal["CRON", "INTERVAL", "EVENT_DRIVEN"] | None]
    schedule_cron: NotRequired[str | None]  # Five fields, in `timezone`.
    schedule_interval_minutes: NotRequired[float | None]  # Elapsed time between starts.
    timezone: NotRequired[str | None]  # IANA name, UTC unless said.
    event_topic: NotRequired[str | None]  # Starts on messages of this topic.
    event_filter: NotRequired[str | None]  # Which messages start it.
    # Checked against the pipeline's schema. A secret is a reference: `{"$secret": "name"}`.
    parameters: NotRequired[dict[str, Any] | None]
    # max_attempts, base_delay_minutes, backoff_multiplier, max_delay_minutes, timeout_multiplier.
    retry_config: NotRequired[dict[str, Any] | None]
    priority: NotRequired[int | None]  # 1 to 10, 10 first; 5 unless said.
    # Longer runs time out; 60 unless said.
    max_execution_duration_minutes: NotRequired[float | None]
    # A run that starts later than this breaches; 30 unless said.
    sla_breach_threshold_minutes: NotRequired[float | None]
    catch_up: NotRequired[Literal["one", "all", "none"] | None]  # What becomes of missed slots.
    catch_up_window_minutes: NotRequired[float | None]  # How far back `all` goes.
    # What a slot does while an earlier run has not ended.
    overlap: NotRequired[Literal["allow", "skip", "queue"] | None]
    # Spreads starts, the same for this config every time.
    jitter_seconds: NotRequired[float | None]
    is_active: NotRequired[bool | None]  # Whether it fires.
    pipeline_template: str  # A registered pipeline.
    reason: NotRequired[str | None]  # Why; goes into the audit trail.


class ConfigPage(TypedDict):
    """A page of a list."""

    items: list[ConfigOut]  # The things on this page.
    next_cursor: str | None  # Give it as `cursor` for the next page; null on the last one.


class ConfigPatch(TypedDict):
    """A change of a config: fields that are absent stay."""

    provider: NotRequired[str | None]  # GCP, AWS, AZURE or any text.
    domain: NotRequired[str | None]  # COST, SECURITY, COMPLIANCE, OPERATIONS or any text.
    # Follows from the field that is given.
    schedule_type: NotRequired[Literal["CRON", "INTERVAL", "EVENT_DRIVEN"] | None]
    schedule_cron: NotRequired[str | None]  # Five fields, in `timezone`.
    schedule_interval_minutes: NotRequired[float | None]  # Elapsed time between starts.
    timezone: NotRequired[str | None]  # IANA name, UTC unless said.
    event_topic: NotRequired[str | None]  # Starts on messages of this topic.
    event_filter: NotRequired[str | None]  # Which messages start it.
    # Checked against the pipeline's schema. A secret is a reference: `{"$secret": "name"}`.
    parameters: NotRequired[dict[str, Any] | None]
    # max_attempts, base_delay_minutes, backoff_multiplier, max_delay_minutes, timeout_multiplier.
    retry_config: NotRequired[dict[str, Any] | None]
    priority: NotRequired[int | None]  # 1 to 10, 10 first; 5 unless said.
    # Longer runs time out; 60 unless said.
    max_execution_duration_minutes: NotRequired[float | None]
    # A run that starts later than this breaches; 30 unless said.
    sla_breach_threshold_minutes: NotRequired[float | None]
    catch_up: NotRequired[Literal["one", "all", "none"] | None]  # What becomes of missed slots.
    catch_up_window_minutes: NotRequired[float | None]  # How far back `all` goes.
    # What a slot does while an earlier run has not ended.
    overlap: NotRequired[Literal["allow", "skip", "queue"] | None]
    # Spreads starts, the same for this config every time.
    jitter_seconds: NotRequired[float | None]
    is_active: NotRequired[bool | None]  # Whether it fires.
    # A config keeps its pipeline: the same name, or nothing.
    pipeline_template: NotRequired[str | None]
    version: NotRequired[int | None]  # The version the change is based on; If-Match says the same.
    reason: NotRequired[str | None]  # Why; goes into the audit trail.


class StartIn(TypedDict):
    """Start a config now."""

    trigger_source: NotRequired[str]  # What started it.


class StartOut(TypedDict):
    """What was started."""

    run_ids: list[str]  # The runs that were created.


class FireOut(TypedDict):
    """A future start."""

    at: str  # The moment.
    local: str  # What the wall clock shows.
    utc_offset: str  # The zone's offset then.
    note: str | None  # What daylight saving does to it.


class PreviewOut(TypedDict):
    """The next starts."""

    fires: list[FireOut]  # In order; empty for EVENT_DRIVEN.


class PreviewIn(TypedDict):
    """A schedule that is not saved yet."""

    schedule_cron: NotRequired[str | None]  # Five fields.
    schedule_interval_minutes: NotRequired[float | None]  # Elapsed time.
    timezone: NotRequired[str]  # IANA name.
    n: NotRequired[int]  # How many fires.


class AuditOut(TypedDict):
    """A link of a customer's audit chain."""

    n: int  # Its place in the chain.
    at: str  # When.
    action: str  # CREATED, UPDATED, ACTIVATED, DEACTIVATED, DELETED …
    config_id: str | None  # Which config.
    changed_by: str  # Who.
    change_reason: str  # Why.
    old_values: Any  # What was.
    new_values: Any  # What is.
    previous: str  # The hash before.
    hash: str  # This link's hash.


class AuditPage(TypedDict):
    """A page of a list."""

    items: list[AuditOut]  # The things on this page.
    next_cursor: str | None  # Give it as `cursor` for the next page; null on the last one.


class OccurrenceOut(TypedDict):
    """Slots that did not start."""

    slot_from: str  # The first.
    slot_to: str  # The last.
    slots: int  # How many.
    outcome: str  # skipped_overlap, skipped_missed or paused.
    at: str  # When that was decided.


class OccurrencePage(TypedDict):
    """A page of a list."""

    items: list[OccurrenceOut]  # The things on this page.
    next_cursor: str | None  # Give it as `cursor` for the next page; null on the last one.


class ListCustomerConfigsQuery(TypedDict, total=False):
    """Which part of the list, and how it is narrowed (list_customer_configs)."""

    limit: int | None  # Page size.
    offset: int | None  # Skip as many; deep pages are for cursors.
    cursor: str | None  # The `next_cursor` of the page before.
    pipeline_template: str | None  # Only of this pipeline.
    is_active: bool | None  # Only those that fire, or not.
    after: str | None  # Go on behind this config, as a cursor does.
