"""Dead letters in requests and answers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from penstock.runs.api_models import RunOut
from penstock.server.models import Asked, JsonObject, Time, Told


class DeadLetterOut(Told):
    """A dead letter."""

    dead_letter_id: str = Field(description="Its id.", examples=["dl_5m7t0c2d"])
    kind: Literal["run", "delivery"] = Field(description="What died.")
    run_id: str | None = Field(description="The run that died.")
    message_id: str | None = Field(description="The message whose delivery died.")
    subscription: str | None = Field(description="The subscription it was delivered to.")
    topic: str | None = Field(description="The topic it was published to.")
    round: int | None = Field(description="Which round of deliveries; a replay starts the next.")
    customer_id: str | None = Field(description="Whose it is; null for the house's own messages.")
    pipeline_template: str | None = Field(description="Its pipeline.")
    phase: str | None = Field(description="Its phase.")
    processor: str | None = Field(description="Its processor.")
    config_id: str | None = Field(description="Its config.")
    partition: str | None = Field(description="The slice of data.")
    correlation_id: str | None = Field(description="Leads to everything its cause set off.")
    error_type: str = Field(description="What kind of error.")
    error_kind: str | None = Field(description="poison, transient or configuration.")
    error_details: Any | None = Field(description="The last error.")
    attempts: int = Field(description="How often it was tried.")
    died_at: Time = Field(description="When.")
    status: str = Field(description="open, replayed or discarded.")
    replays: int = Field(description="How often it was replayed.")
    resolved_at: Time | None = Field(description="When it was closed.")
    resolved_by: str | None = Field(description="Who closed it.")
    resolution: str | None = Field(description="As what it was replayed, or why it was discarded.")


class LetterGroupOut(Told):
    """Dead letters with the same origin and the same kind of error."""

    kind: Literal["run", "delivery"] = Field(description="What died.")
    pipeline_template: str | None = Field(description="Their pipeline.")
    phase: str | None = Field(description="Their phase.")
    processor: str | None = Field(description="Their processor.")
    subscription: str | None = Field(description="Their subscription.")
    error_type: str = Field(description="What kind of error.")
    count: int = Field(description="How many there are.")
    first_at: Time = Field(description="When the first of them died.")
    last_at: Time = Field(description="When the last of them died.")
    latest: str = Field(description="The newest of them, to look at.")


class LetterGroups(Told):
    """Groups of dead letters."""

    items: list[LetterGroupOut] = Field(description="The most numerous first.")


class LetterMessageOut(Told):
    """The message of a dead delivery, as it was."""

    data: str = Field(description="Its bytes, in base64.")
    text: str | None = Field(description="The same as text, when it is UTF-8.")
    attributes: dict[str, str] = Field(description="Its attributes.")
    ordering_key: str | None = Field(description="Its ordering key.")
    publish_time: Time | None = Field(description="When it was published.")


class LetterDetailOut(Told):
    """A dead letter in full."""

    dead_letter: DeadLetterOut = Field(description="The letter.")
    run: RunOut | None = Field(description="The run that died.")
    message: LetterMessageOut | None = Field(
        description="The message that died; null for runs, and once retention removed it."
    )


class DiscardIn(Asked):
    """Why a dead letter is given up."""

    reason: str = Field(description="Why.", min_length=1, max_length=500)


class ReplayIn(Asked):
    """What is changed before it is tried again; nothing by default."""

    parameters: JsonObject | None = Field(default=None, description="A run's new parameters.")
    data: str | None = Field(
        default=None, description="A message's new bytes, in base64.", max_length=14_000_000
    )
    attributes: dict[str, str] | None = Field(
        default=None, description="A message's new attributes, all of them."
    )


class ReplayOut(Told):
    """It is tried again."""

    dead_letter_id: str = Field(description="The letter, now closed.")
    replayed_as: str = Field(description="The new run's id, or the message's.")


class ReplayManyIn(Asked):
    """Which dead letters are replayed, and how fast."""

    kind: Literal["run", "delivery"] | None = Field(default=None, description="Only this kind.")
    customer_id: str | None = Field(
        default=None, description="Only this customer's.", max_length=200
    )
    subscription: str | None = Field(default=None, description="Only its.", max_length=255)
    topic: str | None = Field(default=None, description="Only of this topic.", max_length=255)
    pipeline_template: str | None = Field(default=None, description="Only its.", max_length=200)
    processor: str | None = Field(default=None, description="Only its.", max_length=200)
    partition: str | None = Field(default=None, description="Only of this slice.", max_length=200)
    correlation_id: str | None = Field(default=None, description="Only its.", max_length=200)
    error_type: str | None = Field(
        default=None, description="Only with this error.", max_length=100
    )
    since: str | None = Field(default=None, description="Died at or after.", max_length=64)
    until: str | None = Field(default=None, description="Died before.", max_length=64)
    limit: int = Field(default=100, ge=1, le=500, description="At most so many in this step.")
    rate: float | None = Field(
        default=None, gt=0, le=10_000, description="A second; spreads them over time to come."
    )
    before: str | None = Field(default=None, description="Go on: `next_before` of the last step.",
                               max_length=64)  # fmt: skip
    start_at: str | None = Field(default=None, description="Go on: `next_at` of the last step.",
                                 max_length=64)  # fmt: skip
    dry_run: bool = Field(default=False, description="Only say what would be done.")


class ReplayedOne(Told):
    """One that is tried again."""

    dead_letter_id: str = Field(description="The letter.")
    replayed_as: str | None = Field(
        description="The new run's id, or the message's; null in a dry run."
    )


class RefusedOne(Told):
    """One that is not."""

    dead_letter_id: str = Field(description="The letter.")
    why: str = Field(description="Why not.")


class ReplayManyOut(Told):
    """What this step did."""

    matched: int = Field(description="How many fitted before it.")
    replayed: list[ReplayedOne] = Field(description="What is tried again (or would be).")
    refused: list[RefusedOne] = Field(description="What is not, and why.")
    left: int = Field(description="How many fit after it.")
    dry_run: bool = Field(description="Whether nothing was done.")
    next_before: str | None = Field(description="Where the next step goes on; null: the end.")
    next_at: Time | None = Field(description="When the next step's first may start, by the rate.")
