"""Leases: sessions of processes, leases of single subjects, and what sweepers find."""

from functools import partial

import pytest

from penstock.core.clock import HOUR, MINUTE, SECOND
from penstock.db.store import Tx
from penstock.runs.rows import HeldRun, Progress
from penstock.runs.store import leases, runs
from tests.kits.world import World

LEASE = 30 * SECOND


class TestSessions:
    """A process renews one row."""

    def test_life(self, world: World) -> None:
        """A session is opened, listed with its held runs, renewed and closed."""
        session = world.session("w1", LEASE)
        world.insert(3)
        world.claim(n=2, session_id=session)
        world.clock.advance(10 * SECOND)
        assert world.write(
            lambda tx: leases.session_heartbeat(tx, session, LEASE, is_draining=True)
        )
        (row,) = world.read(leases.session_list)
        assert (row.session_id, row.name, row.pool, row.held) == (session, "w1", "default", 2)
        assert (row.is_draining, row.heartbeat_at) == (True, world.clock.now())
        assert row.until_at == world.clock.now() + LEASE
        world.write(lambda tx: leases.session_close(tx, session))
        assert world.read(leases.session_list) == []
        assert not world.write(lambda tx: leases.session_heartbeat(tx, session, LEASE))

    def test_expiry(self, world: World) -> None:
        """A session that is not renewed expires after its lease, not at that very moment."""
        session = world.session("w1", LEASE)
        other = world.session("w2", LEASE)
        world.clock.advance(LEASE)
        assert world.write(leases.session_expire) == []
        assert world.write(lambda tx: leases.session_heartbeat(tx, other, LEASE))
        world.clock.advance(1)
        assert world.write(leases.session_expire) == [(session, "worker", "w1")]
        assert world.write(leases.session_expire) == []
        assert not world.write(lambda tx: leases.session_heartbeat(tx, session, LEASE))
        assert [s.session_id for s in world.read(leases.session_list)] == [other]

    def test_late_heartbeat_before_the_sweep(self, world: World) -> None:
        """A heartbeat that arrives late, but before any sweep, renews the session."""
        session = world.session("w1", LEASE)
        world.clock.advance(10 * LEASE)
        assert world.write(lambda tx: leases.session_heartbeat(tx, session, LEASE))
        assert world.write(leases.session_expire) == []

    def test_ids_are_new(self, world: World) -> None:
        """A session never reuses the id of a closed one."""
        one = world.session("w1")
        world.write(lambda tx: leases.session_close(tx, one))
        assert world.session("w1") > one

    def test_orphans(self, world: World) -> None:
        """Runs of a session that is gone are found with the tokens that end them, oldest first."""
        gone, alive = world.session("gone", LEASE), world.session("alive", 10 * HOUR)
        world.insert(5)
        lost = world.claim(n=3, session_id=gone)
        world.start(lost[0])
        world.claim(n=1, session_id=alive)
        world.claim(n=1)
        assert world.read(lambda tx: leases.run_orphans(tx, 10)) == []
        world.clock.advance(LEASE + 1)
        world.write(leases.session_expire)
        found = world.read(lambda tx: leases.run_orphans(tx, 10))
        assert [(h.run_id, h.token) for h in found] == [(h.run_id, h.token) for h in lost]
        assert [h.state for h in found] == ["RUNNING", "CLAIMED", "CLAIMED"]
        assert len(world.read(lambda tx: leases.run_orphans(tx, 2))) == 2
        assert world.lapse(*found[1:]) == {h.run_id for h in lost[1:]}
        world.fail(found[0], retry_delay_us=0)
        assert world.read(lambda tx: leases.run_orphans(tx, 10)) == []

    def test_cancels(self, world: World) -> None:
        """A session learns which of its runs have a cancel request."""
        session, other = world.session("w1"), world.session("w2")
        world.insert(3)
        one, two = world.claim(n=2, session_id=session)
        (three,) = world.claim(session_id=other)
        for held in (two, three):
            assert world.write(partial(runs.run_cancel_request, run_id=held.run_id, actor="op"))
        cancels = world.read(lambda tx: leases.session_held(tx, session))
        assert cancels == {one.token: False, two.token: True}
        world.complete(one, two)
        assert world.read(lambda tx: leases.session_held(tx, session)) == {}


