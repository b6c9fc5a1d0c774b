"""Shares of customers: weights in the queue, changed while runs wait, and the maximum of runs."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.access.client.customers import Customers
from penstock.access.shares import STRIDE, check_concurrency, check_weight, stride_of
from penstock.access.store.names import NameResolver
from penstock.core.clock import MINUTE, SECOND
from penstock.core.errors import InvalidInput
from penstock.db import statements
from penstock.limits.store.customer_caps import REPEAT_US
from penstock.runs.admitter import Admitter
from penstock.runs.rows import HeldRun, RunEnd
from penstock.runs.store import leases, runs
from penstock.runs.store.finish import run_end_many
from tests.kits.effort import effort
from tests.kits.world import World
from tests.runs.test_queue_model import memory_world

READY, LATER, LIMITED, HELD = 0, 1, 4, 9


class Shares:
    """A world with the customers a and b, their settings, an admitter and a live worker."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.a, self.b = world.customers("a", "b")
        self.admitter = Admitter(world.store)
        self.customers = Customers(world.store, NameResolver(world.store), "tester")
        boot = {"boot_id": "w", "kind": "worker", "name": "w", "host": "h", "pid": 1,
                "pool": world.pool, "slots": 1, "lease_us": MINUTE}  # fmt: skip
        world.write(lambda tx: leases.session_open(tx, boot))

    def set(self, customer: str, **values: Any) -> None:
        """Change settings and let the admitter apply them."""
        self.customers.set(customer, **values)
        self.world.clock.advance(SECOND)
        self.admitter.run_once()

    def take(self, n: int) -> list[HeldRun]:
        """Claim runs like a worker, with the fair clock."""
        held = self.world.claim(n=n, start=True)
        self.world.write(partial(runs.fair_clock_raise, claimed=held))
        return held

    def end(self, *held: HeldRun) -> None:
        """Complete runs."""
        ends = [RunEnd(r.run_id, r.token, "COMPLETED", "SUCCESS") for r in held]
        self.world.write(lambda tx: run_end_many(tx, ends))

    def claimed(self, n: int, batch: int = 20) -> Counter[int]:
        """Claim and end runs one batch after another; count them by customer."""
        counts: Counter[int] = Counter()
        while sum(counts.values()) < n:
            held = self.take(min(batch, n - sum(counts.values())))
            assert held
            counts.update(run.customer_key for run in held)
            self.end(*held)
        return counts

    def marks(self, customer: int) -> Counter[int]:
        """Count a customer's live runs by admission mark."""
        rows = self.world.sql(f"SELECT admission FROM runs WHERE customer = {customer}")
        return Counter(row[0] for row in rows)


@pytest.fixture
def shares(world: World) -> Shares:
    """Customers a and b."""
    return Shares(world)


