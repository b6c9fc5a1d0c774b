"""Records of HTTP processors: the requests that endpoints receive."""

from __future__ import annotations

from typing import Annotated

from penstock.core.records.record import Meta, Record, Time
from penstock.runs.external.records import ClaimedRun


class RunCallback(Record):
    """URLs and credential with which an endpoint reports on its run; each URL accepts POST."""

    heartbeat_url: str
    """Extends the claim by five minutes and reports progress; its response says whether to stop."""
    complete_url: str
    """Reports that the run completed, with its result."""
    fail_url: str
    """Reports that the run failed."""
    cancelled_url: str
    """Confirms that the run was stopped after a heartbeat response requested it."""
    state_url: str
    """Saves the state that the next attempt continues from; a GET returns it."""
    token: str
    """Credential for these URLs, as `Authorization: Bearer …`; it permits nothing else."""
    expires_at: Time
    """Time at which the credential expires."""
    heartbeat_seconds: Annotated[int, Meta(ge=1)]
    """Seconds between two heartbeats."""


class RunRequest(ClaimedRun):
    """A run as it is sent to the endpoint of its processor."""

    root_run_id: str
    """Id of the first attempt, the same for every attempt: use it to make the work idempotent."""
    causation_id: str | None
    """Message, flow or config that caused the run; null for a run that was submitted directly."""
    timeout_at: Time
    """Time at which the run ends in state TIMEOUT if there is no result."""
    reply_before: Time
    """Time before which the endpoint must respond, with a result or with 202."""
    callback: RunCallback | None
    """URLs for reports after a 202 response; null if the setting `public_url` is not set."""
