"""Use cases of dead letters: find, group, replay, discard."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from penstock.audit.store.journal import journal_for
from penstock.bus.message import Nack, NewMessage
from penstock.bus.records import Subscription, Topic
from penstock.core.clock import HOUR, SECOND, to_datetime
from penstock.core.errors import Conflict, InvalidInput, NotFound
from penstock.core.ids import decode, encode
from penstock.dead_letters.records import DeadLetterEdit, DiscardRequest, ReplayRequest
from tests.kits.client_harness import Harness


def dead_letter_id_of(harness: Harness, run_id: int) -> str:
    """Return the id of a run's dead letter."""
    return harness.client.dead_letters.get(encode("run", run_id)).dead_letter.dead_letter_id


class TestReading:
    """Lists, groups and details of dead letters."""

    def test_newest_first_and_filtered(self, harness: Harness) -> None:
        """Dead letters are listed newest first, page by page, with any filter."""
        one = encode("run", harness.dead_run())
        harness.clock.advance(HOUR)
        two = encode("run", harness.dead_run(customer="other"))
        dead_letters = harness.client.dead_letters

        def runs(**fields: object) -> list[str | None]:
            return [row.run_id for row in dead_letters.list(**fields).items]  # type: ignore[arg-type]

        assert runs() == [two, one]
        between = to_datetime(harness.clock.now() - SECOND)
        assert runs(customer="acme") == runs(until=between) == [one]
        assert runs(since=between) == [two]
        assert runs(pipeline="nightly", error_type="VALIDATION_ERROR", kind="run") == [two, one]
        unmatched = ({"pipeline": "x"}, {"error_type": "X"}, {"partition": "x"}, {"topic": "x"},
                  {"subscription": "x"}, {"correlation_id": "x"}, {"kind": "delivery"},
                  {"processor": "x"}, {"status": "replayed"})  # fmt: skip
        for fields in unmatched:
            assert runs(**fields) == []
            assert dead_letters.count(**fields) == 0  # type: ignore[arg-type]
        first = dead_letters.list(limit=1)
        assert [row.run_id for row in first.items] == [two]
        rest = dead_letters.list(limit=1, cursor=first.next_cursor)
        assert [row.run_id for row in rest.items] == [one]
        for field, bad in (("status", "lost"), ("kind", "flow"), ("limit", 0)):
            with pytest.raises(InvalidInput, match=field):
                dead_letters.list(**{field: bad})  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="cursor"):
            dead_letters.list(kind="run", cursor=first.next_cursor)

    def test_groups(self, harness: Harness) -> None:
        """Dead letters with the same origin and error type form one group."""
        runs = [harness.dead_run() for _ in range(3)]
        (group,) = harness.client.dead_letters.groups()
        assert (group.count, group.pipeline, group.error_type) == (
            3,
            "nightly",
            "VALIDATION_ERROR",
        )
        assert group.latest == dead_letter_id_of(harness, runs[-1])

    def test_in_full(self, harness: Harness) -> None:
        """A dead letter has its run; another customer's dead letter is not found."""
        run_id = harness.dead_run()
        detail = harness.client.dead_letters.get(dead_letter_id_of(harness, run_id))
        assert detail.run is not None
        assert (detail.run.run_id, detail.message) == (encode("run", run_id), None)
        harness.submit(customer="other")
        for missing in (dead_letter_id_of(harness, run_id), encode("run", run_id)):
            with pytest.raises(NotFound):
                harness.client.scoped("other").dead_letters.get(missing)
        for unknown in (encode("dl", 999_999), encode("run", harness.submit()), "dl_?", "flow_1"):
            with pytest.raises(NotFound):
                harness.client.dead_letters.get(unknown)


