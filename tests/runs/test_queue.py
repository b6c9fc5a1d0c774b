"""Runs from insertion to claim: insert, claim, start, release, lapse."""

import json
from functools import partial

import pytest

from penstock.access.store import registry
from penstock.audit.store import journal
from penstock.core.clock import HOUR, MINUTE, SECOND
from penstock.core.naming import CustomerKey
from penstock.db.store import Store, Tx
from penstock.runs.rows import FinishedRun, RunEnd, RunRow
from penstock.runs.store import admission, leases, runs
from penstock.runs.store.lists import pages as lists
from penstock.runs.store.lists.ended_walk import run_list_by_time
from tests.conftest import ALL_ENGINES, OpenStore
from tests.kits.world import World

pytestmark = pytest.mark.parametrize("engine", ALL_ENGINES, indirect=True)

READY, LATER, PAUSED, BLOCKED, HELD = 0, 1, 2, 3, 9


class TestInsert:
    """Creating runs."""

    def test_defaults(self, world: World) -> None:
        """A run with only customer and processor is due now, with the processor's time limit."""
        run = world.run(world.insert_one())
        now = world.clock.now()
        assert (run.customer_id, run.pipeline, run.phase, run.processor) == (
            "acme", "etl", "main", "extract",
        )  # fmt: skip
        assert (run.occurrence_time, run.scheduled_time, run.created_at) == (now, now, now)
        assert (run.priority, run.attempt, run.lapses, run.state) == (5, 1, 0, "PENDING")
        assert (run.max_execution_us, run.trigger_source, run.admission) == (HOUR, "manual", READY)
        assert (run.config_id, run.flow_id, run.parent_run_id, run.claimed_by) == (None,) * 4

    def test_given_fields_are_kept(self, world: World) -> None:
        """Values given by the caller override every default."""
        fields = {
            "partition": "2025-12-31", "mode": "backfill", "occurrence_time": 5,
            "scheduled_time": 7, "priority": 9, "attempt": 2, "max_execution_us": 11,
            "ordering_key": "k'\"%s",
            "parameters": '{"a": "ü"}', "correlation_id": "c-1",
            "parent_run_id": 3, "root_run_id": 2, "trigger_source": "api",
        }  # fmt: skip
        run = world.run(world.insert_one(**fields))
        assert {name: getattr(run, name) for name in fields} == fields
        held = world.claim_one()
        assert (held.parameters, held.ordering_key) == ('{"a": "ü"}', "k'\"%s")

    def test_slot_defaults_to_scheduled_time(self, world: World) -> None:
        """The slot of a run scheduled for later defaults to that time."""
        later = world.clock.now() + HOUR
        run = world.run(world.insert_one(scheduled_time=later))
        assert (run.occurrence_time, run.admission) == (later, LATER)

    def test_ids_follow_the_batch(self, world: World) -> None:
        """Ids ascend in batch order, regardless of customer, priority or time."""
        names = [f"c{i}" for i in range(7)]
        customers = world.customers(*names)
        new = [
            world.new(
                customer_key=customers[i % 7],
                priority=1 + i * 7 % 10,
                scheduled_time=world.clock.now() + (i % 3 - 1) * HOUR,
                parameters=str(i),
            )
            for i in range(500)
        ]
        ids = world.insert_all(new)
        assert ids == sorted(ids)
        assert len(set(ids)) == 500
        rows = world.sql("SELECT parameters FROM runs ORDER BY run_id")
        assert [row[0] for row in rows] == [str(i) for i in range(500)]

    def test_admission_of_each_run(self, world: World) -> None:
        """Each run of a batch is evaluated by itself: ready, later, paused, blocked."""
        (quiet,) = world.customers("quiet")
        world.write(lambda tx: admission.pause_put(tx, "customer", quiet, "op", "why"))
        later = world.clock.now() + 1
        ids = world.insert_all(
            [
                world.new(),
                world.new(scheduled_time=later),
                world.new(customer_key=quiet),
                world.new(customer_key=quiet, scheduled_time=later),
                world.new(ordering_key="k"),
                world.new(ordering_key="k"),
                world.new(scheduled_time=world.clock.now()),
            ]
        )
        assert world.marks(ids) == [READY, LATER, PAUSED, PAUSED, READY, BLOCKED, READY]

    def test_each_insert_is_journalled_once(self, world: World) -> None:
        """Creation writes one journal row with actor, state and reason."""
        ids = world.insert(3, trigger_source="api")
        for run_id in ids:
            (row,) = world.journal(run_id)
            assert (row.action, row.actor, row.from_state, row.to_state, row.why) == (
                "created", "tester", None, "PENDING", "api",
            )  # fmt: skip
            assert (row.at, row.customer_key) == (world.clock.now(), world.customer)

    def test_same_occurrence_is_created_once(self, world: World) -> None:
        """A second run for (config, slot, processor, attempt) is not created, without a trace."""
        config = world.config(cadence=None)
        first = world.insert_one(config_id=config, occurrence_time=5)
        before = world.dump("runs", "journal", "outbox")
        assert world.insert(config_id=config, occurrence_time=5) == []
        assert world.dump("runs", "journal", "outbox") == before
        again = world.insert_all(
            [world.new(config_id=config, occurrence_time=s) for s in (4, 5, 6, 6)]
        )
        assert len(again) == 2
        assert first not in again
        assert [world.run(i).occurrence_time for i in again] == [4, 6]

    def test_same_flow_is_created_once(self, world: World) -> None:
        """A flow has one run per processor and attempt."""
        world.insert_one(flow_id=7)
        assert world.insert(flow_id=7) == []
        assert len(world.insert(flow_id=7, attempt=2)) == 1

    def test_empty_batch(self, world: World) -> None:
        """Inserting nothing does nothing."""
        assert world.insert_all([]) == []

    def test_announced_if_topic_exists(self, world: World) -> None:
        """Ready runs are announced on the bus, but only if the topic exists."""
        world.insert_one()
        assert world.dump("outbox")["outbox"] == []
        world.write(lambda tx: registry.topic_ensure(tx, "penstock.runs"))
        config = world.config(cadence=None)
        run_id = world.insert_one(config_id=config, priority=7)
        world.insert_one(scheduled_time=world.clock.now() + 1)
        (message,) = world.write(lambda tx: journal.outbox_take(tx, 10))
        assert message.topic == "penstock.runs"
        assert json.loads(message.payload) == {
            "run_id": run_id, "config_id": config, "customer": world.customer, "priority": 7,
        }  # fmt: skip
        world.clock.advance(1)
        assert world.admit() == 1
        assert len(world.write(lambda tx: journal.outbox_take(tx, 10))) == 1

    def test_a_refused_row_refuses_the_batch(self, world: World) -> None:
        """A priority outside 1 to 10 is refused and nothing of the batch is written."""
        before = world.dump()
        with pytest.raises(Exception, match=r"(?i)check|constraint"):
            world.insert_all([world.new(), world.new(priority=11)])
        assert world.dump() == before


