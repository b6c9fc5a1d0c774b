"""Records of the load map and of plans to spread its starts."""

from __future__ import annotations

from penstock.core.records.record import Minutes, Record, Seconds, Time, field

__all__ = ["JitterPlan", "LoadBucket", "LoadMap", "LoadSeries", "MovedConfig"]


class LoadBucket(Record):
    """Scheduled starts of a span of time."""

    at: Time
    """Beginning of the span."""
    starts: int
    """Number of runs that start in it."""
    peak: int = field(name="peak_per_minute")
    """Largest number of starts in one of its minutes."""
    running: float
    """Largest number of runs in progress in one of its minutes, by recorded durations, if none must
    wait.
    """


class LoadSeries(Record):
    """Scheduled starts of a pipeline in a pool."""

    pool: str
    """Pool whose workers execute the runs."""
    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    starts: int
    """Number of runs that start in the whole window."""
    peak: int = field(name="peak_per_minute")
    """Largest number of starts in a minute."""
    peak_at: Time | None
    """First minute with that number of starts; null if nothing starts."""
    mean_duration: Seconds | None = field(name="mean_duration_seconds")
    """Mean duration of recent runs of its entry processors; null if none is recorded."""


class LoadMap(Record):
    """Scheduled starts of the coming hours."""

    since: Time = field(name="from")
    """Beginning of the window."""
    until: Time
    """End of the window."""
    bucket: Minutes = field(name="bucket_minutes")
    """Length of a bucket."""
    starts: int
    """Number of runs that start in the window."""
    peak: int = field(name="peak_per_minute")
    """Largest number of starts in a minute."""
    peak_at: Time | None
    """First minute with that number of starts; null if nothing starts."""
    series: list[LoadSeries]
    """Starts by pool and pipeline, the highest peak first."""
    buckets: list[LoadBucket]
    """Spans of time in which something starts or runs, in order."""


class MovedConfig(Record):
    """A config whose starts are spread."""

    config_id: str
    """Id of the config."""
    customer: str = field(name="customer_id")
    """Id of the customer."""
    jitter: Seconds = field(name="jitter_seconds")
    """Its new jitter: the maximum delay of a start, within the customer's tolerance."""
    delay: Seconds = field(name="delay_seconds")
    """Fixed delay of its starts from now on, in seconds."""


class JitterPlan(Record):
    """Effect of jitter on the starts of the next 24 hours; in a dry run, the expected effect."""

    moved: int
    """Number of configs whose starts are spread."""
    customers: int
    """Number of customers that they belong to."""
    without_tolerance: int
    """Configs in busy minutes that are not moved, because their customers have no tolerance."""
    spread_already: int
    """Configs in busy minutes that are not moved, because their jitter equals the tolerance."""
    peak_before: int = field(name="peak_per_minute_before")
    """Largest number of starts in a minute, without the change."""
    peak_at_before: Time | None
    """First minute with that number of starts; null if nothing starts."""
    peak_after: int = field(name="peak_per_minute_after")
    """Largest number of starts in a minute, with the change."""
    peak_at_after: Time | None
    """First minute with that number of starts; null if nothing starts."""
    delay_max: Seconds = field(name="delay_seconds_max")
    """Largest delay of a config that is moved."""
    examples: list[MovedConfig]
    """The first configs that are moved, at most 20."""
