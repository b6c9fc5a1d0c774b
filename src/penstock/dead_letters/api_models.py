"""Request and response bodies of the dead-letter routes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from penstock.runs.api_models import RunOut
from penstock.server.models import JsonObject, RequestModel, ResponseModel, Time
from penstock.server.openapi import texts


class DeadLetterOut(ResponseModel):
    """A run or delivery that failed for good."""

    dead_letter_id: str = Field(description=texts.DEAD_LETTER_ID, examples=["dl_5m7t0c2d"])
    kind: Literal["run", "delivery"] = Field(description=texts.DEAD_KIND)
    run_id: str | None = Field(description="Id of the failed run; null for a delivery.")
    message_id: str | None = Field(description="Id of the undeliverable message; null for a run.")
    subscription: str | None = Field(description="Subscription of the delivery; null for a run.")
    topic: str | None = Field(
        description="Topic that the message was published to; null for a run."
    )
    round: int | None = Field(description=texts.DELIVERY_GENERATION)
    customer_id: str | None = Field(
        description="Customer that owns the dead letter; null for messages of system topics."
    )
    pipeline_template: str | None = Field(description="Pipeline of the run; null for a delivery.")
    phase: str | None = Field(description="Phase of the run; null for a delivery.")
    processor: str | None = Field(description="Processor of the run; null for a delivery.")
    config_id: str | None = Field(description="Config that started the run; null if none did.")
    partition: str | None = Field(description=texts.PARTITION_OR_NULL)
    correlation_id: str | None = Field(description=texts.CORRELATION_ID)
    error_type: str = Field(description=texts.ERROR_TYPE)
    error_kind: str | None = Field(
        description="poison, transient or configuration; null if unknown."
    )
    error_details: Any | None = Field(
        description="Details of the last error; null if none were reported."
    )
    attempts: int = Field(description="Number of attempts that were made.")
    died_at: Time = Field(description="Time at which it became a dead letter.")
    status: str = Field(description="open, replayed or discarded.")
    replays: int = Field(description=texts.REPLAYS)
    resolved_at: Time | None = Field(
        description="Time at which it was replayed or discarded; null while open."
    )
    resolved_by: str | None = Field(
        description="Name of the key or user that closed it; null while open."
    )
    resolution: str | None = Field(
        description="Id it was replayed as, or the reason it was discarded; null while open."
    )


class DeadLetterGroupOut(ResponseModel):
    """Dead letters of the same origin and error type."""

    kind: Literal["run", "delivery"] = Field(description=texts.DEAD_KIND)
    pipeline_template: str | None = Field(description="Pipeline of the runs; null for deliveries.")
    phase: str | None = Field(description="Phase of the runs; null for deliveries.")
    processor: str | None = Field(description="Processor of the runs; null for deliveries.")
    subscription: str | None = Field(description="Subscription of the deliveries; null for runs.")
    error_type: str = Field(description=texts.ERROR_TYPE)
    count: int = Field(description="Number of dead letters in the group.")
    first_at: Time = Field(description="Time of the oldest dead letter in the group.")
    last_at: Time = Field(description="Time of the newest dead letter in the group.")
    latest: str = Field(description="Id of the newest dead letter in the group.")


class DeadLetterGroupsOut(ResponseModel):
    """Groups of dead letters."""

    items: list[DeadLetterGroupOut] = Field(description="Groups, the largest first.")


class DeadLetterMessageOut(ResponseModel):
    """The message of an undeliverable delivery."""

    data: str = Field(description=texts.MESSAGE_DATA)
    text: str | None = Field(description="Payload as text; null if it is not UTF-8.")
    attributes: dict[str, str] = Field(description=texts.MESSAGE_ATTRIBUTES)
    ordering_key: str | None = Field(description=texts.ORDERING_KEY)
    publish_time: Time | None = Field(description=texts.PUBLISH_TIME)


class DeadLetterDetailOut(ResponseModel):
    """A dead letter with its run or message."""

    dead_letter: DeadLetterOut = Field(description="Origin, error and status of the dead letter.")
    run: RunOut | None = Field(description="The failed run; null for a delivery.")
    message: DeadLetterMessageOut | None = Field(
        description="The undeliverable message; null for runs, and once retention removed it."
    )


class DiscardIn(RequestModel):
    """The reason for discarding a dead letter."""

    reason: str = Field(
        description="Reason for discarding it, stored as its resolution.",
        min_length=1,
        max_length=500,
    )


class ReplayIn(RequestModel):
    """Changes to make before a replay; none by default."""

    parameters: JsonObject | None = Field(
        default=None, description="New parameters of the run; unchanged when omitted."
    )
    data: str | None = Field(
        default=None,
        description="New payload of the message, base64-encoded; unchanged when omitted.",
        max_length=14_000_000,
    )
    attributes: dict[str, str] | None = Field(
        default=None,
        description="New attributes that replace all of the message's; unchanged when omitted.",
    )


class ReplayOut(ResponseModel):
    """The result of a replay."""

    dead_letter_id: str = Field(description="Id of the dead letter, which is now closed.")
    replayed_as: str = Field(
        description="Id of the new run, or of the message that is delivered again."
    )


class ReplayManyIn(RequestModel):
    """Filters for the dead letters to replay, and the replay rate."""

    kind: Literal["run", "delivery"] | None = Field(
        default=None, description="Replay only runs, or only deliveries."
    )
    customer_id: str | None = Field(
        default=None, description="Replay only dead letters of this customer.", max_length=200
    )
    subscription: str | None = Field(
        default=None, description="Replay only deliveries of this subscription.", max_length=255
    )
    topic: str | None = Field(
        default=None, description="Replay only messages of this topic.", max_length=255
    )
    pipeline_template: str | None = Field(
        default=None, description="Replay only runs of this pipeline.", max_length=200
    )
    processor: str | None = Field(
        default=None, description="Replay only runs of this processor.", max_length=200
    )
    partition: str | None = Field(
        default=None, description="Replay only runs of this partition.", max_length=200
    )
    correlation_id: str | None = Field(
        default=None,
        description="Replay only dead letters with this correlation id.",
        max_length=200,
    )
    error_type: str | None = Field(
        default=None, description="Replay only dead letters with this error type.", max_length=100
    )
    since: str | None = Field(default=None, description=texts.DIED_SINCE, max_length=64)
    until: str | None = Field(default=None, description=texts.DIED_BEFORE, max_length=64)
    limit: int = Field(
        default=100,
        ge=1,
        le=500,
        description="Maximum number of dead letters to replay in this request.",
    )
    rate: float | None = Field(
        default=None,
        gt=0,
        le=10_000,
        description="Replays per second, spread over the coming time; all at once when omitted.",
    )
    before: str | None = Field(
        default=None,
        description="`next_before` of the previous request, to continue it.",
        max_length=64,
    )
    start_at: str | None = Field(
        default=None,
        description="`next_at` of the previous request, to continue its rate.",
        max_length=64,
    )
    dry_run: bool = Field(
        default=False, description="Report what would be replayed without replaying it."
    )


class ReplayedItem(ResponseModel):
    """A dead letter that was replayed."""

    dead_letter_id: str = Field(description=texts.DEAD_LETTER_ID)
    replayed_as: str | None = Field(
        description="Id of the new run, or of the message; null in a dry run."
    )


class RefusedItem(ResponseModel):
    """A dead letter that could not be replayed."""

    dead_letter_id: str = Field(description=texts.DEAD_LETTER_ID)
    why: str = Field(description="Reason why it cannot be replayed.")


class ReplayManyOut(ResponseModel):
    """The result of one step of a bulk replay."""

    matched: int = Field(description="Number of dead letters that matched before this step.")
    replayed: list[ReplayedItem] = Field(
        description="Dead letters that were replayed, or would be in a dry run."
    )
    refused: list[RefusedItem] = Field(
        description="Dead letters that cannot be replayed, with the reasons."
    )
    left: int = Field(description="Number of dead letters that still match.")
    dry_run: bool = Field(description="Whether this was a dry run, which changes nothing.")
    next_before: str | None = Field(
        description="Value of `before` for the next step; null after the last one."
    )
    next_at: Time | None = Field(
        description="Value of `start_at` for the next step; null in a dry run."
    )