class TestAttempts:
    """The failed attempts of a dead letter."""

    def test_of_a_run(self, harness: Harness) -> None:
        """Each attempt has its run, time and error; a replay of it is not an attempt of it."""
        harness.submit()
        harness.fail(harness.take(), error_type="TIMEOUT")
        harness.clock.advance(HOUR)
        harness.admitter.run_once()
        harness.fail(harness.take())
        (dead,) = harness.client.dead_letters.list().items
        attempts = harness.client.dead_letters.get(dead.dead_letter_id).attempts
        assert [(one.attempt, one.error_type) for one in attempts] == [
            (1, "TIMEOUT"),
            (2, "VALIDATION_ERROR"),
        ]
        assert (attempts[-1].run_id, attempts[-1].at) == (dead.run_id, dead.died_at)

    def test_of_a_delivery(self, harness: Harness) -> None:
        """Each attempt has its time, error and revision; those of a later generation are apart."""
        client = harness.client
        client.topics.create(Topic(name="orders"))
        client.subscriptions.declare(
            Subscription(name="app", topic="orders", max_attempts=2, min_backoff=timedelta(0))
        )
        client.topics.publish("orders", [NewMessage(data=b"x")])
        for error in ("first", "second"):
            harness.clock.advance(HOUR)
            (one,) = client.subscriptions.pull("app")
            client.subscriptions.nack("app", [Nack(ack_id=one.ack_id, error=error)])
        (dead,) = client.dead_letters.list().items
        attempts = client.dead_letters.get(dead.dead_letter_id).attempts
        assert [(one.attempt, one.error) for one in attempts] == [(1, "first"), (2, "second")]
        assert attempts[0].at < attempts[1].at == dead.died_at