class TestClaim:
    """Claiming runs."""

    def test_order(self, world: World) -> None:
        """Runs are claimed by priority, then fair rank, then age."""
        low, high, mid1, mid2 = world.insert_all([world.new(priority=p) for p in (1, 10, 5, 5)])
        assert [h.run_id for h in world.claim()] == [high, mid1, mid2, low]

    def test_only_due_runs(self, world: World) -> None:
        """A run can be claimed once it is due and admitted, not earlier."""
        run_id = world.insert_one(scheduled_time=world.clock.now() + SECOND)
        assert world.claim() == []
        world.clock.advance(SECOND - 1)
        assert world.admit() == 0
        assert world.claim() == []
        world.clock.advance(1)
        assert world.admit() == 1
        assert [h.run_id for h in world.claim()] == [run_id]

    def test_never_twice(self, world: World) -> None:
        """A claimed run is not claimed again, whatever the batch size."""
        ids = set(world.insert(25))
        got = [h.run_id for n in (10, 10, 10, 10) for h in world.claim(n=n)]
        assert len(got) == 25
        assert set(got) == ids

    def test_filters(self, world: World) -> None:
        """Pool, processors and customer restrict what is claimed."""
        other_pool = world.write(lambda tx: registry.pool_ensure(tx, "gpu"))
        world.pipeline_add("ml", ["train"])
        (train,) = world.processors("ml")
        world.pipeline_add("heavy", ["render"], pool=other_pool)
        (render,) = world.processors("heavy")
        (beta,) = world.customers("beta")
        plain, trained, rendered, betas = world.insert_all(
            [
                world.new(),
                world.new(processor_key=train),
                world.new(processor_key=render),
                world.new(customer_key=beta),
            ]
        )
        assert world.claim(processors=[]) == []
        assert [h.run_id for h in world.claim(processors=[train])] == [trained]
        assert [h.run_id for h in world.claim(customer_key=beta)] == [betas]
        assert [h.run_id for h in world.claim(pool_key=other_pool)] == [rendered]
        assert [h.run_id for h in world.claim()] == [plain]

    def test_what_the_holder_sees(self, world: World) -> None:
        """A claim returns everything a worker needs, as of the time of the claim."""
        session = world.session()
        run_id = world.insert_one(occurrence_time=1, sla_us=9, trigger_message_id="m1")
        world.clock.advance(SECOND)
        held = world.claim_one(session_id=session, claimed_by="w1")
        assert (held.run_id, held.state, held.customer_id) == (run_id, "CLAIMED", "acme")
        assert (held.claimed_by, held.session_id) == ("w1", session)
        assert (held.claimed_at, held.started_at) == (world.clock.now(), None)
        assert (held.occurrence_time, held.sla_us, held.trigger_message_id) == (1, 9, "m1")
        run = world.run(run_id)
        assert (run.state, run.admission, run.token) == ("CLAIMED", HELD, held.token)

    def test_a_swept_session_claims_nothing(self, world: World) -> None:
        """A claim that arrives after its session was swept changes nothing."""
        gone, alive = world.session("gone"), world.session("alive")
        world.write(lambda tx: leases.session_close(tx, gone))
        run_id = world.insert_one()
        before = world.dump()
        assert world.claim(session_id=gone) == []
        assert world.dump() == before
        assert world.claim_one(session_id=alive).run_id == run_id

    def test_start_at_once(self, world: World) -> None:
        """`start` claims a run as RUNNING."""
        world.insert_one()
        held = world.claim_one(start=True)
        assert (held.state, held.started_at) == ("RUNNING", world.clock.now())

    def test_config_fills_in(self, world: World) -> None:
        """Parameters and retry settings come from the config unless the run has its own."""
        config = world.config(cadence=None, parameters='{"a":1}', retry='{"max_attempts":2}')
        world.insert_all([world.new(config_id=config, occurrence_time=1)])
        world.insert_all([world.new(config_id=config, occurrence_time=2, parameters='{"b":2}')])
        one, two = world.claim()
        assert (one.parameters, one.retry) == ('{"a":1}', '{"max_attempts":2}')
        assert two.parameters == '{"b":2}'

    def test_tokens_increase(self, world: World) -> None:
        """Every claim gets a token higher than any before, even after the runs in between ended."""
        seen: list[int] = []
        for attempt_number in range(6):
            world.insert(3)
            held = world.claim()
            seen += sorted(h.token for h in held)
            assert len({h.token for h in held}) == 3
            if attempt_number % 2:
                world.release(*held)
                world.admit()
                held = world.claim()
                seen += sorted(h.token for h in held)
            world.complete(*held)
        assert seen == sorted(set(seen))

    def test_by_id(self, world: World) -> None:
        """One given run can be claimed if it is ready, by one caller only."""
        one, two = world.insert(2)
        later = world.insert_one(scheduled_time=world.clock.now() + 1)
        (beta,) = world.customers("beta")
        claim = runs.run_claim_by_id
        assert world.write(lambda tx: claim(tx, two, "me", customer_key=CustomerKey(beta))) is None
        held = world.write(
            lambda tx: claim(tx, two, "me", customer_key=CustomerKey(world.customer))
        )
        assert held is not None
        assert (held.run_id, held.claimed_by, held.state) == (two, "me", "CLAIMED")
        assert world.write(lambda tx: claim(tx, two, "you")) is None
        assert world.write(lambda tx: claim(tx, later, "me")) is None
        assert world.write(lambda tx: claim(tx, 999_999, "me")) is None
        assert world.states([one, two, later]) == ["PENDING", "CLAIMED", "PENDING"]
        assert world.claim_one().token > held.token

    def test_zero_and_negative_demand(self, world: World) -> None:
        """A claim of zero or fewer runs returns none."""
        world.insert(2)
        assert world.claim(n=0) == []


