"""Use cases of runs, on both engines."""

import itertools
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.client import Client
from penstock.core.clock import HOUR, MINUTE, iso, to_datetime
from penstock.core.errors import (
    Conflict,
    DuplicateRequest,
    IllegalTransition,
    InvalidInput,
    NotFound,
)
from penstock.core.ids import decode, encode
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs import attempt_result
from penstock.runs.records import Submission
from penstock.runs.rows import Progress
from penstock.runs.store import leases
from tests.kits.client_harness import Harness
from tests.kits.configs import cfg, change_of

NIGHTLY = Submission(pipeline="nightly")
BAD: list[tuple[str, Any]] = [
    ("priority", 0), ("priority", 11), ("priority", "5"), ("priority", 5.5),
    ("priority", True), ("priority", None),
    ("at", -1), ("at", 2**63), ("at", 1.5), ("at", "tomorrow"), ("at", True),
    ("at", datetime(2025, 1, 1)), ("at", datetime(1969, 1, 1, tzinfo=UTC)),  # noqa: DTZ001
    ("at", datetime(9995, 1, 1, tzinfo=UTC)),
    ("partition", ""), ("partition", "a\x00"), ("partition", 5), ("partition", "x" * 300),
    ("ordering_key", "\ud800"), ("ordering_key", ""),
    ("correlation_id", ["x"]), ("correlation_id", "a\nb"),
    ("parameters", []), ("parameters", "x"), ("parameters", {"days": 0}),
    ("parameters", {"days": "1"}), ("parameters", {"x": float("nan")}),
    ("parameters", {"x": "\x00"}), ("parameters", {"x": {1}}), ("parameters", {1: 2}),
    ("parameters", {"x": "y" * 70_000}), ("parameters", {"x": 2**70}),
    ("processor", "nope"), ("processor", 5), ("processor", ""),
    ("pipeline", "nightlie"), ("pipeline", ""), ("pipeline", 5), ("pipeline", None),
    ("pipeline", ["nightly"]),
    ("customer", ""), ("customer", "a b"), ("customer", 5), ("customer", "acme\n"),
]  # fmt: skip


