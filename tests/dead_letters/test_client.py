"""Use cases of dead letters: find, group, replay, discard."""

from __future__ import annotations

import pytest

from penstock.core.clock import HOUR, SECOND, to_datetime
from penstock.core.errors import Conflict, InvalidInput, NotFound
from penstock.core.ids import decode, encode
from penstock.dead_letters.client.dead_letters import DeadLetterFilter, Edit
from tests.kits.client_harness import Harness


def dead_letter_id_of(harness: Harness, run_id: int) -> int:
    """Return the id of a run's dead letter."""
    dead_letter = harness.client.dead_letters.of_run(run_id)
    assert dead_letter is not None
    return dead_letter.dead_letter_id


class TestReading:
    """Lists, groups and details of dead letters."""

    def test_newest_first_and_filtered(self, harness: Harness) -> None:
        """Dead letters are listed newest first, page by page, with any filter."""
        one = harness.dead_run()
        harness.clock.advance(HOUR)
        two = harness.dead_run(customer="other")
        dead_letters = harness.client.dead_letters

        def subjects(**fields: object) -> list[int]:
            return [row.subject for row in dead_letters.find(DeadLetterFilter(**fields))]  # type: ignore[arg-type]

        assert subjects() == [two, one]
        assert subjects(customer="acme") == subjects(until=harness.clock.now() - SECOND) == [one]
        assert subjects(since=harness.clock.now() - SECOND) == [two]
        assert subjects(pipeline="nightly", error_type="VALIDATION_ERROR", kind="run") == [two, one]
        unmatched = ({"pipeline": "x"}, {"error_type": "X"}, {"partition": "x"}, {"topic": "x"},
                  {"subscription": "x"}, {"correlation_id": "x"}, {"kind": "delivery"},
                  {"processor": "x"}, {"status": "replayed"})  # fmt: skip
        for fields in unmatched:
            assert subjects(**fields) == []
            assert dead_letters.count(DeadLetterFilter(**fields)) == 0  # type: ignore[arg-type]
        (first,) = dead_letters.find(limit=1)
        assert [r.subject for r in dead_letters.find(before=first.dead_letter_id)] == [one]
        for field, bad in (
            ("status", DeadLetterFilter(status="lost")),
            ("kind", DeadLetterFilter(kind="flow")),
        ):
            with pytest.raises(InvalidInput, match=field):
                dead_letters.find(bad)
        with pytest.raises(InvalidInput, match="limit"):
            dead_letters.find(limit=0)

    def test_groups(self, harness: Harness) -> None:
        """Dead letters with the same origin and error type form one group."""
        runs = [harness.dead_run() for _ in range(3)]
        (group,) = harness.client.dead_letters.groups()
        assert (group.dead_letters, group.pipeline, group.error_type) == (
            3,
            "nightly",
            "VALIDATION_ERROR",
        )
        assert group.latest == dead_letter_id_of(harness, runs[-1])

    def test_in_full(self, harness: Harness) -> None:
        """A dead letter has its run; another customer's dead letter is not found."""
        run_id = harness.dead_run()
        detail = harness.client.dead_letters.get(
            dead_letter_id_of(harness, run_id), customer="acme"
        )
        assert detail.run is not None
        assert (detail.run.run_id, detail.data) == (run_id, None)
        harness.submit(customer="other")
        with pytest.raises(NotFound):
            harness.client.dead_letters.get(dead_letter_id_of(harness, run_id), customer="other")
        with pytest.raises(NotFound):
            harness.client.dead_letters.get(999_999)
        assert harness.client.dead_letters.of_run(harness.submit()) is None


class TestClosing:
    """Replay and discard."""

    def test_discarding(self, harness: Harness) -> None:
        """Discarding needs a reason, closes all dead letters or none, and does not change runs."""
        one, two = harness.dead_run(), harness.dead_run()
        dead_letters = harness.client.dead_letters
        numbers = [dead_letter_id_of(harness, one), dead_letter_id_of(harness, two)]
        with pytest.raises(InvalidInput, match="reason"):
            dead_letters.discard(numbers, "")
        assert dead_letters.discard(numbers[:1], "not needed", customer="acme") == 1
        with pytest.raises(Conflict, match="not an open dead letter"):
            dead_letters.discard(numbers, "again")
        assert [row.subject for row in dead_letters.find()] == [two]
        (closed,) = dead_letters.find(DeadLetterFilter(status="discarded"))
        assert (closed.subject, closed.replays, closed.resolution) == (one, 0, "not needed")
        assert harness.run(one).state == "FAILED"

    def test_replay_edited(self, harness: Harness) -> None:
        """A replay creates a new run, optionally with other parameters, and only once."""
        run_id = harness.dead_run()
        dead_letters = harness.client.dead_letters
        number = dead_letter_id_of(harness, run_id)
        with pytest.raises(InvalidInput, match="parameters"):
            dead_letters.replay(number, Edit(data=b"x"))
        new_id = dead_letters.replay(number, Edit(parameters={"region": "eu"}), actor="ann")
        new = harness.run(decode("run", new_id))
        assert (new.parent_run_id, new.parameters) == (encode("run", run_id), {"region": "eu"})
        (closed,) = dead_letters.find(DeadLetterFilter(status="replayed"))
        assert (closed.resolved_by, closed.resolution) == ("ann", f"replayed as {new_id}")
        with pytest.raises(Conflict, match="was replayed"):
            dead_letters.replay(number)

    def test_replay_by_filter(self, harness: Harness) -> None:
        """Steps continue after the previous one, spread by the rate; a dry run changes nothing."""
        for _ in range(3):
            harness.dead_run()
        dead_letters = harness.client.dead_letters
        would = dead_letters.replay_matching(DeadLetterFilter(customer="acme"), is_dry=True)
        assert (would.matched, len(would.replayed), would.is_dry_run) == (3, 3, True)
        assert dead_letters.count() == 3
        step = dead_letters.replay_matching(DeadLetterFilter(), limit=2, rate=0.5)
        assert (step.matched, len(step.replayed), step.left) == (3, 2, 1)
        last = dead_letters.replay_matching(
            DeadLetterFilter(), limit=2, rate=0.5,
            before=step.next_before or 0, start_at=step.next_at,
        )  # fmt: skip
        assert (last.matched, len(last.replayed), last.next_before) == (1, 1, None)
        runs = [harness.run(decode("run", new_id)) for _, new_id in step.replayed + last.replayed]
        now = to_datetime(harness.clock.now())
        waits = [(run.scheduled_time - now).total_seconds() for run in runs]
        assert waits == [0, 2, 4]
        for bad in ({"limit": 0}, {"rate": 0.0}):
            with pytest.raises(InvalidInput, match=next(iter(bad))):
                dead_letters.replay_matching(DeadLetterFilter(), **bad)

    def test_replays_are_limited(self, harness: Harness) -> None:
        """A run that failed after three replays is refused with a reason by a filter replay."""
        run_id = harness.dead_run()
        for _ in range(3):
            step = harness.client.dead_letters.replay_matching(DeadLetterFilter())
            ((_, new_id),) = step.replayed
            run_id = decode("run", new_id)
            held = harness.take()
            assert held.run_id == run_id
            harness.fail(held)
        step = harness.client.dead_letters.replay_matching(DeadLetterFilter())
        assert step.replayed == []
        assert "already replayed 3 times" in step.refused[0].why
        assert harness.retry(run_id), "a single retry is not limited"