class TestHolding:
    """Start, release, lapse: compare-and-set on state and token."""

    def test_start(self, world: World) -> None:
        """CLAIMED becomes RUNNING once, for the current token only."""
        world.insert(2)
        one, two = world.claim()
        world.clock.advance(SECOND)
        forged = two._replace(token=two.token + 1)
        assert world.start(one, forged) == {one.run_id}
        run = world.run(one.run_id)
        assert (run.state, run.started_at) == ("RUNNING", world.clock.now())
        assert run.started_at != run.claimed_at
        assert world.states([two.run_id]) == ["CLAIMED"]
        before = world.dump("runs")
        world.clock.advance(SECOND)
        assert world.start(one) == set()
        assert world.dump("runs") == before

    def test_release(self, world: World) -> None:
        """A released run waits for its delay, is otherwise unchanged, and counts no attempt."""
        held = world.running()
        assert world.release(held, delay_us=MINUTE) == {held.run_id}
        run = world.run(held.run_id)
        assert (run.state, run.admission, run.attempt, run.lapses) == ("PENDING", LATER, 1, 0)
        assert (run.claimed_by, run.claimed_at, run.started_at) == (None, None, None)
        assert world.admit() == 0
        world.clock.advance(MINUTE)
        assert world.admit() == 1
        assert world.claim_one().token > held.token

    def test_lapse_counts(self, world: World) -> None:
        """A lapsed claim returns to the queue and is counted; a running run does not lapse."""
        world.insert(2)
        one, two = world.claim()
        world.start(two)
        assert world.lapse(one, two) == {one.run_id}
        run = world.run(one.run_id)
        assert (run.state, run.lapses, run.claimed_by) == ("PENDING", 1, None)
        assert world.states([two.run_id]) == ["RUNNING"]
        world.admit()
        again = world.claim_one()
        assert (again.run_id, again.lapses) == (one.run_id, 1)
        assert world.lapse(one) == set()
        assert world.lapse(again) == {one.run_id}
        assert world.run(one.run_id).lapses == 2

    def test_stale_tokens_change_nothing(self, world: World) -> None:
        """After a release and a new claim, the first holder can change nothing."""
        world.insert_one()
        old = world.claim_one()
        world.lapse(old)
        world.admit()
        new = world.claim_one()
        before = world.dump()
        assert world.start(old) == set()
        assert world.release(old) == set()
        assert world.lapse(old) == set()
        assert world.complete(old) == []
        assert world.fail(old, is_dead=True) == []
        assert world.dump() == before
        assert world.start(new) == {new.run_id}

    def test_released_token_is_stale(self, world: World) -> None:
        """Between release and the next claim, the old token can neither end nor start the run."""
        held = world.running()
        world.release(held)
        before = world.dump()
        assert world.start(held) == set()
        assert world.release(held) == set()
        assert world.complete(held) == []
        assert world.dump() == before

    def test_interruptions_are_journalled(self, world: World) -> None:
        """A return to the queue is journaled with the holder, the previous state and the action."""
        world.insert_one()
        first = world.claim_one(claimed_by="w1")
        world.lapse(first, first._replace(token=99))
        world.admit()
        second = world.claim_one(claimed_by="w2", start=True)
        world.lapse(second)
        world.release(second)
        rows = world.journal(first.run_id)[1:]
        assert [(r.action, r.from_state, r.to_state, r.token, r.why) for r in rows] == [
            ("lapsed", "CLAIMED", "PENDING", first.token, "w1"),
            ("released", "RUNNING", "PENDING", second.token, "w2"),
        ]

    def test_empty_batches(self, world: World) -> None:
        """Empty batches are not an error."""
        assert world.start() == set()
        assert world.release() == set()
        assert world.lapse() == set()
        assert world.finish_all([]) == []