class TestSubmit:
    """Creation of runs."""

    def test_a_submitted_run_is_pending_and_due(self, harness: Harness) -> None:
        """A run has its defaults and can be read and claimed as soon as the call returns."""
        run_id = harness.client.runs.submit(NIGHTLY).run_id
        run = harness.client.runs.get(run_id)
        assert (run.state, run.customer, run.priority) == ("PENDING", "default", 5)
        now = to_datetime(harness.clock.now())
        assert (run.occurrence_time, run.scheduled_time) == (now, now)
        assert encode("run", harness.take().run_id) == run_id

    def test_submitted_fields_are_kept(self, harness: Harness) -> None:
        """The run has every field of its submission."""
        run_id = harness.submit(
            partition="2025-11-17", priority=9, parameters={"days": 3}, ordering_key="k",
            correlation_id="why", processor="main.work",
        )  # fmt: skip
        run = harness.run(run_id)
        assert (run.customer, run.partition, run.priority) == ("acme", "2025-11-17", 9)
        assert run.ordering_key == "k"
        assert (run.parameters, run.correlation_id) == ({"days": 3}, "why")
        assert harness.detail(run_id).journal[0].actor == "tester"

    def test_many_at_once_keep_their_order(self, harness: Harness) -> None:
        """Submissions get ids in their order; an empty list creates nothing."""
        wanted = [Submission(pipeline="nightly", customer=f"c{i % 3}") for i in range(50)]
        ids = harness.client.runs.submit_many(wanted)
        numbers = [decode("run", run_id) for run_id in ids]
        assert numbers == sorted(numbers)
        customers = [harness.client.runs.get(run_id).customer for run_id in ids[:4]]
        assert customers == ["c0", "c1", "c2", "c0"]
        assert harness.client.runs.submit_many([]) == []

    def test_many_are_all_or_none(self, harness: Harness) -> None:
        """If one submission is invalid, nothing is stored, not even a customer."""
        before = harness.counts()
        good = Submission(pipeline="nightly", customer="fresh")
        for bad in (
            Submission(pipeline="nightly", customer="not a customer"),
            Submission(pipeline="nightly", priority=11),
            Submission(pipeline="nightly", parameters={"days": 99}),
        ):
            with pytest.raises(InvalidInput):
                harness.client.runs.submit_many([good, bad, good])
        assert harness.counts() == before

    def test_a_deferred_run_waits(self, harness: Harness) -> None:
        """A run with `at` can be claimed from that time on, once the admitter has run."""
        at = harness.clock.now() + HOUR
        run_id = harness.submit(at=to_datetime(at))
        assert harness.admitter.run_once().next_at == at
        assert harness.claim() == []
        harness.clock.advance_to(at - 1)
        assert harness.admitter.run_once().runs == 0
        harness.clock.advance(1)
        assert harness.admitter.run_once().runs == 1
        assert harness.take().run_id == run_id

    def test_invalid_fields_are_named(self, harness: Harness) -> None:
        """The error names the invalid field, and nothing is stored."""
        before = harness.counts()
        for field, value in BAD:
            with pytest.raises(InvalidInput) as caught:
                harness.submit(**{field: value})
            known = {"customer": "customer_id"}.get(field, field)
            assert caught.value.field.startswith(known), (field, value)
        assert harness.counts() == before

    def test_a_similar_pipeline_is_suggested(self, harness: Harness) -> None:
        """The error for a misspelled pipeline suggests a similar name."""
        with pytest.raises(InvalidInput, match="Did you mean 'nightly'"):
            harness.submit("nightli")

    def test_several_processors_need_a_choice(self, harness: Harness) -> None:
        """If a pipeline has several processors, one must be named; the error lists them."""
        with pytest.raises(InvalidInput, match=r"entry\.left, entry\.right"):
            harness.submit("pair")
        assert harness.run(harness.submit("pair", processor="left")).processor == "left"