class TestRunLeases:
    """Runs held externally."""

    def external(self, world: World, lease_us: int = LEASE) -> HeldRun:
        """Claim a run externally, with a lease of its own."""
        world.insert_one()

        def body(tx: Tx) -> HeldRun:
            claim = runs.Claim(
                pool_key=world.pool, processors=[world.processor], n=1, claimed_by="api"
            )
            (held,) = runs.run_claim(tx, claim)
            leases.lease_take_many(tx, [("run", held.run_id, held.token, "api", lease_us)])
            return held

        return world.write(body)

    def extend(self, world: World, held: HeldRun, lease_us: int = LEASE) -> dict[int, int]:
        """Renew a run's lease."""
        rows = [("run", held.run_id, held.token, lease_us)]
        return world.write(lambda tx: leases.lease_extend_many(tx, rows))

    def unleased(self, world: World) -> list[int]:
        """Return externally held runs whose lease is gone."""
        return [h.run_id for h in world.read(lambda tx: leases.run_unleased(tx, 10))]

    def test_take_and_extend(self, world: World) -> None:
        """A lease lasts until it is renewed or expires."""
        held = self.external(world)
        world.clock.advance(LEASE)
        assert self.unleased(world) == []
        assert self.extend(world, held) == {held.run_id: world.clock.now() + LEASE}
        world.clock.advance(LEASE + 1)
        assert self.unleased(world) == []
        assert world.write(leases.lease_expire) == 1
        assert self.unleased(world) == [held.run_id]
        assert self.extend(world, held) == {}

    def test_late_heartbeat_before_the_sweep(self, world: World) -> None:
        """An expired lease can be renewed until a sweeper deletes it."""
        held = self.external(world)
        world.clock.advance(10 * LEASE)
        assert self.extend(world, held) == {held.run_id: world.clock.now() + LEASE}
        assert world.write(leases.lease_expire) == 0
        assert self.unleased(world) == []

    def test_stale_holder(self, world: World) -> None:
        """Once another worker has claimed the run, the first holder renews and releases nothing."""
        old = self.external(world)
        world.clock.advance(LEASE + 1)
        world.lapse(old)
        world.admit()
        (new,) = world.claim()
        rows = [("run", new.run_id, new.token, "api2", LEASE)]
        assert world.write(lambda tx: leases.lease_take_many(tx, rows)) == {
            new.run_id: world.clock.now() + LEASE
        }
        before = world.dump("leases")
        assert self.extend(world, old) == {}
        release = [("run", old.run_id, old.token)]
        assert world.write(lambda tx: leases.lease_release_many(tx, release)) == set()
        take_back = [("run", old.run_id, old.token, "api", LEASE)]
        assert world.write(lambda tx: leases.lease_take_many(tx, take_back)) == {}
        assert world.dump("leases") == before
        assert self.unleased(world) == []

    def test_release_is_idempotent(self, world: World) -> None:
        """A second release changes nothing."""
        held = self.external(world)
        release = [("run", held.run_id, held.token)]
        assert world.write(lambda tx: leases.lease_release_many(tx, release)) == {held.run_id}
        assert world.write(lambda tx: leases.lease_release_many(tx, release)) == set()

    def test_held_without_session_or_lease(self, world: World) -> None:
        """A held run with neither session nor lease is found, so that no run is lost."""
        held = self.external(world)
        world.sql("DELETE FROM leases")
        assert self.unleased(world) == [held.run_id]
        world.lapse(held)
        assert self.unleased(world) == []

    def test_expire(self, world: World) -> None:
        """Expired leases of runs are deleted; valid ones and those of other kinds stay."""
        held = self.external(world)
        ended = self.external(world)
        other = [("gate", 5, 1, "g", 1)]
        world.write(lambda tx: leases.lease_take_many(tx, other))
        world.sql(f"DELETE FROM runs WHERE run_id = {ended.run_id}")
        world.clock.advance(LEASE)
        assert world.write(leases.lease_expire) == 0
        self.extend(world, held)
        world.clock.advance(1)
        assert world.write(leases.lease_expire) == 1
        left = world.sql("SELECT kind, subject FROM leases ORDER BY kind")
        assert left == [("gate", 5), ("run", held.run_id)]

    def test_overdue(self, world: World) -> None:
        """A run that exceeds its maximum duration by more than the grace is found."""
        held = world.running(max_execution_us=MINUTE)
        world.insert_one(max_execution_us=1)
        claimed = world.claim_one()
        overdue = leases.run_overdue
        world.clock.advance(MINUTE + 5 * SECOND)
        assert world.read(lambda tx: overdue(tx, 10, 5 * SECOND)) == []
        world.clock.advance(1)
        found = world.read(lambda tx: overdue(tx, 10, 5 * SECOND))
        assert [(h.run_id, h.token) for h in found] == [(held.run_id, held.token)]
        assert claimed.run_id != held.run_id


