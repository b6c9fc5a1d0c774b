"""The end of a run: one code path, compare-and-set, and everything that commits with it."""

import pytest

from penstock.core.clock import HOUR, MINUTE, SECOND
from penstock.core.naming import CustomerKey
from penstock.dead_letters.store import DeadLetterRowFilter, dead_letter_find
from penstock.runs.rows import HeldRun, Progress, RunEnd
from penstock.runs.store import leases, runs
from tests.conftest import ALL_ENGINES
from tests.kits.world import World, done, failed

pytestmark = pytest.mark.parametrize("engine", ALL_ENGINES, indirect=True)


class TestCompareAndSet:
    """Only the current holder ends a run, once."""

    def test_wrong_token_leaves_no_trace(self, world: World) -> None:
        """A forged or old token changes neither run, history, journal, sums nor health."""
        config = world.config(cadence=None)
        held = world.running(config_id=config)
        before = world.dump()
        for token in (held.token - 1, held.token + 1, 0, -1):
            stale = held._replace(token=token)
            assert world.complete(stale) == []
            assert world.fail(stale, is_dead=True, retry_delay_us=0) == []
        assert world.dump() == before

    def test_pending_run_cannot_end(self, world: World) -> None:
        """A run without a holder cannot be ended, not even with the token it carries."""
        run_id = world.insert_one()
        token = world.run(run_id).token
        before = world.dump()
        assert world.finish_all([RunEnd(run_id, token, "COMPLETED", "SUCCESS")]) == []
        assert world.dump() == before

    def test_second_end_leaves_no_trace(self, world: World) -> None:
        """A run that ended cannot end again, in the same or another way."""
        config = world.config(cadence=None)
        held = world.running(config_id=config)
        assert len(world.complete(held)) == 1
        before = world.dump()
        world.clock.advance(SECOND)
        assert world.complete(held) == []
        assert world.fail(held, is_dead=True) == []
        assert world.dump() == before

    def test_twice_in_one_batch(self, world: World) -> None:
        """The same end twice in one batch counts once, the first one."""
        world.insert(2)
        one, two = world.claim()
        finished = world.finish_all(
            [done(one, result='"first"'), done(two), failed(one, is_dead=True)]
        )
        assert sorted(f.run_id for f in finished) == [one.run_id, two.run_id]
        assert world.states([one.run_id, two.run_id]) == ["COMPLETED", "COMPLETED"]
        assert world.run(one.run_id).result == '"first"'
        assert world.value("SELECT sum(runs) FROM run_sums") == 2
        assert [row.action for row in world.journal(one.run_id)] == ["created", "ended"]

    def test_stale_among_good(self, world: World) -> None:
        """A stale end in a batch does not affect the others."""
        world.insert(3)
        one, two, three = world.claim()
        finished = world.complete(one, two._replace(token=10**9), three)
        assert {f.run_id for f in finished} == {one.run_id, three.run_id}
        assert world.states([two.run_id]) == ["CLAIMED"]

    def test_history_never_changes(self, world: World) -> None:
        """The database itself refuses to change an ended run or a journal entry."""
        world.complete(world.running())
        for table, column in (("history", "result"), ("journal", "why")):
            with pytest.raises(Exception, match="never change"):
                world.sql(f"UPDATE {table} SET {column} = 'x'")