class TestClosing:
    """Replay and discard."""

    def test_discarding(self, harness: Harness) -> None:
        """Discarding needs a reason, happens once, and does not change the run."""
        one, two = harness.dead_run(), harness.dead_run()
        dead_letters = harness.client.dead_letters
        dead_letter = dead_letter_id_of(harness, one)
        with pytest.raises(InvalidInput, match="reason"):
            dead_letters.discard(dead_letter, "")
        harness.submit(customer="other")
        with pytest.raises(NotFound):
            harness.client.scoped("other").dead_letters.discard(dead_letter, "not mine")
        harness.client.scoped("acme").dead_letters.discard(dead_letter, "not needed")
        with pytest.raises(Conflict, match="not an open dead letter"):
            dead_letters.discard(dead_letter, "again")
        assert [row.run_id for row in dead_letters.list().items] == [encode("run", two)]
        (closed,) = dead_letters.list(status="discarded").items
        assert (closed.run_id, closed.replays) == (encode("run", one), 0)
        assert closed.resolution == "not needed"
        assert harness.run(one).state == "FAILED"

    def test_discarding_by_filter(self, harness: Harness) -> None:
        """Steps discard what matches, each with the reason and an entry in the journal."""
        for _ in range(3):
            harness.dead_run()
        harness.dead_run(customer="other")
        dead_letters = harness.client.scoped("acme", actor="ann").dead_letters
        request = DiscardRequest(limit=2, reason="a test")
        would = dead_letters.discard_matching(replace(request, is_dry_run=True))
        assert (would.matched, len(would.discarded), would.left) == (3, 2, 1)
        assert harness.client.dead_letters.count() == 4, "a dry run changes nothing"
        step = dead_letters.discard_matching(request)
        assert (step.matched, step.discarded, step.left) == (3, would.discarded, 1)
        last = dead_letters.discard_matching(replace(request, before=step.next_before))
        assert (last.matched, len(last.discarded), last.next_before) == (1, 1, None)
        found = dead_letters.list(status="discarded").items
        ids = [one.dead_letter_id for one in found]
        assert ids == step.discarded + last.discarded
        assert {(one.resolved_by, one.resolution) for one in found} == {("ann", "a test")}
        noted = harness.store.read(
            lambda tx: [journal_for(tx, "dead_letter", decode("dl", one)) for one in ids]
        )
        assert [[(one.action, one.why) for one in entries] for entries in noted] == [
            [("discarded", "a test")]
        ] * 3
        assert harness.client.dead_letters.count() == 1, "that of the other customer"
        for field, bad in (
            ("limit", DiscardRequest(limit=501, reason="x")),
            ("reason", DiscardRequest(reason="")),
            ("before", DiscardRequest(before="dl_?", reason="x")),
        ):
            with pytest.raises(InvalidInput, match=field):
                dead_letters.discard_matching(bad)

    def test_replay_edited(self, harness: Harness) -> None:
        """A replay creates a new run, optionally with other parameters, and only once."""
        run_id = harness.dead_run()
        dead_letters = harness.client.dead_letters
        number = dead_letter_id_of(harness, run_id)
        with pytest.raises(InvalidInput, match="parameters"):
            dead_letters.replay(number, DeadLetterEdit(data=b"x"))
        with pytest.raises(InvalidInput, match=r"parameters\.days"):
            dead_letters.replay(number, DeadLetterEdit(parameters={"days": "not a number"}))
        edit = DeadLetterEdit(parameters={"region": "eu"})
        new_id = harness.client.as_actor("ann").dead_letters.replay(number, edit).replayed_as
        new = harness.run(decode("run", new_id))
        assert (new.parent_run_id, new.parameters) == (encode("run", run_id), {"region": "eu"})
        (closed,) = dead_letters.list(status="replayed").items
        assert (closed.resolved_by, closed.resolution) == ("ann", f"replayed as {new_id}")
        with pytest.raises(Conflict, match="was replayed"):
            dead_letters.replay(number)

    def test_replay_by_filter(self, harness: Harness) -> None:
        """Steps continue after the previous one, spread by the rate; a dry run changes nothing."""
        for _ in range(3):
            harness.dead_run()
        dead_letters = harness.client.dead_letters
        would = dead_letters.replay_matching(ReplayRequest(customer="acme", is_dry_run=True))
        assert (would.matched, len(would.replayed), would.is_dry_run) == (3, 3, True)
        assert dead_letters.count() == 3
        step = dead_letters.replay_matching(ReplayRequest(limit=2, rate=0.5))
        assert (step.matched, len(step.replayed), step.left) == (3, 2, 1)
        last = dead_letters.replay_matching(
            ReplayRequest(limit=2, rate=0.5, before=step.next_before, start_at=step.next_at)
        )
        assert (last.matched, len(last.replayed), last.next_before) == (1, 1, None)
        runs = [
            harness.run(decode("run", one.replayed_as or ""))
            for one in step.replayed + last.replayed
        ]
        now = to_datetime(harness.clock.now())
        assert [(run.scheduled_time - now).total_seconds() for run in runs] == [0, 2, 4]
        for field, bad in (
            ("limit", ReplayRequest(limit=0)),
            ("rate", ReplayRequest(rate=0.0)),
            ("before", ReplayRequest(before="dl_?")),
        ):
            with pytest.raises(InvalidInput, match=field):
                dead_letters.replay_matching(bad)

    def test_steps_go_past_the_refused(self, harness: Harness) -> None:
        """What is left after a step does not count those that earlier steps refused."""
        for _ in range(2):
            harness.dead_run()
        harness.dead_run(pipeline="pair", processor="left")
        dead_letters = harness.client.dead_letters
        for _ in range(3):
            dead_letters.replay_matching(ReplayRequest(processor="left"))
            harness.fail(harness.take())
        step = dead_letters.replay_matching(ReplayRequest(limit=1))
        assert (step.matched, len(step.refused), step.left) == (3, 1, 2)
        step = dead_letters.replay_matching(ReplayRequest(limit=1, before=step.next_before))
        assert (step.matched, len(step.replayed), step.left) == (3, 1, 1)
        last = dead_letters.replay_matching(ReplayRequest(limit=1, before=step.next_before))
        assert (len(last.replayed), last.left, last.next_before) == (1, 0, None)
        assert dead_letters.count() == 1

    def test_replays_are_limited(self, harness: Harness) -> None:
        """A run that failed after three replays is refused with a reason by a filter replay."""
        run_id = harness.dead_run()
        for _ in range(3):
            step = harness.client.dead_letters.replay_matching(ReplayRequest())
            (one,) = step.replayed
            run_id = decode("run", one.replayed_as or "")
            held = harness.take()
            assert held.run_id == run_id
            harness.fail(held)
        step = harness.client.dead_letters.replay_matching(ReplayRequest())
        assert step.replayed == []
        assert "already replayed 3 times" in step.refused[0].why
        assert harness.retry(run_id), "a single retry is not limited"
