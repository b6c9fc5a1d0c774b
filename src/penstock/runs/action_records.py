"""Records of a run's actions and artifacts: messages, runs and flows that it creates.

A processor or an external worker requests them while the run is held; they are performed in the
transaction that completes the run. `RunAction` and `Artifact` are the stored records.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from penstock.core.records.record import JsonObject, Meta, Record, Time, field

ACTIONS_MAX: Final = 1_000
"""Maximum number of actions per run."""
ACTION_BYTES_MAX: Final = 1_048_576
"""Maximum total size of a run's actions, as JSON."""
ARTIFACTS_MAX: Final = 100
STATE_BYTES_MAX: Final = 65_536

ActionKind: TypeAlias = Literal["publish", "submit", "trigger"]
ActionKey = Annotated[str, Meta(min_length=1, max_length=200)]
ShortText = Annotated[str, Meta(min_length=1, max_length=255)]
Uri = Annotated[str, Meta(min_length=1, max_length=2_048)]


class RunMessage(Record):
    """A message that a run publishes."""

    topic: Annotated[str, Meta(max_length=255)]
    """Name of the topic: one of the run's customer, or else a system topic."""
    data: bytes = b""
    """Payload of the message, base64-encoded."""
    attributes: dict[str, str] = field(default_factory=dict)
    """Attributes of the message, strings by name; the run id and correlation id are added."""
    ordering_key: str | None = None
    """Messages with the same key are delivered in publish order."""
    dedupe_id: str | None = None
    """Publishing the same id again on the topic returns the first message."""
    key: ActionKey | None = None
    """Idempotency key: the action is performed once per key, processor and customer."""


class RunSubmission(Record):
    """A run that a run creates, for the same customer."""

    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    processor: str | None = None
    """Processor to run; required if the pipeline has several."""
    partition: str | None = None
    """Partition of the data, such as `2025-12-31`."""
    parameters: JsonObject | None = None
    """Parameters passed to the processor, as a JSON object."""
    priority: int | None = field(name="execution_priority", default=None)
    """Priority from 1 to 10; the creating run's priority when omitted."""
    at: Time | None = field(name="scheduled_time", default=None)
    """Earliest start as an ISO 8601 time; if omitted, when the run completes."""
    ordering_key: str | None = None
    """Runs with the same key are executed one after another."""
    mode: str | None = field(name="processing_mode", default=None)
    """Mode in which the processor's gate decides."""
    key: ActionKey | None = None
    """Idempotency key: the action is performed once per key, processor and customer."""


class RunTrigger(Record):
    """A flow that a run opens, for the same customer."""

    pipeline: str = field(name="pipeline_template")
    """Registered name of a pipeline with phases."""
    partition: str | None = None
    """Partition of the data; the mode's current partition when omitted."""
    mode: str | None = None
    """Mode of the flow. Default: the mode of the partition's newest flow, else the pipeline's."""
    phases: Annotated[list[str], Meta(max_length=100)] = field(default_factory=list)
    """Phases to start with, in a new generation; earlier phases are inherited."""
    config: str | None = field(name="config_id", default=None)
    """Config that the flow belongs to; required if the customer has several of the pipeline."""
    force: bool = False
    """Open a new generation even if the partition has a flow."""
    parameters: JsonObject | None = None
    """Parameters passed to the processors, as a JSON object."""
    priority: int | None = field(name="execution_priority", default=None)
    """Priority from 1 to 10; the opening run's priority when omitted."""
    key: ActionKey | None = None
    """Idempotency key: the action is performed once per key, processor and customer."""


class RunActions(Record):
    """Actions performed in the transaction that completes a run; discarded if the run fails."""

    publish: Annotated[list[RunMessage], Meta(max_length=ACTIONS_MAX)] = field(default_factory=list)
    """Messages to publish."""
    submit: Annotated[list[RunSubmission], Meta(max_length=ACTIONS_MAX)] = field(
        default_factory=list
    )
    """Runs to create."""
    trigger: Annotated[list[RunTrigger], Meta(max_length=ACTIONS_MAX)] = field(default_factory=list)
    """Flows to open."""


