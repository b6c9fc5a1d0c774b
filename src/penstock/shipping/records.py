"""Records of shipping to audit sinks."""

from __future__ import annotations

from penstock.core.records.record import Record, Time

__all__ = ["ShippedLog", "SinkProblem", "SinkStatus", "SinkVerification", "VerifiedLog"]


class ShippedLog(Record):
    """Progress of shipping a log to a sink."""

    relation: str
    """Name of the log, which is the name of its view in the sink."""
    batches: int
    """Number of batches that the sink has."""
    rows: int
    """Number of rows in these batches."""
    position: str
    """Last block of the journal that was shipped, or the time up to which rows were shipped; empty
    before the first."""
    backlog: int
    """Number of rows that the sink does not have yet, counted up to 100,000; entries of the journal
    count once they are sealed."""
    oldest_at: Time | None
    """Time of the oldest unshipped row; null if there is none."""
    shipped_at: Time | None
    """Time at which the last batch was shipped; null before the first."""
    error: str | None
    """Why the last attempt failed; null if it did not."""
    failed_at: Time | None
    """Time at which attempts began to fail; null if the last one succeeded."""


class SinkStatus(Record):
    """Progress of shipping the logs to a sink."""

    as_of: Time
    """Time at which the data was read, by the database clock."""
    sink: str
    """The sink, as in the setting `audit_sink`."""
    backlog: int
    """Number of rows of all logs that the sink does not have yet."""
    logs: list[ShippedLog]
    """Progress of each log."""


class SinkProblem(Record):
    """A difference between a sink, its manifest and the database."""

    kind: str
    """Kind of the problem, such as `row_missing`."""
    subject: str
    """Log and batch, row or file that it is about."""
    text: str
    """Description of the difference."""


class VerifiedLog(Record):
    """The compared parts of a log."""

    relation: str
    """Name of the log."""
    batches: int
    """Number of batches in the manifest."""
    rows: int
    """Number of rows that were read from the sink."""
    compared: int
    """Number of these rows that the database still has; they were compared with it."""
    sealed_blocks: int
    """Number of sealed blocks of the journal whose hashes were recomputed from the sink."""


class SinkVerification(Record):
    """Result of comparing a sink with its manifest, the journal's seals and the database."""

    sink: str
    """The sink, as in the setting `audit_sink`."""
    is_intact: bool
    """Whether no problem was found."""
    logs: list[VerifiedLog]
    """Comparison of each log."""
    problems: list[SinkProblem]
    """The first 100 problems."""
    problem_count: int
    """Number of all problems."""
    unlisted_files: int
    """Number of files of interrupted batches, which no manifest lists. They are never read."""
