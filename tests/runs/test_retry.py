"""Retries and replays of scheduled runs process the occurrence that failed, on both engines."""

from typing import Any

import pytest

from penstock.core.clock import DAY, HOUR, MINUTE, to_datetime
from penstock.core.errors import Conflict, InvalidInput
from penstock.core.ids import encode
from penstock.dead_letters.records import ReplayRequest
from penstock.runs.records import Submission
from penstock.runs.rows import HeldRun
from tests.kits.client_harness import Harness
from tests.kits.configs import cfg, change_of


def _dead_occurrence(harness: Harness, **options: Any) -> HeldRun:
    """Let the next hourly occurrence of all configs start, and the one claimed first die."""
    harness.clock.advance(HOUR)
    harness.tick()
    harness.admitter.run_once()
    held = harness.take()
    (ended,) = harness.fail(held, **options)
    assert ended.is_dead
    return held


class TestTheSameOccurrence:
    """A retry keeps scheduled time, partition, parameters and SLA clock."""

    def test_a_retry_a_day_later(self, harness: Harness) -> None:
        """The occurrence that failed is processed, with the parameters that it failed with."""
        config = harness.config(parameters={"days": 7}, sla_breach_threshold_minutes=30)
        held = _dead_occurrence(harness)
        harness.client.configs.update(
            cfg(config), change_of({"parameters": {"days": 9}, "is_active": False})
        )
        harness.clock.advance(DAY)
        new_id = harness.retry(held.run_id)
        again = harness.take()
        assert again.run_id == new_id
        assert again.occurrence_time == held.occurrence_time
        assert again.partition == held.partition
        assert again.parameters == held.parameters == '{"days": 7}'
        assert (again.config_id, again.sla_us) == (config.config_id, 30 * MINUTE)
        assert again.scheduled_time == harness.clock.now()
        harness.complete(again)
        run = harness.run(new_id)
        assert run.occurrence_time == to_datetime(held.occurrence_time)
        assert run.is_sla_met is False
        assert run.sla_breach is not None
        assert run.sla_breach.total_seconds() == (DAY - 30 * MINUTE) / 1_000_000

    def test_an_automatic_retry(self, harness: Harness) -> None:
        """Attempts of one occurrence have the same parameters, whatever the config says later."""
        config = harness.config(parameters={"days": 7})
        harness.clock.advance(HOUR)
        harness.tick()
        first = harness.take()
        harness.client.configs.update(cfg(config), change_of({"parameters": {"days": 9}}))
        harness.fail(first, error_type="SERVICE_UNAVAILABLE")
        assert harness.run(first.run_id).parameters == {"days": 7}
        harness.clock.advance(10 * MINUTE)
        harness.admitter.run_once()
        second = harness.take()
        assert (second.attempt, second.parameters) == (2, '{"days": 7}')

    def test_an_unclaimed_run_reads_its_config(self, harness: Harness) -> None:
        """A change before the first claim applies to runs that already wait."""
        config = harness.config(parameters={"days": 7})
        harness.clock.advance(HOUR)
        harness.tick()
        harness.client.configs.update(cfg(config), change_of({"parameters": {"days": 9}}))
        assert harness.take().parameters == '{"days": 9}'

    def test_new_parameters_on_request(self, harness: Harness) -> None:
        """A caller may pass parameters, or take those that the config has now; not both."""
        config = harness.config(parameters={"days": 7})
        held = _dead_occurrence(harness)
        harness.client.configs.update(cfg(config), change_of({"parameters": {"days": 9}}))
        retry, name = harness.client.runs.retry, encode("run", held.run_id)
        with pytest.raises(InvalidInput, match="use_config_parameters"):
            retry(name, parameters={"days": 3}, use_config_parameters=True)
        with pytest.raises(InvalidInput, match="days"):
            retry(name, parameters={"days": 0})
        retry(name, parameters={"days": 3})
        again = harness.take()
        assert (again.parameters, again.occurrence_time) == ('{"days": 3}', held.occurrence_time)
        harness.fail(again)
        retry(name, use_config_parameters=True)
        again = harness.take()
        assert (again.parameters, again.occurrence_time) == ('{"days": 9}', held.occurrence_time)
        run_id = harness.dead_run()
        with pytest.raises(Conflict, match="no config"):
            retry(encode("run", run_id), use_config_parameters=True)

    def test_one_attempt_at_a_time(self, harness: Harness) -> None:
        """While an attempt of an occurrence is live, the original run is not retried again."""
        harness.config(overlap="allow", retry_config={"base_delay_minutes": 0})
        held = _dead_occurrence(harness)
        harness.retry(held.run_id)
        (ended,) = harness.fail(harness.take(), error_type="SERVICE_UNAVAILABLE")
        assert ended.retry_run_id is not None
        with pytest.raises(Conflict, match=encode("run", ended.retry_run_id)):
            harness.retry(held.run_id)


