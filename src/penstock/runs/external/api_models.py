"""What workers outside say and hear."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.server.models import Asked, JsonObject, Time, Told

Number = float
TOKEN = "The fencing token of the claim; without it the caller must be the one that claimed."  # noqa: S105
WORKER = "The worker's own name; X-Worker-Id says the same."


class ClaimIn(Asked):
    """Claim runs."""

    worker_id: str = Field(
        description="The worker's own name.", examples=["worker-pod-abc123"], max_length=255
    )
    max_claims: int = Field(default=1, description="At most as many.", ge=1, le=1000)
    claim_duration_seconds: Number = Field(
        default=300, description="Until the claim lapses, unless it is extended.", ge=10, le=3600
    )
    wait_seconds: Number = Field(
        default=0, description="Wait as long for work when there is none.", ge=0, le=60
    )
    pool: str = Field(default="external", description="The pool to serve.", max_length=63)
    processors: list[str] = Field(
        default_factory=list,
        description="Only these: pipelines, or pipeline/phase/processor.",
        max_length=1000,
    )


class ClaimByIdIn(Asked):
    """Claim one given run."""

    worker_id: str = Field(description="The worker's own name.", max_length=255)
    claim_duration_seconds: Number = Field(
        default=300, description="Until the claim lapses, unless it is extended.", ge=10, le=3600
    )


class ClaimedRun(Told):
    """A run in a worker's hands."""

    run_id: str = Field(description="Its id.", examples=["run_7h2kq0v3"])
    config_id: str | None = Field(description="The config that started it.")
    customer_id: str = Field(description="Whose it is.")
    pipeline_template: str = Field(description="Its pipeline.")
    phase: str = Field(description="Its phase.")
    processor: str = Field(description="What is to be done.")
    partition: str | None = Field(description="The slice of data.")
    mode: str | None = Field(description="The flow's mode.")
    scheduled_time: Time = Field(description="When it was due.")
    claim_expiry_time: Time = Field(description="When the claim lapses.")
    fencing_token: int = Field(description="To be given with every further call.")
    execution_priority: int = Field(description="1 to 10, 10 first.")
    attempt_number: int = Field(description="Which attempt, from 1.")
    max_execution_duration_minutes: float = Field(description="Longer runs time out.")
    parameters: JsonObject | None = Field(description="What it is given.")
    correlation_id: str | None = Field(description="Ties together what one cause set off.")


class ClaimOut(Told):
    """Runs that were claimed."""

    claimed_runs: list[ClaimedRun] = Field(description="Empty when nothing was ready.")


class ExecutionContext(Asked):
    """Where it runs."""

    pod_name: str | None = Field(default=None, description="Which machine.", max_length=255)
    region: str | None = Field(default=None, description="Which region.", max_length=255)


class Holder(Asked):
    """Who speaks."""

    worker_id: str | None = Field(default=None, description=WORKER, max_length=255)
    fencing_token: int | None = Field(default=None, description=TOKEN, ge=0)


class StartRunIn(Holder):
    """The run starts."""

    execution_context: ExecutionContext | None = Field(default=None, description="Where.")


class ProgressIn(Asked):
    """How far a run is; what is absent stays as it was told before."""

    current_state: Literal["INITIALIZING", "RUNNING", "FINALIZING"] = Field(
        default="RUNNING", description="Roughly."
    )
    current_stage: str | None = Field(
        default=None, description="What it is doing.", examples=["transforming"], max_length=255
    )
    progress_percentage: Number | None = Field(default=None, description="0 to 100.", ge=0, le=100)
    records_processed: int | None = Field(
        default=None, description="The same as records_loaded.", ge=0
    )
    records_extracted: int | None = Field(default=None, description="Records read.", ge=0)
    records_transformed: int | None = Field(default=None, description="Records worked on.", ge=0)
    records_loaded: int | None = Field(default=None, description="Records written.", ge=0)
    bytes_processed: int | None = Field(default=None, description="Bytes.", ge=0)
    estimated_completion_time: str | None = Field(
        default=None, description="ISO 8601.", max_length=40
    )


class HeartbeatIn(ProgressIn):
    """A heartbeat."""

    worker_id: str | None = Field(default=None, description=WORKER, max_length=255)
    fencing_token: int | None = Field(default=None, description=TOKEN, ge=0)


