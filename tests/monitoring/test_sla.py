"""SLA of runs on both engines: what counts, what breaches, and the list of breaches."""

from typing import Any

from penstock.core.clock import DAY, HOUR, MINUTE, SECOND, to_datetime
from penstock.monitoring.records import CustomerMetrics
from penstock.runs.records import Run
from penstock.services.store import aggregate
from tests.kits.client_harness import Harness


def metrics(harness: Harness) -> CustomerMetrics:
    """Return the metrics of the customer, after checking that aggregation does not change them."""
    end = to_datetime(harness.clock.now() + SECOND)
    found = harness.client.views.metrics("acme", end_date=end)
    harness.write(aggregate)
    again = harness.client.views.metrics("acme", end_date=end)
    assert again == found
    return found


def breaches(harness: Harness, **filters: Any) -> list[Run]:
    """Return the runs that missed their SLA."""
    return harness.client.runs.list(is_sla_met=False, **filters).items


def ticked(harness: Harness) -> None:
    """Advance to the next hour and start what is due."""
    harness.clock.advance(HOUR)
    harness.tick()
    harness.admitter.run_once()


class TestCompliance:
    """Which runs count, and which of them kept their SLA."""

    def test_only_runs_with_an_sla_count(self, harness: Harness) -> None:
        """Submitted runs have no SLA; a customer without one has no percentage."""
        harness.submit()
        harness.complete(harness.take())
        found = metrics(harness)
        assert (found.total_runs, found.sla_runs) == (1, 0)
        assert found.sla_compliance_percentage is None
        harness.config(sla_breach_threshold_minutes=30)
        ticked(harness)
        harness.complete(harness.take())
        found = metrics(harness)
        assert (found.total_runs, found.sla_runs, found.sla_breaches) == (2, 1, 0)
        assert found.sla_compliance_percentage == 100.0

    def test_a_failed_run_is_a_breach(self, harness: Harness) -> None:
        """A run that started in time and failed permanently did not keep its SLA."""
        harness.config(sla_breach_threshold_minutes=30)
        for end in (harness.complete, harness.fail):
            ticked(harness)
            end(harness.take())
        found = metrics(harness)
        assert (found.sla_runs, found.sla_breaches) == (2, 1)
        assert found.sla_compliance_percentage == 50.0

    def test_attempts_count_once(self, harness: Harness) -> None:
        """Of the attempts of one occurrence the last one counts; a cancelled run does not."""
        harness.config(
            sla_breach_threshold_minutes=30, retry_config={"base_delay_minutes": 1}, overlap="allow"
        )
        ticked(harness)
        harness.fail(harness.take(), error_type="SERVICE_UNAVAILABLE")
        harness.clock.advance(2 * MINUTE)
        harness.admitter.run_once()
        harness.complete(harness.take())
        ticked(harness)
        (waiting,) = harness.client.runs.list(state="PENDING").items
        harness.client.runs.cancel(waiting.run_id)
        found = metrics(harness)
        assert (found.total_runs, found.sla_runs, found.sla_breaches) == (3, 1, 0)


class TestBreaches:
    """When a run misses its SLA, and where that is shown."""

    def test_a_run_that_never_starts(self, harness: Harness) -> None:
        """It misses its SLA when the threshold passes, while it still waits."""
        harness.config(sla_breach_threshold_minutes=30)
        ticked(harness)
        harness.clock.advance(30 * MINUTE)
        assert breaches(harness) == []
        assert metrics(harness).sla_runs == 0
        harness.clock.advance(12 * MINUTE)
        (run,) = breaches(harness)
        assert (run.state, run.is_sla_met) == ("PENDING", False)
        assert run.sla_breach is not None
        assert run.sla_breach.total_seconds() == 12 * 60
        found = metrics(harness)
        assert (found.sla_runs, found.sla_breaches) == (1, 1)
        assert harness.client.views.overview().sla_breaches_today == 1
        held = harness.take()
        harness.clock.advance(5 * MINUTE)
        (run,) = breaches(harness, state="RUNNING")
        assert run.sla_breach.total_seconds() == 12 * 60  # type: ignore[union-attr]
        harness.complete(held)
        (run,) = breaches(harness, customer="acme")
        assert (run.state, run.sla_breach.total_seconds()) == ("COMPLETED", 12 * 60)  # type: ignore[union-attr]
        assert harness.client.views.overview().sla_breaches_today == 1

    def test_the_list_is_filtered_and_continued(self, harness: Harness) -> None:
        """Breaches of one customer are listed by cursor; runs in time are another list."""
        for customer in ("acme", "globex"):
            harness.config(customer, sla_breach_threshold_minutes=30, overlap="allow")
        ticked(harness)
        harness.complete(*harness.claim())
        for _ in range(3):
            ticked(harness)
        harness.clock.advance(DAY // 24 - MINUTE)
        seen: list[str] = []
        cursor = None
        while cursor is not None or not seen:
            page = harness.client.runs.list(
                customer="acme", is_sla_met=False, limit=1, cursor=cursor
            )
            seen += [run.run_id for run in page.items]
            cursor = page.next_cursor
        assert len(seen) == len(set(seen)) == 3
        (good,) = harness.client.runs.list(customer="acme", is_sla_met=True).items
        assert good.state == "COMPLETED"