class TestProgress:
    """Live progress of a running run."""

    def put(self, world: World, held: HeldRun, **fields: object) -> set[int]:
        """Write progress."""
        progress = Progress(**fields)  # type: ignore[arg-type]
        rows = [(held.run_id, held.token, progress)]
        return world.write(lambda tx: leases.progress_put_many(tx, rows))

    def test_put_and_get(self, world: World) -> None:
        """Progress is replaced as it changes; a stage, once named, stays until the next."""
        held = world.running()
        first = {"stage": "extract", "percent": 12.5, "worker": "w", "records_extracted": 7}
        assert self.put(world, held, **first) == {held.run_id}
        world.clock.advance(SECOND)
        assert self.put(world, held, current_state="FINALIZING", bytes_processed=9)
        got = world.read(lambda tx: leases.progress_get(tx, held.run_id))
        assert got is not None
        progress, heartbeat_at = got
        assert (progress.stage, progress.percent, progress.current_state) == (
            "extract", 12.5, "FINALIZING",
        )  # fmt: skip
        assert (progress.bytes_processed, progress.records_extracted) == (9, 0)
        assert heartbeat_at == world.clock.now()
        assert world.read(lambda tx: leases.progress_get(tx, 424_242)) is None

    def test_only_the_current_holder(self, world: World) -> None:
        """Progress is refused with a stale token and for a run without a holder."""
        held = world.running()
        assert self.put(world, held._replace(token=held.token + 1)) == set()
        world.release(held)
        assert self.put(world, held) == set()
        world.admit()
        new = world.claim_one()
        assert self.put(world, held) == set()
        assert self.put(world, new) == {held.run_id}
        world.complete(new)
        assert self.put(world, new) == set()
        assert world.value("SELECT count(*) FROM progress") == 0

    def test_twice_in_one_batch(self, world: World) -> None:
        """If a batch has two states of a run, the last one counts."""
        held = world.running()
        rows = [(held.run_id, held.token, Progress(percent=p)) for p in (1.0, 2.0)]
        assert world.write(lambda tx: leases.progress_put_many(tx, rows)) == {held.run_id}
        got = world.read(lambda tx: leases.progress_get(tx, held.run_id))
        assert got is not None
        assert got[0].percent == 2.0

    def test_a_new_holder_starts_without_progress(self, world: World) -> None:
        """A requeued run does not show the last holder's progress."""
        held = world.running()
        self.put(world, held, stage="load", percent=99.0)
        world.release(held)
        assert world.read(lambda tx: leases.progress_get(tx, held.run_id)) is None

    def test_invalid_percent_is_refused(self, world: World) -> None:
        """A percentage outside 0 to 100 is refused by the database."""
        held = world.running()
        with pytest.raises(Exception, match=r"(?i)check"):
            self.put(world, held, percent=101.0)
