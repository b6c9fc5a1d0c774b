"""Dead letters of runs and deliveries: look, replay, discard.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from penstock.remote.shapes.runs import RunOut


class DeadLetterOut(TypedDict):
    """A dead letter."""

    dead_letter_id: str  # Its id.
    kind: Literal["run", "delivery"]  # What died.
    run_id: str | None  # The run that died.
    message_id: str | None  # The message whose delivery died.
    subscription: str | None  # The subscription it was delivered to.
    topic: str | None  # The topic it was published to.
    round: int | None  # Which round of deliveries; a replay starts the next.
    customer_id: str | None  # Whose it is; null for the house's own messages.
    pipeline_template: str | None  # Its pipeline.
    phase: str | None  # Its phase.
    processor: str | None  # Its processor.
    config_id: str | None  # Its config.
    partition: str | None  # The slice of data.
    correlation_id: str | None  # Leads to everything its cause set off.
    error_type: str  # What kind of error.
    error_kind: str | None  # poison, transient or configuration.
    error_details: Any  # The last error.
    attempts: int  # How often it was tried.
    died_at: str  # When.
    status: str  # open, replayed or discarded.
    replays: int  # How often it was replayed.
    resolved_at: str | None  # When it was closed.
    resolved_by: str | None  # Who closed it.
    resolution: str | None  # As what it was replayed, or why it was discarded.


class DeadLetterPage(TypedDict):
    """A page of a list."""

    items: list[DeadLetterOut]  # The things on this page.
    next_cursor: str | None  # Give it as `cursor` for the next page; null on the last one.


class LetterGroupOut(TypedDict):
    """Dead letters with the same origin and the same kind of error."""

    kind: Literal["run", "delivery"]  # What died.
    pipeline_template: str | None  # Their pipeline.
    phase: str | None  # Their phase.
    processor: str | None  # Their processor.
    subscription: str | None  # Their subscription.
    error_type: str  # What kind of error.
    count: int  # How many there are.
    first_at: str  # When the first of them died.
    last_at: str  # When the last of them died.
    latest: str  # The newest of them, to look at.


class LetterGroups(TypedDict):
    """Groups of dead letters."""

    items: list[LetterGroupOut]  # The most numerous first.


class ReplayManyIn(TypedDict):
    """Which dead letters are replayed, and how fast."""

    kind: NotRequired[Literal["run", "delivery"] | None]  # Only this kind.
    customer_id: NotRequired[str | None]  # Only this customer's.
    subscription: NotRequired[str | None]  # Only its.
    topic: NotRequired[str | None]  # Only of this topic.
    pipeline_template: NotRequired[str | None]  # Only its.
    processor: NotRequired[str | None]  # Only its.
    partition: NotRequired[str | None]  # Only of this slice.
    correlation_id: NotRequired[str | None]  # Only its.
    error_type: NotRequired[str | None]  # Only with this error.
    since: NotRequired[str | None]  # Died at or after.
    until: NotRequired[str | None]  # Died before.
    limit: NotRequired[int]  # At most so many in this step.
    rate: NotRequired[float | None]  # A second; spreads them over time to come.
    before: NotRequired[str | None]  # Go on: `next_before` of the last step.
    start_at: NotRequired[str | None]  # Go on: `next_at` of the last step.
    dry_run: NotRequired[bool]  # Only say what would be done.


class ReplayedOne(TypedDict):
    """One that is tried again."""

    dead_letter_id: str  # The letter.
    replayed_as: str | None  # The new run's id, or the message's; null in a dry run.


class RefusedOne(TypedDict):
    """One that is not."""

    dead_letter_id: str  # The letter.
    why: str  # Why not.


class ReplayManyOut(TypedDict):
    """What this step did."""

    matched: int  # How many fitted before it.
    replayed: list[ReplayedOne]  # What is tried again (or would be).
    refused: list[RefusedOne]  # What is not, and why.
    left: int  # How many fit after it.
    dry_run: bool  # Whether nothing was done.
    next_before: str | None  # Where the next step goes on; null: the end.
    next_at: str | None  # When the next step's first may start, by the rate.


class LetterMessageOut(TypedDict):
    """The message of a dead delivery, as it was."""

    data: str  # Its bytes, in base64.
    text: str | None  # The same as text, when it is UTF-8.
    attributes: dict[str, str]  # Its attributes.
    ordering_key: str | None  # Its ordering key.
    publish_time: str | None  # When it was published.


class LetterDetailOut(TypedDict):
    """A dead letter in full."""

    dead_letter: DeadLetterOut  # The letter.
    run: RunOut | None  # The run that died.
    # The message that died; null for runs, and once retention removed it.
    message: LetterMessageOut | None


class ReplayIn(TypedDict):
    """What is changed before it is tried again; nothing by default."""

    parameters: NotRequired[dict[str, Any] | None]  # A run's new parameters.
    data: NotRequired[str | None]  # A message's new bytes, in base64.
    attributes: NotRequired[dict[str, str] | None]  # A message's new attributes, all of them.


class ReplayOut(TypedDict):
    """It is tried again."""

    dead_letter_id: str  # The letter, now closed.
    replayed_as: str  # The new run's id, or the message's.


class DiscardIn(TypedDict):
    """Why a dead letter is given up."""

    reason: str  # Why.


class ListDeadLettersQuery(TypedDict, total=False):
    """Which part of the list, and how it is narrowed (list_dead_letters)."""

    limit: int | None  # Page size.
    cursor: str | None  # The `next_cursor` of the page before.
    status: Literal["open", "replayed", "discarded", "all"] | None  # Only of this status.
    kind: Literal["run", "delivery"] | None  # Only what died of this kind.
    customer_id: str | None  # Only of this customer.
    subscription: str | None  # Only of this subscription.
    topic: str | None  # Only of this topic.
    pipeline_template: str | None  # Only of this pipeline.
    processor: str | None  # Only of this processor.
    partition: str | None  # Only of this slice of data.
    correlation_id: str | None  # Only of this cause.
    error_type: str | None  # Only with this kind of error.
    since: str | None  # Died at or after.
    until: str | None  # Died before.


class GroupDeadLettersQuery(TypedDict, total=False):
    """Which part of the list, and how it is narrowed (group_dead_letters)."""

    limit: int | None  # Page size.
    status: Literal["open", "replayed", "discarded", "all"] | None  # Only of this status.
    kind: Literal["run", "delivery"] | None  # Only what died of this kind.
    customer_id: str | None  # Only of this customer.
    subscription: str | None  # Only of this subscription.
    topic: str | None  # Only of this topic.
    pipeline_template: str | None  # Only of this pipeline.
    processor: str | None  # Only of this processor.
    partition: str | None  # Only of this slice of data.
    correlation_id: str | None  # Only of this cause.
    error_type: str | None  # Only with this kind of error.
    since: str | None  # Died at or after.
    until: str | None  # Died before.