class TestHistory:
    """What is stored of an ended run."""

    def test_completed(self, world: World) -> None:
        """A completed run keeps its whole timeline and result."""
        run_id = world.insert_one(
            occurrence_time=world.clock.now(), sla_us=MINUTE, parameters='{"a":1}'
        )
        world.clock.advance(SECOND)
        claimed_at = world.clock.now()
        held = world.claim_one()
        world.clock.advance(SECOND)
        world.start(held)
        started_at = world.clock.now()
        world.clock.advance(5 * SECOND)
        (finished,) = world.complete(
            held, result='{"ok":1}', records=7, bytes=9, stages="[]", why="fine"
        )
        assert (finished.run_id, finished.is_dead, finished.retry_run_id) == (run_id, False, None)
        run = world.run(run_id)
        assert (run.state, run.status, run.result, run.records) == (
            "COMPLETED", "SUCCESS", '{"ok":1}', 7,
        )  # fmt: skip
        assert (run.claimed_at, run.started_at, run.finished_at) == (
            claimed_at, started_at, world.clock.now(),
        )  # fmt: skip
        assert (run.sla_met, run.sla_breach_us, run.parameters) == (True, 0, '{"a":1}')
        row = world.history(run_id, "was_retried, is_dead, bytes, stages, claimed_by, token")
        assert (bool(row[0]), bool(row[1]), *row[2:]) == (
            False, False, 9, "[]", "tester", held.token,
        )  # fmt: skip
        assert world.value("SELECT count(*) FROM runs") == 0
        end = world.journal(run_id)[-1]
        assert (end.action, end.actor, end.from_state, end.to_state, end.token, end.why) == (
            "ended", "worker", "RUNNING", "COMPLETED", held.token, "fine",
        )  # fmt: skip

    def test_claimed_run_ends_with_its_duration(self, world: World) -> None:
        """A buffered run ends from CLAIMED; its start is its end minus the reported duration."""
        run_id = world.insert_one()
        held = world.claim_one()
        world.clock.advance(SECOND)
        world.complete(held, duration_us=400_000)
        run = world.run(run_id)
        assert run.started_at == world.clock.now() - 400_000

    def test_never_started(self, world: World) -> None:
        """A run that ends without start and duration has no start."""
        run_id = world.insert_one()
        held = world.claim_one()
        world.finish_all([RunEnd(run_id, held.token, "CANCELLED", None)])
        assert world.run(run_id).started_at is None

    @pytest.mark.parametrize(
        ("late_us", "breach_us"), [(0, 0), (MINUTE, 0), (MINUTE + 1, 1), (HOUR, HOUR - MINUTE)]
    )
    def test_sla(self, world: World, late_us: int, breach_us: int) -> None:
        """An SLA breach is start minus slot beyond the threshold, to the microsecond."""
        run_id = world.insert_one(sla_us=MINUTE)
        world.clock.advance(late_us)
        held = world.claim_one(start=True)
        world.clock.advance(HOUR)
        world.complete(held)
        run = world.run(run_id)
        assert (run.sla_met, run.sla_breach_us) == (breach_us == 0, breach_us)
        assert world.value("SELECT sum(sla_breaches) FROM run_sums") == (breach_us > 0)

    def test_sla_of_a_run_that_never_started(self, world: World) -> None:
        """A run that never starts breaches its SLA if the threshold has passed at its end."""
        run_id = world.insert_one(sla_us=MINUTE)
        world.clock.advance(3 * MINUTE)
        held = world.claim_one()
        world.finish_all([RunEnd(run_id, held.token, "CANCELLED", None)])
        run = world.run(run_id)
        assert (run.sla_met, run.sla_breach_us) == (False, 2 * MINUTE)

    def test_no_sla(self, world: World) -> None:
        """A run without a threshold neither meets nor misses it."""
        held = world.running()
        world.complete(held)
        run = world.run(held.run_id)
        assert (run.sla_met, run.sla_breach_us) == (None, 0)

    def test_cost_and_provider(self, world: World) -> None:
        """Cost is the processor's rate per second and per GB; the provider is the config's."""
        world.pipeline_add("paid", ["work"], rate_second=0.5, rate_gb=2.0)
        (work,) = world.processors("paid")
        config = world.config(cadence=None, provider="AWS")
        held = world.running(processor_key=work, config_id=config)
        world.clock.advance(10 * SECOND)
        world.complete(held, bytes=1_500_000_000)
        cost, provider = world.history(held.run_id, "cost, provider")
        assert cost == pytest.approx(0.5 * 10 + 2.0 * 1.5)
        assert provider == "AWS"

    def test_progress_and_lease_are_deleted(self, world: World) -> None:
        """Progress and lease rows are deleted with the run; those of other runs stay."""
        one, two = world.running(), world.running()
        progress = [(h.run_id, h.token, Progress()) for h in (one, two)]
        world.write(lambda tx: leases.progress_put_many(tx, progress))
        taken = [("run", h.run_id, h.token, "x", SECOND) for h in (one, two)]
        taken += [("gate", h.run_id, 1, "x", 1) for h in (one, two)]
        world.write(lambda tx: leases.lease_take_many(tx, taken))
        world.complete(one)
        assert world.sql("SELECT run_id FROM progress") == [(two.run_id,)]
        left = world.sql("SELECT kind, subject FROM leases ORDER BY kind, subject")
        assert left == [("gate", one.run_id), ("gate", two.run_id), ("run", two.run_id)]


