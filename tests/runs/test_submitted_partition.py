"""The partition of a submitted run that names none: by its time, in the form of the pipeline."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.core.errors import InvalidInput
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.partition import DeclaredPartition, day, hour, month, text, week
from penstock.runs.records import Submission
from tests.kits.client_harness import Harness

NOW = datetime(2026, 1, 1, 3, 30, tzinfo=UTC)
"""In New York it is still the evening of the last day of 2025."""


def register(harness: Harness, **options: Any) -> None:
    """Register a pipeline with one processor, and set the clock."""

    def work(run: Any) -> None:
        """Never called here."""

    made = Pipeline("dated", timezone="America/New_York", **options)
    made.processor("work")(work)
    harness.client.register([made])
    harness.clock.advance(seconds=NOW.timestamp() - harness.client.now() / 1_000_000)


def submitted(harness: Harness, **fields: Any) -> str | None:
    """Return the partition of a run submitted with these fields."""
    made = harness.client.runs.submit(Submission(pipeline="dated", **fields))
    return harness.client.runs.get(made.run_id).partition


@pytest.mark.parametrize(
    ("declared", "partition"),
    [
        (day("d"), "2025-12-31"),
        (day("d", offset=-1), "2025-12-30"),
        (hour("h"), "2025-12-31T22"),
        (week("w"), "2026-W01"),
        (month("m"), "2025-12"),
        ("d", "2025-12-31"),
        (text("t"), None),
        (None, None),
    ],
)
def test_the_form_that_the_pipeline_declares(
    harness: Harness, declared: DeclaredPartition | str | None, partition: str | None
) -> None:
    register(harness, partition=declared)
    assert submitted(harness) == partition


def test_the_time_of_the_run_counts(harness: Harness) -> None:
    """A later start, given as a time or as a delay, is in a later partition; names stay."""
    register(harness, partition=day("d"))
    assert submitted(harness, at=NOW + timedelta(days=2)) == "2026-01-02"
    assert submitted(harness, delay=timedelta(days=3)) == "2026-01-03"
    assert submitted(harness, partition="2025-06-01") == "2025-06-01"
    with pytest.raises(InvalidInput, match="a day, such as"):
        submitted(harness, partition="2026-01-01T03:30:00Z")


def test_every_path_gives_it(harness: Harness) -> None:
    """Many at once, with an idempotency key, and again as a retry."""
    register(harness, partition=day("d"))
    runs = harness.client.runs
    wanted = Submission(pipeline="dated")
    made = [*runs.submit_many([wanted] * 3), runs.submit(wanted, key="k1").run_id]
    assert {runs.get(run_id).partition for run_id in made} == {"2025-12-31"}
    assert runs.submit(wanted, key="k1").run_id == made[-1]
    runs.cancel(made[0])
    harness.clock.advance(seconds=86_400)
    again = runs.retry(made[0])
    assert runs.get(again.run_id).partition == "2025-12-31"
    assert submitted(harness) == "2026-01-01"