class TestIds:
    """Ids are never reused."""

    def test_after_the_table_was_emptied(self, world: World) -> None:
        """New ids are higher than those of ended runs, even if no live run is left."""
        last = 0
        for _ in range(3):
            ids = world.insert(3)
            assert min(ids) > last
            retried = world.fail(*world.claim(), retry_delay_us=0)
            last = max(f.retry_run_id or 0 for f in retried)
            assert last > max(ids)
            world.admit()
            world.complete(*world.claim())
            assert world.value("SELECT count(*) FROM runs") == 0
        assert world.value("SELECT count(DISTINCT run_id) FROM history") == 18

    def test_after_reopening(self, world: World, open_store: OpenStore, engine: str) -> None:
        """A reopened database continues after the highest id and token it ever assigned."""
        if engine == "memory":
            pytest.skip("a database in memory ends with its store")
        held = world.running()
        world.complete(held)
        world.store.close()
        again = World(open_store(), world.clock)
        fresh = again.running()
        assert fresh.run_id > held.run_id
        assert fresh.token > held.token


class TestCancel:
    """Cancelling pending runs, and cancel requests for running ones."""

    def test_pending(self, world: World) -> None:
        """A pending run is removed from the queue under a token that ends it once."""
        (run_id,) = world.insert()

        def body(tx: Tx) -> list[FinishedRun]:
            token = runs.run_cancel_pending(tx, run_id)
            assert token is not None
            end = RunEnd(run_id, token, "CANCELLED", None, actor="op", why="enough")
            return runs.run_finish_many(tx, [end])

        (finished,) = world.write(body)
        assert finished.final_state == "CANCELLED"
        run = world.run(run_id)
        assert (run.state, run.status, run.started_at) == ("CANCELLED", None, None)
        assert world.claim() == []
        assert world.write(lambda tx: runs.run_cancel_pending(tx, run_id)) is None
        assert [row.action for row in world.journal(run_id)] == ["created", "ended"]

    @pytest.mark.parametrize("kind", ["later", "paused", "blocked", "lapsed"])
    def test_pending_of_every_kind(self, world: World, kind: str) -> None:
        """Later, paused, blocked and lapsed runs count as pending, too."""
        if kind == "later":
            run_id = world.insert_one(scheduled_time=world.clock.now() + HOUR)
        elif kind == "paused":
            world.write(lambda tx: admission.pause_put(tx, "all", 0, "op", ""))
            run_id = world.insert_one()
        elif kind == "blocked":
            run_id = world.insert(2, ordering_key="k")[1]
        else:
            run_id = world.insert_one()
            world.lapse(world.claim_one())
        token = world.write(lambda tx: runs.run_cancel_pending(tx, run_id))
        assert token is not None
        end = RunEnd(run_id, token, "CANCELLED", None)
        assert len(world.finish_all([end])) == 1

    def test_token_of_a_cancelled_run_is_new(self, world: World) -> None:
        """The token with which a pending run is cancelled was never assigned to a holder."""
        ids = world.insert(3)
        held = world.claim(n=2)
        world.lapse(held[0])
        token = world.write(lambda tx: runs.run_cancel_pending(tx, held[0].run_id))
        assert token is not None
        assert token > max(h.token for h in held)
        assert world.write(lambda tx: runs.run_cancel_pending(tx, ids[2])) != token
        assert world.complete(held[0]) == []

    def test_held_runs_get_a_cancel_request(self, world: World) -> None:
        """A held run is not taken away: its holder gets one cancel request, through its session."""
        session = world.session()
        world.insert_one()
        held = world.claim_one(session_id=session)
        assert world.write(lambda tx: runs.run_cancel_pending(tx, held.run_id)) is None
        assert world.write(lambda tx: runs.run_cancel_request(tx, held.run_id, "op"))
        asked_at = world.clock.now()
        world.clock.advance(SECOND)
        assert world.write(lambda tx: runs.run_cancel_request(tx, held.run_id, "op2"))
        assert world.run(held.run_id).cancel_requested_at == asked_at

    def test_cancel_request_without_a_holder(self, world: World) -> None:
        """A cancel request for a pending, ended or unknown run returns False, without effect."""
        run_id = world.insert_one()
        ask = runs.run_cancel_request
        before = world.dump()
        assert not world.write(lambda tx: ask(tx, run_id, "op"))
        assert not world.write(lambda tx: ask(tx, 424_242, "op"))
        assert world.dump() == before