class TestWeights:
    """A customer's share of the claims follows its weight."""

    @pytest.mark.parametrize("single", [False, True])
    def test_shares_follow_weights(self, shares: Shares, single: bool) -> None:
        """With weights 1 and 3, of 400 claims 100 and 300, inserted singly or in batches."""
        shares.set("b", weight=3)
        for _ in range(400 if single else 1):
            shares.world.insert(1 if single else 400, customer_key=shares.a)
            shares.world.insert(1 if single else 400, customer_key=shares.b)
        counts = shares.claimed(400)
        assert abs(counts[shares.b] - 300) <= 2
        assert abs(counts[shares.a] - 100) <= 2

    def test_light_customers_still_start(self, shares: Shares) -> None:
        """A customer with weight 0.1 gets a tenth of the claims of another, not nothing."""
        shares.set("a", weight=0.1)
        shares.world.insert(100, customer_key=shares.a)
        shares.world.insert(1_000, customer_key=shares.b)
        counts = shares.claimed(550)
        assert abs(counts[shares.a] - 50) <= 1

    def test_delayed_runs_follow_weights(self, shares: Shares) -> None:
        """Runs that become due are ranked by weight, too."""
        shares.set("b", weight=3)
        due = shares.world.clock.now() + SECOND
        for customer in (shares.a, shares.b):
            shares.world.insert(200, customer_key=customer, scheduled_time=due)
        shares.world.clock.advance(SECOND)
        shares.admitter.run_once()
        counts = shares.claimed(200)
        assert abs(counts[shares.b] - 150) <= 2

    def test_changed_weight_applies_to_waiting_runs(self, shares: Shares) -> None:
        """Runs that wait already follow a new weight, up or down, once the admitter has run."""
        shares.world.insert(800, customer_key=shares.a)
        shares.world.insert(800, customer_key=shares.b)
        counts = shares.claimed(200)
        assert abs(counts[shares.a] - 100) <= 1
        shares.set("a", weight=3)
        counts = shares.claimed(200)
        assert abs(counts[shares.a] - 150) <= 3
        shares.set("a", weight=0.25)
        counts = shares.claimed(200)
        assert abs(counts[shares.a] - 40) <= 3
        shares.set("a", weight=1)
        counts = shares.claimed(200)
        assert abs(counts[shares.a] - 100) <= 3

    def test_ranks_again_in_batches(self, shares: Shares) -> None:
        """More waiting runs than a batch are all ranked again, each with a rank of its own."""
        shares.world.insert(50, customer_key=shares.a)
        shares.admitter = Admitter(shares.world.store, batch=20)
        shares.set("a", weight=2)
        rows = shares.world.sql(
            f"SELECT pass FROM runs WHERE customer = {shares.a} ORDER BY run_id"
        )
        assert [row[0] for row in rows] == [STRIDE // 2 * n for n in range(1, 51)]
        assert shares.world.sql("SELECT rerank_after FROM customer_settings") == [(None,)]

    def test_new_runs_follow_those_ranked_again(self, shares: Shares) -> None:
        """A run inserted after a change is ranked behind its customer's waiting runs."""
        shares.world.insert(10, customer_key=shares.a)
        shares.set("a", weight=4)
        last = shares.world.insert_one(customer_key=shares.a)
        assert [run.run_id for run in shares.take(11)][-1] == last

    def test_aged_runs_keep_their_level(self, shares: Shares) -> None:
        """A run that ageing has raised keeps its level and its rank."""
        shares.world.insert(2, customer_key=shares.a)
        shares.world.clock.advance(11 * MINUTE)
        shares.admitter.run_once()
        before = shares.world.sql("SELECT run_id, level, pass FROM runs")
        assert {row[1] for row in before} == {6}
        shares.set("a", weight=4)
        assert shares.world.sql("SELECT run_id, level, pass FROM runs") == before

    def test_queue_of_a_limit(self, shares: Shares) -> None:
        """Customers that wait for the same limit share it by weight, also after a change."""
        world = shares.world
        limits = '{"needs": [{"name": "shared", "capacity": 4}]}'
        world.pipeline_add("limited", ["load"], limits=limits)
        (processor,) = world.processors("limited")
        for customer in (shares.a, shares.b):
            world.insert(200, customer_key=customer, processor_key=processor)
        shares.admitter.run_once()
        counts = shares.claimed(80, batch=4)
        assert abs(counts[shares.a] - 40) <= 4
        shares.set("a", weight=3)
        counts = shares.claimed(80, batch=4)
        assert abs(counts[shares.a] - 60) <= 5

    @given(
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 30)), min_size=1, max_size=12),
        st.sampled_from([0.5, 1, 2, 3, 8]),
    )
    @settings(
        max_examples=effort(10, 25), deadline=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def test_shares_hold_in_every_window(
        self, batches: list[tuple[str, int]], weight: float
    ) -> None:
        """While both customers wait, the claims of each stay within one of its share."""
        world = memory_world()
        try:
            shares = Shares(world)
            shares.set("b", weight=weight)
            for customer, n in batches:
                world.insert(n, customer_key={"a": shares.a, "b": shares.b}[customer])
            left = Counter(row[0] for row in world.sql("SELECT customer FROM runs"))
            counts: Counter[int] = Counter()
            while left[shares.a] and left[shares.b]:
                (run,) = shares.take(1)
                left[run.customer_key] -= 1
                counts[run.customer_key] += 1
                share = sum(counts.values()) * weight / (1 + weight)
                assert abs(counts[shares.b] - share) <= 1 + 1e-3
        finally:
            world.store.close()


class TestMaximum:
    """A customer with a maximum never has more runs in progress."""

    def test_never_exceeded(self, shares: Shares) -> None:
        """However many are claimed, ended and submitted, at most three are in progress."""
        shares.set("a", concurrency=3)
        shares.world.insert(20, customer_key=shares.a)
        done, held = 0, []
        while done < 20:
            shares.admitter.run_once()
            held += shares.take(10)
            assert 0 < len(held) <= 3
            shares.end(held.pop(0))
            done += 1
        assert not shares.marks(shares.a)

    def test_other_customers_are_not_concerned(self, shares: Shares) -> None:
        """Runs of customers without a maximum are ready at once."""
        shares.set("a", concurrency=1)
        shares.world.insert(5, customer_key=shares.b)
        assert shares.marks(shares.b) == {READY: 5}

    def test_applies_to_live_runs(self, shares: Shares) -> None:
        """Runs in progress count, and ready runs wait again, once a maximum is set."""
        shares.world.insert(10, customer_key=shares.a)
        held = shares.take(4)
        shares.set("a", concurrency=3)
        assert shares.marks(shares.a) == {HELD: 4, LIMITED: 6}
        shares.end(held[0])
        assert shares.marks(shares.a) == {HELD: 3, LIMITED: 6}
        shares.end(*held[1:3])
        assert shares.marks(shares.a) == {HELD: 1, READY: 2, LIMITED: 4}

    def test_raised_and_lowered(self, shares: Shares) -> None:
        """A higher maximum admits more at once; a lower one stops no run in progress."""
        shares.set("a", concurrency=2)
        shares.world.insert(10, customer_key=shares.a)
        shares.admitter.run_once()
        held = shares.take(10)
        shares.set("a", concurrency=5)
        held += shares.take(10)
        assert len(held) == 5
        shares.set("a", concurrency=1)
        shares.end(*held[:4])
        assert shares.take(10) == []
        shares.end(held[4])
        assert len(shares.take(10)) == 1

    def test_removed(self, shares: Shares) -> None:
        """Without a maximum all waiting runs start, and new ones need no limit."""
        shares.set("a", concurrency=2)
        shares.world.insert(10, customer_key=shares.a)
        shares.admitter.run_once()
        shares.set("a", concurrency=None)
        assert len(shares.take(20)) == 10
        shares.world.insert(1, customer_key=shares.a)
        assert shares.marks(shares.a)[READY] == 1

    def test_run_from_before_the_change(self, shares: Shares) -> None:
        """A run that was inserted without knowing the maximum waits for it, too."""
        shares.set("a", concurrency=1)
        late = shares.world.insert(2, customer_key=shares.a)
        # As a transaction that began before the change would have left them.
        shares.world.sql("UPDATE runs SET admission = 0, pass = 1")
        shares.world.clock.advance(SECOND)
        shares.admitter.run_once()
        assert [run.run_id for run in shares.take(5)] == late[:1]
        shares.world.clock.advance(REPEAT_US)
        shares.admitter.run_once()
        assert shares.world.sql("SELECT capped_at FROM customer_settings") == [(None,)]

    def test_with_limits_of_the_processor(self, shares: Shares) -> None:
        """A run holds the limits of its processor and the one of its customer, or none."""
        world = shares.world
        limits = '{"needs": [{"name": "shared", "capacity": 3}]}'
        world.pipeline_add("limited", ["load"], limits=limits)
        (processor,) = world.processors("limited")
        for customer in (shares.a, shares.b):
            world.insert(5, customer_key=customer, processor_key=processor)
        shares.admitter.run_once()
        assert sum((shares.marks(c)[READY] for c in (shares.a, shares.b)), 0) == 3
        shares.set("a", concurrency=1)
        for _ in range(10):
            held = shares.take(10)
            own = sum(run.customer_key == shares.a for run in held)
            assert own <= 1
            assert 0 < len(held) <= 3
            shares.end(*held)
            if not shares.marks(shares.a) and not shares.marks(shares.b):
                break
            world.clock.advance(SECOND)
            shares.admitter.run_once()
        assert not shares.marks(shares.a)

    @pytest.mark.postgres
    def test_four_workers(self, shares: Shares) -> None:
        """Four workers that claim and end at the same time never exceed the maximum."""
        world = shares.world
        shares.set("a", concurrency=3)
        world.insert(120, customer_key=shares.a)
        shares.admitter.run_once()
        most, left, guard = 0, 120, threading.Lock()
        failures: list[BaseException] = []
        count = "SELECT count(*) FROM runs WHERE admission = 9"

        def work() -> None:
            nonlocal most, left
            try:
                while left > 0:
                    held = shares.take(2)
                    seen = world.value(count)
                    with guard:
                        most = max(most, seen)
                    shares.end(*held)
                    with guard:
                        left -= len(held)
                    if not held:
                        shares.admitter.run_once()
            except BaseException as error:
                failures.append(error)
                left = 0

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not failures
        assert 1 <= most <= 3
        assert not shares.marks(shares.a)


def test_settings_that_cannot_be_applied(
    shares: Shares, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error while settings are applied is logged; due runs are admitted all the same."""

    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("penstock.runs.admitter.run_rerank", broken)
    due = shares.world.clock.now() + SECOND
    shares.world.insert(1, customer_key=shares.b, scheduled_time=due)
    shares.set("a", weight=2, concurrency=1)
    assert shares.marks(shares.b) == {READY: 1}
    assert "applying changed settings" in caplog.text
    assert shares.customers.get("a").concurrency == 1


class TestRules:
    """Bounds and strides."""

    def test_strides(self) -> None:
        """The stride is inverse to the weight, and the SQL has the same default."""
        assert [stride_of(weight) for weight in (0.1, 1, 3, 100)] == [
            10_000_000, 1_000_000, 333_333, 10_000,
        ]  # fmt: skip
        assert f", {STRIDE})" in " ".join(statements.load("sqlite")["run_insert_many"].texts)

    @pytest.mark.parametrize("weight", [0, 0.09, 100.1, -1, float("nan"), True, "3", None])
    def test_weights_out_of_bounds(self, weight: object) -> None:
        """The error names the field and the bounds."""
        with pytest.raises(InvalidInput, match=r"weight.*0\.1 to 100"):
            check_weight(weight)

    @pytest.mark.parametrize("most", [0, -1, 1.5, True, "3", 1_000_001])
    def test_maxima_out_of_bounds(self, most: object) -> None:
        """The error names the field and what to do instead of 0."""
        with pytest.raises(InvalidInput, match=r"concurrency.*pause"):
            check_concurrency(most)
