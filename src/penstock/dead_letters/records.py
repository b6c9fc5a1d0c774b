"""Records of dead letters: the dead letter, groups of them, and the results of replays."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from penstock.bus.rules import MESSAGE_BYTES_MAX
from penstock.core.records.record import JsonObject, Meta, Record, Time, field
from penstock.runs.records import Run

__all__ = [
    "DeadLetter",
    "DeadLetterAttempt",
    "DeadLetterDetail",
    "DeadLetterEdit",
    "DeadLetterGroup",
    "DeadLetterKind",
    "DeadLetterMessage",
    "DeadLetterSelection",
    "DiscardRequest",
    "DiscardStep",
    "RefusedReason",
    "RefusedReplay",
    "ReplayRequest",
    "ReplayStep",
    "ReplayedDeadLetter",
    "SingleReplay",
]

DeadLetterKind: TypeAlias = Literal["run", "delivery"]
GROUP_NAME_MAX: Final = 2_000
Text: TypeAlias = Annotated[str, Meta(max_length=255)]


class DeadLetter(Record):
    """A run or delivery that failed permanently."""

    dead_letter_id: Annotated[str, Meta(examples=["dl_5m7t0c2d"])]
    """Id of the dead letter (`dl_…`)."""
    kind: DeadLetterKind
    """Whether a run or the delivery of a message failed permanently."""
    run_id: str | None
    """Id of the failed run; null for a delivery."""
    message_id: str | None
    """Id of the undeliverable message; null for a run."""
    subscription: str | None
    """Subscription of the delivery; null for a run."""
    topic: str | None
    """Topic that the message was published to; null for a run."""
    generation: int | None = field(name="round")
    """Generation of the delivery; each replay or seek starts the next."""
    customer: str | None = field(name="customer_id")
    """Customer that owns the dead letter; null for messages of system topics."""
    pipeline: str | None = field(name="pipeline_template")
    """Pipeline of the run; null for a delivery."""
    phase: str | None
    """Phase of the run; null for a delivery."""
    processor: str | None
    """Processor of the run; null for a delivery."""
    config_id: str | None
    """Config that started the run; null if none did."""
    partition: str | None
    """Partition of the data, such as `2025-12-31`; null if it has none."""
    correlation_id: str | None
    """Correlation id shared by everything that the same cause started."""
    error_type: str
    """Short name of the error type, such as `TRANSIENT_NETWORK`."""
    error_kind: str | None
    """Kind of the error: `poison`, `transient` or `configuration`; null if unknown."""
    error_class: str | None
    """Class of the exception, such as `KeyError`; null if none was reported."""
    error_details: Any
    """Details of the last error; null if none were reported."""
    attempts: int
    """Number of attempts that were made."""
    died_at: Time
    """Time at which it became a dead letter."""
    status: str
    """open, replayed or discarded."""
    replays: int
    """Number of replays so far."""
    resolved_at: Time | None
    """Time at which it was replayed or discarded; null while open."""
    resolved_by: str | None
    """Name of the key or user that closed it; null while open."""
    resolution: str | None
    """Id it was replayed as, or the reason it was discarded; null while open."""


class RefusedReason(Record):
    """Why some dead letters of a group cannot be replayed."""

    why: str
    """Reason why a replay would refuse them."""
    count: int
    """Number of dead letters with this reason, among those that were checked."""


class DeadLetterGroup(Record):
    """Dead letters of the same origin and error type."""

    kind: DeadLetterKind
    """Whether a run or the delivery of a message failed permanently."""
    pipeline: str | None = field(name="pipeline_template")
    """Pipeline of the runs; null for deliveries."""
    phase: str | None
    """Phase of the runs; null for deliveries."""
    processor: str | None
    """Processor of the runs; null for deliveries."""
    subscription: str | None
    """Subscription of the deliveries; null for runs."""
    error_type: str
    """Short name of the error type, such as `TRANSIENT_NETWORK`."""
    count: int
    """Number of dead letters in the group."""
    first_at: Time
    """Time of the oldest dead letter in the group."""
    last_at: Time
    """Time of the newest dead letter in the group."""
    latest: str
    """Id of the newest dead letter in the group."""
    error_kind: str | None = None
    """Kind of the newest error: `poison`, `transient` or `configuration`; null for runs."""
    example: str = ""
    """Error text of the newest dead letter, with secrets masked."""
    fingerprint: str = ""
    """Fingerprint of that text: equal for texts that differ only in numbers, ids and quotes."""
    fingerprints: int = 1
    """Number of distinct fingerprints in the group; 1 means a single cause."""
    buckets: list[int] = field(default_factory=list)
    """Number of dead letters in each of the last 24 hours, oldest first, the current hour last."""
    group: str = ""
    """Name of the group, for the filter `group`, such as `run/nightly/main/sync/TIMEOUT`."""
    checked: int | None = None
    """Number of the newest open dead letters that were checked for a replay; null without a check.
    """
    replayable: int | None = None
    """Number of checked dead letters that a replay would accept now. A replay also refuses a dead
    letter for which another attempt has started. Null without a check.
    """
    refused_reasons: list[RefusedReason] = field(default_factory=list)
    """Why a replay would refuse the others, the most frequent reason first."""
    keeps_until: Time | None = None
    """Time until which the oldest dead letter is kept; null if not all are open or retention was
    never applied.
    """


class DeadLetterMessage(Record):
    """The message whose delivery failed."""

    data: bytes
    """Payload of the message, base64-encoded."""
    text: str | None
    """Payload as text; null if it is not UTF-8."""
    attributes: dict[str, str]
    """Attributes of the message, string values by name."""
    ordering_key: str | None
    """Ordering key of the message; null if it has none."""
    publish_time: Time | None
    """Time at which the message was published."""


class DeadLetterAttempt(Record):
    """A failed attempt of a dead letter's run or delivery."""

    attempt: int
    """Number of the attempt, from 1."""
    at: Time
    """Time at which it ended."""
    error_type: str
    """Short name of the error type, such as `TRANSIENT_NETWORK`."""
    error: str
    """Error text, with secrets masked; empty if none was reported."""
    run_id: str | None
    """Id of the attempt's run (`run_…`); null for a delivery."""
    service: str | None
    """Service of the consumer that handled the delivery; null for a run, or if not reported."""
    revision: str | None
    """Revision of that service; null for a run, or if not reported."""