class TestRetry:
    """FAILED and TIMEOUT may create a new run."""

    @pytest.mark.parametrize(("state", "status"), [("FAILED", "FAILURE"), ("TIMEOUT", "TIMEOUT")])
    def test_fields(self, world: World, state: str, status: str) -> None:
        """A retry is the next attempt of the same occurrence, due after its delay."""
        config = world.config(cadence=None)
        held = world.running(
            config_id=config,
            occurrence_time=5,
            priority=8,
            partition="p",
            mode="m",
            ordering_key="k",
            parameters="{}",
            correlation_id="c",
            sla_us=9,
            flow_id=3,
            trigger_source="scheduler",
        )
        world.clock.advance(SECOND)
        (finished,) = world.fail(
            held, final_state=state, status=status, retry_delay_us=MINUTE,
            retry_max_execution_us=2 * HOUR, error_details="boom",
        )  # fmt: skip
        assert finished.retry_run_id is not None
        old, new = world.run(held.run_id), world.run(finished.retry_run_id)
        assert (old.state, old.status, old.error_details) == (state, status, "boom")
        assert bool(world.history(held.run_id, "was_retried")[0])
        assert (new.state, new.admission, new.attempt) == ("PENDING", 1, 2)
        assert new.scheduled_time == world.clock.now() + MINUTE
        assert (new.parent_run_id, new.root_run_id) == (held.run_id, held.run_id)
        assert (new.trigger_source, new.max_execution_us) == ("retry", 2 * HOUR)
        same = (
            "config_id occurrence_time priority partition mode ordering_key parameters"
            " correlation_id flow_id"
        )
        for name in same.split():
            assert getattr(new, name) == getattr(old, name), name
        (created,) = world.journal(new.run_id)
        assert (created.action, created.why) == ("created", "retry")
        world.clock.advance(MINUTE)
        world.admit()
        second = world.claim_one()
        assert (second.sla_us, second.stales, second.lapses) == (9, 0, 0)
        (finished,) = world.fail(second, retry_delay_us=0)
        assert finished.retry_run_id is not None
        third = world.run(finished.retry_run_id)
        assert (third.attempt, third.parent_run_id, third.root_run_id) == (
            3, second.run_id, held.run_id,
        )  # fmt: skip
        assert third.max_execution_us == 2 * HOUR
        chain = world.read(lambda tx: runs.run_chain(tx, third, CustomerKey(world.customer)))
        assert [run.attempt for run in chain] == [1, 2]

    def test_staleness_is_counted(self, world: World) -> None:
        """A stale execution is counted on the retry; the first one can be retried at once."""
        held = world.running()
        world.fail(held, retry_delay_us=0, is_stale=True)
        world.admit()
        assert world.claim_one().stales == 1

    def test_many_at_once(self, world: World) -> None:
        """In one batch, every retry belongs to its own parent, whatever else ends."""
        world.insert(9)
        held = world.claim()
        ends = [failed(h, retry_delay_us=i) if i % 3 else done(h) for i, h in enumerate(held)]
        finished = world.finish_all(ends)
        assert len(finished) == 9
        for index, end in enumerate(finished):
            index = [h.run_id for h in held].index(end.run_id)
            if index % 3 == 0:
                assert end.retry_run_id is None, index
                continue
            assert end.retry_run_id is not None
            retry = world.run(end.retry_run_id)
            assert retry.parent_run_id == end.run_id
            assert retry.scheduled_time == world.clock.now() + index
        assert world.value("SELECT count(*) FROM runs") == 6

    def test_retry_that_exists(self, world: World) -> None:
        """If that attempt already exists, none is created, and none is returned as created."""
        config = world.config(cadence=None)
        held = world.running(config_id=config, occurrence_time=5)
        other = world.insert_one(config_id=config, occurrence_time=5, attempt=2)
        (finished,) = world.fail(held, retry_delay_us=0)
        assert finished.retry_run_id is None
        assert world.sql("SELECT run_id FROM runs") == [(other,)]
        assert world.insert_one() > other