class TestLists:
    """Reading runs."""

    def test_customers_do_not_see_each_other(self, world: World, store: Store) -> None:
        """A run read with another customer's filter is not found."""
        (beta,) = world.customers("beta")
        run_id = world.insert_one()
        assert store.read(lambda tx: runs.run_get(tx, run_id, CustomerKey(beta))) is None
        held = world.claim_one()
        assert store.write(lambda tx: runs.run_held_get(tx, run_id, CustomerKey(beta))) is None
        assert store.write(lambda tx: runs.run_held_get(tx, run_id)) == held
        world.complete(held)
        assert store.read(lambda tx: runs.run_get(tx, run_id, CustomerKey(beta))) is None
        assert store.read(lambda tx: runs.run_get(tx, 10**12)) is None

    @pytest.mark.parametrize("ended", [False, True])
    def test_filters_and_paging(self, world: World, ended: bool) -> None:
        """Lists are newest first, complete over pages, and apply each filter."""
        (beta,) = world.customers("beta")
        config = world.config(cadence=None)
        now = world.clock.now()
        own = world.insert_all([world.new(occurrence_time=now - i * HOUR) for i in range(5)])
        of_config = world.insert_one(config_id=config, occurrence_time=now - 9 * HOUR)
        foreign = world.insert_one(customer_key=beta, occurrence_time=now)
        if ended:
            world.drain()

        def listed(tx: Tx, wanted: lists.RunFilter) -> list[RunRow]:
            if not ended:
                return lists.run_list_live(tx, wanted)
            if wanted.is_by_time:
                return run_list_by_time(tx, wanted, None).rows
            return lists.run_list_ended(tx, wanted).rows

        def ids(**fields: object) -> list[int]:
            wanted = lists.RunFilter(**fields)  # type: ignore[arg-type]
            return [run.run_id for run in world.read(lambda tx: listed(tx, wanted))]

        everything = [foreign, of_config, *reversed(own)]
        assert ids() == everything
        assert ids(limit=2) == everything[:2]
        assert ids(before=of_config) == everything[2:]
        assert ids(config_id=config) == [of_config]
        assert ids(customer=world.customer, config_id=config) == [of_config]
        assert ids(customer=beta) == [foreign]
        assert ids(state="COMPLETED" if ended else "PENDING", customer=beta) == [foreign]
        assert ids(state="RUNNING") == []
        assert ids(pipeline=world.pipeline + 1) == []
        window = {"occurrence_from": now - 2 * HOUR, "occurrence_to": now}
        assert sorted(ids(**window)) == sorted(own[1:3])
        assert sorted(ids(**window, customer=world.customer)) == sorted(own[1:3])

    def test_ended_pages_of_a_customer(self, world: World) -> None:
        """The keyset (slot, id) pages through a customer's ended runs without gaps or repeats."""
        now = world.clock.now()
        world.insert_all([world.new(occurrence_time=now - (i % 4) * HOUR) for i in range(23)])
        world.drain()
        seen: list[tuple[int, int]] = []
        wanted = lists.RunFilter(customer=world.customer, limit=5)
        while page := world.read(partial(lists.run_list_ended, wanted=wanted)).rows:
            seen += [(run.occurrence_time, run.run_id) for run in page]
            slot, run_id = seen[-1]
            wanted = lists.RunFilter(
                customer=world.customer, limit=5, occurrence_before=slot, before=run_id
            )
        assert seen == sorted(seen, reverse=True)
        assert len(seen) == len(set(seen)) == 23
        third = lists.RunFilter(customer=world.customer, limit=5, offset=10)
        assert [
            (run.occurrence_time, run.run_id)
            for run in world.read(lambda tx: lists.run_list_ended(tx, third)).rows
        ] == seen[10:15]