class DeadLetterDetail(Record):
    """A dead letter with its run or message."""

    dead_letter: DeadLetter
    """Origin, error and status of the dead letter."""
    run: Run | None
    """The failed run; null for a delivery."""
    message: DeadLetterMessage | None
    """The undeliverable message; null for runs, and after retention removes it."""
    not_retried: str | None = None
    """Why the run was not retried and what would change it; null for a delivery."""
    still_kept_until: Time | None = None
    """Time until which it is kept; null if retention was never applied, or if the message no longer
    exists.
    """
    attempts: list[DeadLetterAttempt] = field(default_factory=list)
    """Failed attempts, oldest first, at most the last 100; those that retention has removed are
    missing.
    """


class DeadLetterEdit(Record):
    """Changes to make before a replay; none by default."""

    parameters: JsonObject | None = None
    """New parameters of the run; unchanged when omitted."""
    data: Annotated[bytes, Meta(max_length=MESSAGE_BYTES_MAX)] | None = None
    """New payload of the message, base64-encoded; unchanged when omitted."""
    attributes: dict[str, str] | None = None
    """New attributes, which replace all attributes of the message; unchanged when omitted."""


class SingleReplay(Record):
    """The result of a replay."""

    dead_letter_id: str
    """Id of the dead letter, which is now closed."""
    replayed_as: str
    """Id of the new run, or of the message that is delivered again."""