class NewArtifact(Record):
    """Something that a run produced and stored elsewhere."""

    name: ShortText
    """Name of the artifact, unique within the run."""
    uri: Uri
    """Where it is stored, such as `gs://reports/2025-12-31.csv`."""
    size: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    """Size in bytes; null if unknown."""
    checksum: ShortText | None = None
    """Checksum with its algorithm, such as `sha256:9f86d0…`; null if unknown."""
    media_type: ShortText | None = None
    """Media type, such as `text/csv`; null if unknown."""


class Artifact(NewArtifact):
    """A stored artifact of a run."""

    at: Time
    """Time at which the run ended."""


class RunAction(Record):
    """An action that was performed with the completion of a run."""

    kind: ActionKind
    """publish, submit or trigger."""
    target: str
    """Topic, or pipeline and processor."""
    partition: str | None
    """Partition of the run or flow; null if it has none."""
    subject: str | None
    """Id of the message, run or flow."""
    key: str | None
    """Key that the caller gave; null if none was given."""
    is_repeat: bool
    """Whether an earlier run performed the action under the same key, so that it was not repeated.
    """
    at: Time
    """Time at which the run completed."""


class RunCheckpoint(Record):
    """The checkpoint that the attempts of a run share."""

    run_id: str
    """Id of the run (`run_…`)."""
    state: JsonObject
    """The last saved state; empty if none was saved."""
    saved_at: Time | None
    """Time at which it was saved; null if it never was."""
    saved_by: str | None
    """Attempt that saved it (`run_…`); null if it was never saved."""


class SubFlow(Record):
    """A flow that a run waited for, and how it ended."""

    flow_id: str
    """Id of the flow (`flow_…`)."""
    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    partition: str
    """Partition of the data, such as `2025-12-31`."""
    mode: str
    """Mode of the flow."""
    generation: int
    """Number of the flow among those of its partition and mode, from 1."""
    state: str
    """COMPLETE, DEGRADED, FAILED or CANCELLED; OPEN while the run waits."""
    is_degraded: bool
    """Whether the flow ended with incomplete data."""
    missing: list[str]
    """Tables and processors that were missing when the flow proceeded."""
    since: Time
    """Time at which the run was suspended."""
    resumed_at: Time | None
    """Time at which the run was put back into the queue; null while it waits."""

    @property
    def is_complete(self) -> bool:
        """Whether the flow ended with its work done, possibly with incomplete data."""
        return self.state in ("COMPLETE", "DEGRADED")


class RunWait(Record):
    """The response to an external worker whose run waits for a flow."""

    run_id: str
    """Id of the run (`run_…`)."""
    is_suspended: bool
    """Whether the run was returned to the queue: the worker must stop; the run is claimed again
    when the flow has ended.
    """
    flow: SubFlow | None
    """How the flow ended; null if the run is suspended."""


class UpstreamResult(Record):
    """The report of a processor in an earlier phase of the same flow."""

    phase: str
    """Name of the phase within the pipeline."""
    processor: str
    """Name of the processor within its phase."""
    status: str
    """success, partial or failed."""
    at: Time
    """Time at which the completion was recorded."""
    run_id: str | None
    """Id of the run; null if Penstock did not run the processor."""
    result: Any
    """Result that the run returned; null if there is none."""
    records: int | None = field(name="records_processed")
    """Number of records that the processor reported."""
    quality: float | None = field(name="quality_score")
    """Quality that the processor reported, from 0 to 1; null if it reported none."""
    entities: JsonObject = field(name="entities_changed")
    """Ids of changed entities by kind; empty if none were reported."""
    verdict: str
    """Verdict of the gate of its phase: PROCEED or PROCEED_DEGRADED."""
    missing: list[str]
    """Tables and processors that were missing when its phase, or one before it, started."""


class RunUpstream(Record):
    """The processors of the phases before a run's phase, in the order of the phases."""

    run_id: str
    """Id of the run (`run_…`)."""
    results: list[UpstreamResult]
    """One entry for each processor that has reported; empty for a run outside a flow."""