class TestKeys:
    """Repeated submissions with an idempotency key."""

    def test_the_same_request_is_the_same_run(self, harness: Harness) -> None:
        """A repeated submit with the same key returns the same run, even after it has ended."""
        wanted = Submission(pipeline="nightly", customer="acme", parameters={"days": 2, "a": 1})
        again = Submission(pipeline="nightly", customer="acme", parameters={"a": 1, "days": 2})
        first = harness.client.runs.submit(wanted, key="k1")
        assert harness.client.runs.submit(again, key="k1") == first
        harness.complete(harness.take())
        assert harness.client.runs.submit(wanted, key="k1") == first
        assert harness.counts("runs", "history") == {"runs": 0, "history": 1}

    def test_another_body_is_refused(self, harness: Harness) -> None:
        """The same key with another submission is refused and stores nothing."""
        wanted = Submission(pipeline="nightly", customer="acme")
        harness.client.runs.submit(wanted, key="k")
        before = harness.counts()
        for other in (
            Submission(pipeline="nightly", customer="acme", priority=6),
            Submission(pipeline="nightly", customer="acme", parameters={"days": 2}),
            Submission(pipeline="outside", customer="acme"),
        ):
            with pytest.raises(DuplicateRequest):
                harness.client.runs.submit(other, key="k")
        assert harness.counts() == before

    def test_keys_belong_to_their_customer(self, harness: Harness) -> None:
        """Two customers can use the same key independently."""
        one = harness.client.runs.submit(Submission(pipeline="nightly", customer="a"), key="k")
        two = harness.client.runs.submit(Submission(pipeline="nightly", customer="b"), key="k")
        assert one != two

    def test_bad_keys(self, harness: Harness) -> None:
        """A key is 1 to 255 printable characters."""
        keys: list[Any] = ["", "x" * 256, "a\x00", "\ud800", 5]
        for key in keys:
            with pytest.raises(InvalidInput) as caught:
                harness.client.runs.submit(NIGHTLY, key=key)
            assert caught.value.field == "key"

    def test_a_failed_submit_frees_its_key(self, harness: Harness) -> None:
        """A refused submit does not use up its key."""
        with pytest.raises(InvalidInput):
            harness.client.runs.submit(Submission(pipeline="nightly", priority=99), key="k")
        assert harness.client.runs.submit(NIGHTLY, key="k").run_id

    def test_concurrent_callers_get_one_run(self, harness: Harness) -> None:
        """Concurrent callers with one key all get the same run."""
        barrier = threading.Barrier(6)
        run_ids: list[str] = []

        def call() -> None:
            barrier.wait(60)
            run_ids.append(harness.client.runs.submit(NIGHTLY, key="race").run_id)

        threads = [threading.Thread(target=call) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(run_ids) == 6
        assert len(set(run_ids)) == 1
        assert harness.counts("runs") == {"runs": 1}


class TestCancel:
    """Cancellation of runs."""

    def test_a_pending_run_is_cancelled_at_once(self, harness: Harness) -> None:
        """A pending run ends immediately, with actor and reason, without a retry or dead letter."""
        run_id = harness.submit()
        assert harness.cancel(run_id, reason="mistake", actor="ann") == "cancelled"
        run = harness.run(run_id)
        assert (run.state, run.status) == ("CANCELLED", None)
        last = harness.detail(run_id).journal[-1]
        assert (last.actor, last.why) == ("ann", "mistake")
        assert (last.from_state, last.to_state) == ("PENDING", "CANCELLED")
        assert harness.claim() == []
        assert harness.client.dead_letters.list().items == []

    def test_the_journal_names_who_requested_a_cancel(self, harness: Harness) -> None:
        """When the holder confirms a cancel, the journal has the requester and the reason."""
        run_id = harness.submit()
        held = harness.take()
        assert harness.cancel(run_id, reason="too long", actor="ann") == "asked"
        harness.end(attempt_result.cancelled(held, actor="w1", why="cancelled while running"))
        last = harness.detail(run_id).journal[-1]
        assert (last.actor, last.why) == ("ann", "too long")
        assert (last.from_state, last.to_state) == ("RUNNING", "CANCELLED")

    def test_a_claimed_run_that_ran_ended_from_running(self, harness: Harness) -> None:
        """A run can end without separate claim and start rows; the transition is still legal."""
        run_id = harness.submit()
        held = harness.take(start=False)
        harness.end(attempt_result.completed_result(held, duration_us=5))
        last = harness.detail(run_id).journal[-1]
        assert (last.from_state, last.to_state) == ("RUNNING", "COMPLETED")

    def test_waiting_runs_are_cancelled_too(self, harness: Harness) -> None:
        """A pending run can be cancelled whatever it waits for."""
        ready, blocked = harness.submit(ordering_key="k"), harness.submit(ordering_key="k")
        later = harness.submit(at=to_datetime(harness.clock.now() + HOUR))
        harness.client.pauses.pause("all", None)
        paused = harness.submit()
        ids = (blocked, later, paused, ready)
        assert [harness.run(i).waits for i in ids] == ["blocked", "paused", "paused", "paused"]
        assert [harness.cancel(i) for i in ids] == ["cancelled"] * 4
        assert harness.counts("runs") == {"runs": 0}

    def test_cancelling_unblocks_the_next_run(self, harness: Harness) -> None:
        """Cancelling a run unblocks the next run of its ordering key."""
        first, second = harness.submit(ordering_key="k"), harness.submit(ordering_key="k")
        harness.cancel(first)
        harness.admitter.run_once()
        assert harness.take().run_id == second

    def test_cancel_request_for_a_held_run(self, harness: Harness) -> None:
        """A cancel of a held run is recorded once; the run continues until its holder stops it."""
        run_id = harness.submit()
        session = harness.session()
        held = harness.take(start=False, session=session)
        assert harness.cancel(run_id) == "asked"
        requested_at = harness.run(run_id).cancel_requested_at
        assert requested_at == to_datetime(harness.clock.now())
        harness.clock.advance(MINUTE)
        assert harness.cancel(run_id) == "asked"
        assert harness.run(run_id).cancel_requested_at == requested_at
        cancels = harness.store.read(lambda tx: leases.session_held(tx, session))
        assert cancels == {held.token: True}

    def test_a_run_that_ignores_its_stop_is_ended_by_force(self, harness: Harness) -> None:
        """It fails permanently, and the request is recorded; its holder is fenced."""
        run_id, following = harness.submit(ordering_key="k"), harness.submit(ordering_key="k")
        held = harness.take(session=harness.session())
        harness.cancel(run_id)
        asked = harness.clock.now()
        harness.clock.advance(MINUTE)
        name = encode("run", run_id)
        done = harness.client.as_actor("ann").runs.cancel(name, reason="hung", force=True)
        assert done.outcome == "forced"
        run = harness.run(run_id)
        assert (run.state, run.error_type, run.is_dead) == ("FAILED", "STOP_IGNORED", True)
        assert run.error_details["message"].startswith("Ended by ann while tester was")
        assert iso(asked) in run.error_details["message"]
        last = harness.detail(run_id).journal[-1]
        assert (last.actor, last.to_state) == ("ann", "FAILED")
        assert "hung" in str(last.why)
        assert harness.complete(held) == []
        harness.admitter.run_once()
        assert harness.take().run_id == following
        assert harness.retry(run_id)

    def test_force_cancels_a_pending_run_and_refuses_an_ended_one(self, harness: Harness) -> None:
        """Force adds nothing for a run that no worker executes."""
        name = encode("run", harness.submit())
        assert harness.client.runs.cancel(name, force=True).outcome == "cancelled"
        with pytest.raises(IllegalTransition, match="CANCELLED"):
            harness.client.runs.cancel(name, force=True)

    def test_an_ended_run_stays_ended(self, harness: Harness) -> None:
        """A cancel of an ended run is refused and changes nothing."""
        run_id = harness.submit()
        harness.complete(harness.take())
        before = harness.run(run_id)
        with pytest.raises(IllegalTransition, match="COMPLETED"):
            harness.cancel(run_id)
        assert harness.run(run_id) == before

    def test_another_customers_run_is_not_found(self, harness: Harness) -> None:
        """No use case finds a run under another customer's name."""
        run_id = harness.dead_run()
        harness.submit(customer="other")
        runs = harness.client.scoped("other").runs
        calls: list[Callable[[str], object]] = [runs.get, runs.detail, runs.retry, runs.cancel]
        for call in calls:
            with pytest.raises(NotFound):
                call(encode("run", run_id))
        with pytest.raises(NotFound, match="customer"):
            harness.client.scoped("unknown")
        runs = harness.client.runs
        for name in (encode("run", 999_999), "run_malformed", "17"):
            for call in (runs.get, runs.detail, runs.retry, runs.cancel):
                with pytest.raises(NotFound, match=name):
                    call(name)


class TestRetry:
    """Retries of ended runs."""

    def test_an_ended_run_is_retried(self, harness: Harness) -> None:
        """A retry starts a new chain with the same work, linked to the original run."""
        run_id = harness.submit(
            partition="p", priority=8, parameters={"days": 4}, ordering_key="k",
            correlation_id="c",
        )  # fmt: skip
        harness.complete(harness.take())
        new_id = harness.retry(run_id, actor="ann")
        new, old = harness.run(new_id), harness.run(run_id)
        same = ("customer", "pipeline", "processor", "partition", "priority", "parameters",
                "correlation_id", "ordering_key")  # fmt: skip
        assert [getattr(new, n) for n in same] == [getattr(old, n) for n in same]
        assert (new.parent_run_id, new.attempt, new.state) == (old.run_id, 1, "PENDING")
        assert harness.take().run_id == new_id

    def test_a_dead_letter_is_replayed(self, harness: Harness) -> None:
        """Retrying a dead run closes its dead letter as replayed, once."""
        run_id = harness.dead_run()
        (dead_letter,) = harness.client.dead_letters.list().items
        assert dead_letter.run_id == encode("run", run_id)
        assert dead_letter.error_type == "VALIDATION_ERROR"
        new_id = harness.retry(run_id)
        assert harness.client.dead_letters.list().items == []
        (dead_letter,) = harness.client.dead_letters.list(status="replayed").items
        assert dead_letter.replays == 1
        with pytest.raises(Conflict, match="already retries this run"):
            harness.retry(run_id)
        harness.cancel(new_id)
        assert harness.retry(run_id) != new_id
        assert [d.replays for d in harness.client.dead_letters.list(status="all").items] == [1]

    def test_a_live_run_is_not_retried(self, harness: Harness) -> None:
        """A run that has not ended cannot be retried."""
        run_id = harness.submit()
        with pytest.raises(IllegalTransition):
            harness.retry(run_id)
        harness.take()
        with pytest.raises(IllegalTransition):
            harness.retry(run_id)

    def test_a_configs_run_keeps_its_config(self, harness: Harness) -> None:
        """The retry of a config's run uses its parameters and limits and updates its health."""
        config = harness.config(
            parameters={"days": 7}, max_execution_duration_minutes=5,
            sla_breach_threshold_minutes=9, retry_config={"max_attempts": 9},
        )  # fmt: skip
        harness.clock.advance(HOUR)
        harness.tick()
        held = harness.take()
        harness.fail(held)
        assert harness.client.configs.get(cfg(config)).consecutive_failures == 1
        harness.retry(held.run_id)
        again = harness.take()
        assert again.config_id == config.config_id
        assert (again.parameters, again.max_execution_us) == ('{"days": 7}', 5 * MINUTE)
        assert (again.sla_us, again.retry) == (9 * MINUTE, '{"max_attempts": 9}')
        harness.complete(again)
        assert harness.client.configs.get(cfg(config)).consecutive_failures == 0

    def test_a_retry_replaces_no_occurrence(self, harness: Harness) -> None:
        """A retry at a scheduled time does not replace the occurrence at that time."""
        config = harness.config(overlap="allow")
        harness.clock.advance(HOUR)
        harness.tick()
        held = harness.take()
        harness.fail(held)
        harness.clock.advance(HOUR)
        harness.retry(held.run_id)
        assert harness.tick().runs == 1
        first, second = held.occurrence_time, harness.clock.now()
        assert harness.occurrences(config.config_id) == [first, first, second]

    def test_a_retired_processor(self, harness: Harness) -> None:
        """The retry of a run whose processor is no longer declared is refused."""
        run_id = harness.dead_run()
        renamed = Pipeline("nightly")
        renamed.processor("other")(lambda _: None)
        harness.client.register([renamed])
        with pytest.raises(Conflict, match="nightly/main/work"):
            harness.retry(run_id)


class TestReading:
    """Reading of runs."""

    def _mixed(self, harness: Harness) -> list[int]:
        """Create ten runs, alternately ended and live, and one of another customer."""
        ids = [harness.submit() for _ in range(10)]
        held = {run.run_id: run for run in harness.claim()}
        harness.complete(*[held[i] for i in ids[::2]])
        harness.submit(customer="other")
        return ids

    def test_pages_show_every_run_once(self, harness: Harness) -> None:
        """Paging by the last run returns each run exactly once, live runs first."""
        ids = self._mixed(harness)
        runs = harness.client.runs
        for limit, customer in itertools.product((1, 2, 3, 7), (None, "acme")):
            others = [] if customer else [max(ids) + 1]
            expected = others + ids[1::2][::-1] + ids[::2][::-1]
            seen: list[int] = []
            page = runs.list(customer=customer, limit=limit)
            while page.items:
                assert len(page.items) <= limit
                seen += [decode("run", run.run_id) for run in page.items]
                page = runs.list(customer=customer, limit=limit, before=page.items[-1].run_id)
            assert seen == expected
            seen = []
            cursor = None
            while not seen or cursor is not None:
                page = runs.list(customer=customer, limit=limit, cursor=cursor)
                seen += [decode("run", run.run_id) for run in page.items]
                cursor = page.next_cursor
            assert seen == expected
            second = runs.list(customer=customer, limit=limit, offset=limit)
            numbers = [decode("run", run.run_id) for run in second.items]
            assert numbers == expected[limit : 2 * limit]

    def test_filters(self, harness: Harness) -> None:
        """Pages can be filtered by state, config and time window."""
        ids = self._mixed(harness)

        def page(**fields: Any) -> list[int]:
            found = harness.client.runs.list(customer="acme", **fields)
            return [decode("run", run.run_id) for run in found.items]

        assert page(state="COMPLETED") == ids[::2][::-1]
        assert page(state="RUNNING") == ids[1::2][::-1]
        assert page(state="PENDING") == []
        now = to_datetime(harness.clock.now())
        assert page(since=now + timedelta(microseconds=1)) == []
        assert page(since=now) == page()
        assert page(until=now) == []

    def test_bad_filters(self, harness: Harness) -> None:
        """An unknown state or an invalid limit raises an error that names the field."""
        bad: list[dict[str, Any]] = [
            {"limit": 0}, {"limit": -1}, {"limit": 10**9}, {"limit": "5"}, {"state": "DONE"},
            {"since": 5}, {"until": datetime(2025, 1, 1)}, {"pipeline": "nightlie"},  # noqa: DTZ001
            {"cursor": "forged"},
        ]  # fmt: skip
        for fields in bad:
            with pytest.raises(InvalidInput) as caught:
                harness.client.runs.list(**fields)
            assert caught.value.field == next(iter(fields))

    def test_detail(self, harness: Harness) -> None:
        """The detail has the other attempts, the journal and the live progress."""
        harness.config(retry_config={"base_delay_minutes": 0})
        harness.clock.advance(HOUR)
        harness.tick()
        first = harness.take()
        (ended,) = harness.fail(first, error_type="SERVICE_UNAVAILABLE")
        harness.admitter.run_once()
        second = harness.take()
        assert (second.run_id, second.attempt) == (ended.retry_run_id, 2)
        row = (second.run_id, second.token, Progress(stage="load", percent=40.0))
        harness.write(lambda tx: leases.progress_put_many(tx, [row]))
        detail = harness.detail(second.run_id)
        assert [run.run_id for run in detail.attempts] == [encode("run", first.run_id)]
        assert detail.progress is not None
        assert (detail.progress.stage, detail.progress.percent) == ("load", 40.0)
        assert detail.progress.last_heartbeat_at == to_datetime(harness.clock.now())
        assert [row.action for row in detail.journal] == ["created"]
        old = harness.detail(first.run_id)
        assert [row.action for row in old.journal] == ["created", "ended"]
        assert old.progress is None
        assert [(run.run_id, run.state) for run in old.attempts] == [
            (encode("run", second.run_id), "RUNNING")
        ]
        (top, below, *_) = harness.client.diagnostics.why_run(encode("run", first.run_id)).causes
        assert "attempt 1 of it is retried by attempt 2" in top.text
        assert encode("run", second.run_id) in below.text
        harness.complete(second)
        why = harness.client.diagnostics.why_run(encode("run", first.run_id)).causes
        assert why[0].text.endswith("nothing is pending")


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_a_fresh_client_in_memory(harness: Harness) -> None:
    """A client with an empty cache works on the single connection of an in-memory store."""
    config = harness.config(overlap="allow")
    run_id = harness.dead_run()
    assert Client(harness.store).configs.start(cfg(config)).run_ids
    assert Client(harness.store).runs.retry(encode("run", run_id)).run_id
    assert Client(harness.store).pauses.pause("pipeline", "nightly").is_changed
    assert (
        Client(harness.store).configs.update(cfg(config), change_of({"priority": 2})).priority == 2
    )


class TestOrderingKeys:
    """Ordering keys are scoped to a customer."""

    def test_keys_of_other_customers_do_not_block(self, harness: Harness) -> None:
        """Runs of two customers with the same ordering key do not block each other."""
        mine = harness.submit(ordering_key="k", customer="one")
        other = harness.submit(ordering_key="k", customer="two")
        assert [harness.run(run_id).waits for run_id in (mine, other)] == ["ready", "ready"]