class DeadLetterSelection(Record):
    """Filters for the dead letters of a bulk action, and the position at which it continues."""

    kind: DeadLetterKind | None = None
    """Select only runs, or only deliveries."""
    customer: Annotated[str, Meta(max_length=200)] | None = field(name="customer_id", default=None)
    """Select only dead letters of this customer."""
    subscription: Text | None = None
    """Select only deliveries of this subscription."""
    topic: Text | None = None
    """Select only messages of this topic."""
    pipeline: Annotated[str, Meta(max_length=200)] | None = field(
        name="pipeline_template", default=None
    )
    """Select only runs of this pipeline."""
    processor: Annotated[str, Meta(max_length=200)] | None = None
    """Select only runs of this processor."""
    partition: Annotated[str, Meta(max_length=200)] | None = None
    """Select only runs of this partition."""
    correlation_id: Annotated[str, Meta(max_length=200)] | None = None
    """Select only dead letters with this correlation id."""
    error_type: Annotated[str, Meta(max_length=100)] | None = None
    """Select only dead letters with this error type."""
    group: Annotated[str, Meta(max_length=GROUP_NAME_MAX)] | None = None
    """Select only dead letters of the group with this name."""
    since: Time | None = None
    """Select only dead letters created at or after this ISO 8601 time."""
    until: Time | None = None
    """Select only dead letters created before this ISO 8601 time."""
    limit: Annotated[int, Meta(ge=1, le=500)] = 100
    """Maximum number of dead letters of this request."""
    before: Annotated[str, Meta(max_length=64)] | None = None
    """`next_before` of the previous request, to continue it."""
    is_dry_run: bool = field(name="dry_run", default=False)
    """Report what would be done without doing it."""


class ReplayRequest(DeadLetterSelection):
    """Filters for the dead letters to replay, and the replay rate."""

    rate: Annotated[float, Meta(gt=0, le=10_000)] | None = None
    """Maximum replays per second; all are replayed at once when omitted."""
    start_at: Time | None = None
    """`next_at` of the previous request, to continue its rate."""


class DiscardRequest(DeadLetterSelection):
    """Filters for the dead letters to discard, and the reason."""

    reason: Annotated[str, Meta(min_length=1, max_length=500)]
    """Reason for discarding the dead letters, stored as their resolution."""


class ReplayedDeadLetter(Record):
    """A dead letter that was replayed."""

    dead_letter_id: str
    """Id of the dead letter (`dl_…`)."""
    replayed_as: str | None
    """Id of the new run, or of the message; null in a dry run."""


class RefusedReplay(Record):
    """A dead letter that could not be replayed."""

    dead_letter_id: str
    """Id of the dead letter (`dl_…`)."""
    why: str
    """Reason why it cannot be replayed."""


class ReplayStep(Record):
    """The result of one step of a bulk replay."""

    matched: int
    """Number of dead letters that matched before this step; 10,000 if there are more."""
    replayed: list[ReplayedDeadLetter]
    """Dead letters that were replayed, or would be in a dry run."""
    refused: list[RefusedReplay]
    """Dead letters that cannot be replayed, with the reasons."""
    left: int
    """Number of matching dead letters that the next steps reach; 10,000 if there are more."""
    is_dry_run: bool = field(name="dry_run")
    """Whether this was a dry run, which changes nothing."""
    next_before: str | None
    """Value of `before` for the next step; null after the last one."""
    next_at: Time | None
    """Value of `start_at` for the next step; null in a dry run."""


class DiscardStep(Record):
    """The result of one step of discarding dead letters."""

    matched: int
    """Number of dead letters that matched before this step; 10,000 if there are more."""
    discarded: list[str]
    """Ids of the dead letters that were discarded, or would be in a dry run, newest first."""
    left: int
    """Number of matching dead letters that the next steps reach; 10,000 if there are more."""
    is_dry_run: bool = field(name="dry_run")
    """Whether this was a dry run, which changes nothing."""
    next_before: str | None
    """Value of `before` for the next step; null after the last one."""
