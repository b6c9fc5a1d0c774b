"""Records of the current day: flows, and cohorts of runs that one occurrence started."""

from __future__ import annotations

from penstock.core.records.record import Record, Time, field
from penstock.flows.records import Flow

__all__ = ["Cohort", "Today"]


class Cohort(Record):
    """The runs of a pipeline that one occurrence of its schedules started, over all customers.

    Runs of flows and runs that a message started belong to no cohort.
    """

    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    occurrence_at: Time = field(name="slot_at")
    """Time at which the runs were due."""
    expected: int
    """Number of runs of the occurrence, including those that are due and not started yet; a run
    with several attempts counts once.
    """
    completed: int
    """Number of runs that completed."""
    running: int
    """Number of runs that workers hold."""
    queued: int = field(name="in_line")
    """Number of runs that have not started: they wait for the scheduler, a worker, a limit or a
    pause.
    """
    retrying: int
    """Number of runs that failed and wait for another attempt."""
    dead: int
    """Number of runs that failed permanently and were not retried."""
    cancelled: int
    """Number of runs that were cancelled or expired."""
    skipped: int
    """Number of starts that the ledger lists as skipped, because of a pause or an overlap; they
    are not in `expected`."""
    ended_at: Time | None
    """Time at which the last run ended; null while a run is under way, or if none was started."""
    eta_at: Time | None
    """Estimated end of the last run at the pace so far, if retries start on time; null if no run
    has ended or none is open.
    """

    @property
    def open(self) -> int:
        """Number of runs that have not ended."""
        return self.running + self.queued + self.retrying


class Today(Record):
    """Flows under way or ended since midnight UTC, and the cohorts of the same time."""

    as_of: Time
    """Time at which the data was read, by the database clock."""
    since: Time
    """Start of the day: midnight UTC."""
    due_done_percentage: float | None
    """Percentage of the listed flows and of the runs of all cohorts that completed, 0 to 100;
    cancelled ones do not count; null if nothing is due."""
    flows: list[Flow]
    """Open flows, newest first, then those that ended today, the last one first; with phases."""
    has_more_flows: bool
    """Whether there are more flows than `limit`."""
    cohorts: list[Cohort]
    """Cohorts with runs under way or dead first, then the last one of each pipeline, then the
    others; newest first. Cohorts of yesterday appear while they have runs under way."""
    has_more_cohorts: bool
    """Whether there are more cohorts than `limit`."""
    is_partial: bool
    """Whether a read reached its bound: the oldest cohorts are then missing, or the counts of open
    runs are too low.
    """