class PulseOut(Told):
    """Whether to go on, and until when the run is held."""

    run_id: str = Field(description="Which run.")
    state: str = Field(description="CLAIMED or RUNNING.")
    fencing_token: int = Field(description="The current token.")
    cancel_requested: bool = Field(
        description="Stop, then confirm with `cancelled`: somebody asked for it."
    )
    claim_expiry_time: Time = Field(description="Beat again before this.")
    execution_start_time: Time | None = Field(description="When it started.")
    timeout_at: Time | None = Field(description="When it is over its time.")


class CompletionIn(Asked):
    """What a run brought."""

    status: Literal["SUCCESS", "PARTIAL_SUCCESS"] = Field(
        default="SUCCESS", description="Wholly or partly."
    )
    result_summary: JsonObject | None = Field(
        default=None,
        description="Anything worth keeping.",
        examples=[{"records_loaded": 1999500}],
    )
    records_processed: int | None = Field(default=None, description="How many records.", ge=0)
    bytes_processed: int | None = Field(default=None, description="Bytes.", ge=0)
    stages: dict[str, Number] | None = Field(
        default=None, description="Seconds by stage, such as extract."
    )


class CompleteIn(CompletionIn):
    """The run is done."""

    worker_id: str | None = Field(default=None, description=WORKER, max_length=255)
    fencing_token: int | None = Field(default=None, description=TOKEN, ge=0)


class FailIn(Holder):
    """The run failed."""

    error_type: str = Field(
        description="RATE_LIMIT_EXCEEDED, TRANSIENT_NETWORK, AUTHENTICATION_FAILED … or any name.",
        examples=["AUTHENTICATION_FAILED"],
        min_length=1,
        max_length=64,
    )
    error_details: JsonObject | None = Field(
        default=None,
        description="What went wrong; secrets are taken out.",
        examples=[{"message": "Invalid service account credentials"}],
    )
    should_retry: bool | None = Field(
        default=None, description="Insist on a retry, or on none; else the error type decides."
    )
    retry_after_seconds: Number | None = Field(
        default=None, description="Not before.", ge=0, le=2_592_000
    )


class EndOut(Told):
    """What became of a run."""

    run_id: str = Field(description="Which run.")
    state: str = Field(description="Its final state.")
    status: str | None = Field(description="SUCCESS, PARTIAL_SUCCESS, FAILURE or TIMEOUT.")
    retry_run_id: str | None = Field(description="The next attempt, when there is one.")
    retry_after: Time | None = Field(description="When it is due.")
    is_dead: bool = Field(description="Whether it is a dead letter now.")
    consecutive_failures: int = Field(description="Of its config; 3 alert, 5 disable.")


class BeatItem(HeartbeatIn):
    """One heartbeat of a batch."""

    run_id: str = Field(description="Which run.", max_length=64)


class BeatsIn(Asked):
    """Heartbeats of many runs."""

    worker_id: str | None = Field(default=None, description=WORKER, max_length=255)
    heartbeats: list[BeatItem] = Field(description="One per run.", min_length=1, max_length=1000)


class ReportItem(CompleteIn):
    """One completion of a batch."""

    run_id: str = Field(description="Which run.", max_length=64)


class ReportsIn(Asked):
    """Completions of many runs."""

    worker_id: str | None = Field(default=None, description=WORKER, max_length=255)
    completions: list[ReportItem] = Field(description="One per run.", min_length=1, max_length=1000)


class Refusal(Told):
    """Why one item of a batch was refused."""

    status: int = Field(description="The HTTP status it would have had alone.")
    code: str = Field(description="Stable, for programs.")
    detail: str = Field(description="In a sentence.")


class BeatOutcome(Told):
    """What became of one heartbeat."""

    run_id: str = Field(description="Which run.")
    pulse: PulseOut | None = Field(description="The answer, unless it was refused.")
    problem: Refusal | None = Field(description="Why it was refused.")


class BeatsOut(Told):
    """What became of each heartbeat."""

    outcomes: list[BeatOutcome] = Field(description="In the order of the batch.")


class ReportOutcome(Told):
    """What became of one completion."""

    run_id: str = Field(description="Which run.")
    end: EndOut | None = Field(description="Its end, unless it was refused.")
    problem: Refusal | None = Field(description="Why it was refused.")


class ReportsOut(Told):
    """What became of each completion."""

    outcomes: list[ReportOutcome] = Field(description="In the order of the batch.")