class TestHealth:
    """Dead letters, failure counts and sums commit with the end."""

    def die(self, world: World, config: int) -> int:
        """End one run of a config as dead. Return the consecutive failures after it."""
        held = world.running(
            config_id=config, occurrence_time=world.clock.advance(1), trigger_source="scheduler"
        )
        (finished,) = world.fail(held, is_dead=True, error_details="x")
        return finished.consecutive_failures

    def test_dead(self, world: World) -> None:
        """A dead run becomes one dead letter with its error and attempts."""
        held = world.running(partition="p1", attempt=3, correlation_id="c")
        (finished,) = world.fail(held, is_dead=True, error_type="VALIDATION_ERROR")
        assert finished.is_dead
        assert world.run(held.run_id).is_dead
        (dead_letter,) = world.read(lambda tx: dead_letter_find(tx, DeadLetterRowFilter()))
        assert (dead_letter.kind, dead_letter.subject, dead_letter.customer_id) == (
            "run",
            held.run_id,
            "acme",
        )
        assert (dead_letter.pipeline, dead_letter.phase, dead_letter.processor) == (
            "etl",
            "main",
            "extract",
        )
        assert (dead_letter.error_type, dead_letter.attempts, dead_letter.status) == (
            "VALIDATION_ERROR",
            3,
            "open",
        )
        assert (dead_letter.partition, dead_letter.dead_at) == ("p1", world.clock.now())

    def test_failures_count_up_and_reset(self, world: World) -> None:
        """Dead runs count up, retried failures do not, a success resets the count."""
        config = world.config(cadence=None)
        assert [self.die(world, config) for _ in range(3)] == [1, 2, 3]
        held = world.running(config_id=config, occurrence_time=1, trigger_source="scheduler")
        world.fail(held, retry_delay_us=0)
        assert self.health(world, config) == ("FAILED", 3)
        world.admit()
        world.complete(world.claim_one())
        assert self.health(world, config) == ("COMPLETED", 0)
        assert self.die(world, config) == 1

    def health(self, world: World, config: int) -> tuple[str, int]:
        """Return (last status, consecutive failures)."""
        rows = world.sql(
            "SELECT last_run_status, consecutive_failures, last_run_time FROM config_health "
            f"WHERE config_id = {config}"
        )
        assert rows[0][2] == world.clock.now()
        return rows[0][0], rows[0][1]

    def test_first_batch_with_death_and_success(self, world: World) -> None:
        """A success in a batch resets the count, even if the config had no health row before."""
        config = world.config(cadence=None)
        starts = {"config_id": config, "trigger_source": "scheduler"}
        world.insert_all([world.new(**starts, occurrence_time=s) for s in (1, 2)])
        one, two = world.claim()
        world.finish_all([failed(one, is_dead=True), done(two)])
        assert self.health(world, config) == ("COMPLETED", 0)

    def test_two_deaths_in_one_batch(self, world: World) -> None:
        """Two dead runs of a config in one batch count as two."""
        config = world.config(cadence=None)
        starts = {"config_id": config, "trigger_source": "scheduler"}
        world.insert_all([world.new(**starts, occurrence_time=s) for s in (1, 2, 3)])
        world.insert_one()
        held = world.claim()
        ends = [failed(h, is_dead=h.config_id is not None, retry_delay_us=None) for h in held]
        finished = world.finish_all(ends)
        assert {f.consecutive_failures for f in finished if f.is_dead} == {3}
        assert self.health(world, config) == ("FAILED", 3)

    def test_sums_follow_history(self, world: World) -> None:
        """The hourly sums equal those of history, state by state."""
        world.insert(12)
        held: list[HeldRun] = world.claim(start=True)
        for index, one in enumerate(held):
            world.clock.advance(17 * MINUTE)
            if index % 3 == 0:
                world.complete(one)
            elif index % 3 == 1:
                world.fail(one, is_dead=True)
            else:
                world.finish_all([RunEnd(one.run_id, one.token, "CANCELLED", None)])
        sums = world.sql(
            "SELECT hour_at, final_state, sum(runs), sum(duration_us) FROM run_sums "
            "GROUP BY 1, 2 ORDER BY 1, 2"
        )
        truth = world.sql(
            f"SELECT finished_at - finished_at % {HOUR}, final_state, count(*), "
            "sum(finished_at - started_at) FROM history GROUP BY 1, 2 ORDER BY 1, 2"
        )
        assert [tuple(map(str, row)) for row in sums] == [tuple(map(str, row)) for row in truth]