class TestManyOccurrences:
    """A bulk replay of several occurrences of one config."""

    def test_the_dry_run_says_what_happens(self, harness: Harness) -> None:
        """All occurrences are replayed, one after another, as the dry run promised."""
        config = harness.config(overlap="skip")
        dead = [_dead_occurrence(harness) for _ in range(4)]
        dead_letters = harness.client.dead_letters
        would = dead_letters.replay_matching(ReplayRequest(is_dry_run=True))
        assert (len(would.replayed), would.refused) == (4, [])
        done = dead_letters.replay_matching(ReplayRequest())
        assert (len(done.replayed), done.refused) == (4, [])
        seen = []
        for _ in dead:
            harness.admitter.run_once()
            held = harness.take()
            assert harness.claim() == []
            seen.append(held.occurrence_time)
            harness.complete(held)
        assert sorted(seen) == [held.occurrence_time for held in dead]
        assert harness.client.configs.get(cfg(config)).consecutive_failures == 0

    def test_a_running_occurrence_refuses_both(self, harness: Harness) -> None:
        """The dry run refuses what the replay refuses, with the same words."""
        harness.config(overlap="skip")
        dead = _dead_occurrence(harness)
        harness.clock.advance(HOUR)
        harness.tick()
        live = harness.take()
        dead_letters = harness.client.dead_letters
        would = dead_letters.replay_matching(ReplayRequest(is_dry_run=True))
        done = dead_letters.replay_matching(ReplayRequest())
        assert would.replayed == done.replayed == []
        assert [one.why for one in would.refused] == [one.why for one in done.refused]
        assert encode("run", live.run_id) in done.refused[0].why
        harness.complete(live)
        assert harness.retry(dead.run_id)


class TestOneLiveAttempt:
    """Of a submitted run and everything that retries it, at most one is live."""

    def refused(self, harness: Harness, *runs: int) -> None:
        """Expect that none of the runs can be retried now."""
        for run in runs:
            with pytest.raises(Conflict, match="already retries this run"):
                harness.retry(run)

    def test_among_many_newer_runs(self, harness: Harness) -> None:
        run = harness.dead_run()
        again = harness.retry(run)
        for _ in range(101):
            harness.submit()
        self.refused(harness, run)
        harness.cancel(again)
        harness.retry(run)

    def test_retries_of_retries(self, harness: Harness) -> None:
        run = harness.dead_run()
        first = harness.retry(run)
        (failed,) = harness.fail(harness.take(), error_type="TRANSIENT_NETWORK")
        assert failed.retry_run_id is not None
        self.refused(harness, run, first)
        harness.clock.advance(HOUR)
        harness.admitter.run_once()
        harness.fail(harness.take())
        last = harness.retry(failed.retry_run_id)
        self.refused(harness, run, first, failed.retry_run_id)
        harness.complete(harness.take())
        assert harness.retry(run) > last

    def test_runs_submitted_together_are_different_work(self, harness: Harness) -> None:
        """Also with the same time and correlation id."""
        wanted = Submission(pipeline="nightly", customer="acme", correlation_id="one")
        harness.client.runs.submit_many([wanted] * 3)
        held = harness.claim()
        harness.fail(*held)
        made = [harness.retry(one.run_id) for one in held]
        self.refused(harness, *[one.run_id for one in held])
        assert len(set(made)) == 3
