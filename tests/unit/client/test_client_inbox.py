"""Dead letters from the caller's side: found, grouped, replayed, discarded."""

from __future__ import annotations

import pytest

from penstock.client.inbox import Edit, LetterFilter
from penstock.core.clock import HOUR, SECOND
from penstock.core.errors import Conflict, InvalidInput, NotFound
from penstock.core.ids import decode
from tests.desk import Desk


def letter_of(desk: Desk, run_id: int) -> int:
    """The number of a run's dead letter."""
    letter = desk.client.dead_letters.of_run(run_id)
    assert letter is not None
    return letter.dead_letter_id


class TestLooking:
    """Lists, groups, one in full."""

    def test_newest_first_and_filtered(self, desk: Desk) -> None:
        """Dead letters are listed newest first, under every filter, page by page."""
        one = desk.die()
        desk.clock.advance(HOUR)
        two = desk.die(customer="other")
        letters = desk.client.dead_letters

        def subjects(**fields: object) -> list[int]:
            return [row.subject for row in letters.find(LetterFilter(**fields))]  # type: ignore[arg-type]

        assert subjects() == [two, one]
        assert subjects(customer="acme") == subjects(until=desk.clock.now() - SECOND) == [one]
        assert subjects(since=desk.clock.now() - SECOND) == [two]
        assert subjects(pipeline="nightly", error_type="VALIDATION_ERROR", kind="run") == [two, one]
        nobody = ({"pipeline": "x"}, {"error_type": "X"}, {"partition": "x"}, {"topic": "x"},
                  {"subscription": "x"}, {"correlation_id": "x"}, {"kind": "delivery"},
                  {"processor": "x"}, {"status": "replayed"})  # fmt: skip
        for fields in nobody:
            assert subjects(**fields) == []
            assert letters.count(LetterFilter(**fields)) == 0  # type: ignore[arg-type]
        (first,) = letters.find(limit=1)
        assert [r.subject for r in letters.find(before=first.dead_letter_id)] == [one]
        for field, bad in (
            ("status", LetterFilter(status="lost")),
            ("kind", LetterFilter(kind="flow")),
        ):
            with pytest.raises(InvalidInput, match=field):
                letters.find(bad)
        with pytest.raises(InvalidInput, match="limit"):
            letters.find(limit=0)

    def test_groups(self, desk: Desk) -> None:
        """Letters of one origin and one error are one group, the most numerous first."""
        runs = [desk.die() for _ in range(3)]
        (group,) = desk.client.dead_letters.groups()
        assert (group.letters, group.pipeline, group.error_type) == (
            3,
            "nightly",
            "VALIDATION_ERROR",
        )
        assert group.latest == letter_of(desk, runs[-1])

    def test_in_full(self, desk: Desk) -> None:
        """One letter has its run; one of somebody else's is not there."""
        run_id = desk.die()
        detail = desk.client.dead_letters.get(letter_of(desk, run_id), customer="acme")
        assert detail.run is not None
        assert (detail.run.run_id, detail.data) == (run_id, None)
        desk.submit(customer="other")
        with pytest.raises(NotFound):
            desk.client.dead_letters.get(letter_of(desk, run_id), customer="other")
        with pytest.raises(NotFound):
            desk.client.dead_letters.get(999_999)
        assert desk.client.dead_letters.of_run(desk.submit()) is None


class TestClosing:
    """Replay and discard."""

    def test_discarding(self, desk: Desk) -> None:
        """Discarding needs a reason, closes letters once, all or none, and leaves runs alone."""
        one, two = desk.die(), desk.die()
        letters = desk.client.dead_letters
        numbers = [letter_of(desk, one), letter_of(desk, two)]
        with pytest.raises(InvalidInput, match="reason"):
            letters.discard(numbers, "")
        assert letters.discard(numbers[:1], "not needed", customer="acme") == 1
        with pytest.raises(Conflict, match="not an open dead letter"):
            letters.discard(numbers, "again")
        assert [row.subject for row in letters.find()] == [two]
        (closed,) = letters.find(LetterFilter(status="discarded"))
        assert (closed.subject, closed.replays, closed.resolution) == (one, 0, "not needed")
        assert desk.client.runs.get(one).state == "FAILED"

    def test_replay_edited(self, desk: Desk) -> None:
        """A replay is a new run, with other parameters when they are given; once."""
        run_id = desk.die()
        letters = desk.client.dead_letters
        number = letter_of(desk, run_id)
        with pytest.raises(InvalidInput, match="parameters"):
            letters.replay(number, Edit(data=b"x"))
        told = letters.replay(number, Edit(parameters={"region": "eu"}), actor="ann")
        new = desk.client.runs.get(decode("run", told))
        assert (new.parent_run_id, new.parameters) == (run_id, '{"region": "eu"}')
        (closed,) = letters.find(LetterFilter(status="replayed"))
        assert (closed.resolved_by, closed.resolution) == ("ann", f"replayed as {told}")
        with pytest.raises(Conflict, match="was replayed"):
            letters.replay(number)

    def test_replay_by_filter(self, desk: Desk) -> None:
        """Steps go on where the last one ended, spread by the rate; a dry run changes nothing."""
        for _ in range(3):
            desk.die()
        letters = desk.client.dead_letters
        would = letters.replay_matching(LetterFilter(customer="acme"), is_dry=True)
        assert (would.matched, len(would.replayed), would.is_dry) == (3, 3, True)
        assert letters.count() == 3
        step = letters.replay_matching(LetterFilter(), limit=2, rate=0.5)
        assert (step.matched, len(step.replayed), step.left) == (3, 2, 1)
        last = letters.replay_matching(
            LetterFilter(), limit=2, rate=0.5,
            before=step.next_before or 0, start_at=step.next_at,
        )  # fmt: skip
        assert (last.matched, len(last.replayed), last.next_before) == (1, 1, None)
        runs = [
            desk.client.runs.get(decode("run", told)) for _, told in step.replayed + last.replayed
        ]
        now = desk.clock.now()
        assert [run.scheduled_time - now for run in runs] == [0, 2 * SECOND, 4 * SECOND]
        for bad in ({"limit": 0}, {"rate": 0.0}):
            with pytest.raises(InvalidInput, match=next(iter(bad))):
                letters.replay_matching(LetterFilter(), **bad)

    def test_replays_end(self, desk: Desk) -> None:
        """What died after three replays is not replayed by filter any more, and is told so."""
        run_id = desk.die()
        for _ in range(3):
            step = desk.client.dead_letters.replay_matching(LetterFilter())
            ((_, told),) = step.replayed
            run_id = decode("run", told)
            held = desk.take()
            assert held.run_id == run_id
            desk.fail(held)
        step = desk.client.dead_letters.replay_matching(LetterFilter())
        assert step.replayed == []
        assert "already replayed 3 times" in step.refused[0].why
        assert desk.client.runs.retry(run_id), "a person may"
