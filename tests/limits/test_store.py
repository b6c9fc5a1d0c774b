"""Limits in the store: capacity, order, release, expiry, renewal, rate and learning."""

from collections.abc import Sequence

import pytest

from penstock.audit.store.journal import journal_for
from penstock.core.clock import MINUTE, SECOND
from penstock.core.errors import InvalidInput, NotFound
from penstock.db.store import Store
from penstock.limits.rules import LimitSettings
from penstock.limits.store.grant import TICKET_PAGE, TICKET_US, limit_grant
from penstock.limits.store.limits import (
    limit_alter,
    limit_declare,
    limit_ensure,
    limit_force_release,
    limit_lapsed,
    limit_quota,
    limit_renew_many,
    limit_trim,
    ticket_renew_many,
)
from penstock.limits.store.reads import (
    limit_history,
    limit_holders,
    limit_list,
    limit_queue,
)
from penstock.limits.store.rows import (
    Abandon,
    GrantInput,
    GrantResult,
    LeaseRequest,
    LeaseRow,
    Release,
)
from penstock.testing.clock import VirtualClock
from tests.kits.plans import plan_of


class LimitHarness:
    """Short helper methods over one limit; `a` and `b` are two brokers."""

    def __init__(self, store: Store, clock: VirtualClock, **terms: object) -> None:
        self.store = store
        self.clock = clock
        self.terms = LimitSettings(**terms)  # type: ignore[arg-type]
        self.limit = store.write(lambda tx: limit_ensure(tx, "bq:t", self.terms))
        self.id = self.limit.limit_id

    def grant(self, broker: str = "a", **given: object) -> GrantResult:
        grant_input = GrantInput(broker=broker, **given)  # type: ignore[arg-type]
        return self.store.write(lambda tx: limit_grant(tx, self.id, grant_input))

    def ask(self, *requests: str, broker: str = "a", **given: object) -> GrantResult:
        wants = [LeaseRequest(request=r, holder=f"h-{r}", **given) for r in requests]  # type: ignore[arg-type]
        return self.grant(broker, requests=wants)

    def one(self, request: str, broker: str = "a", **given: object) -> LeaseRow:
        return self.ask(request, broker=broker, **given).leases[request]

    def release(self, *leases: LeaseRow, broker: str = "a", good: bool = True) -> GrantResult:
        releases = [Release(lease.lease_id, lease.token, good) for lease in leases]
        return self.grant(broker, releases=releases, collect=True)

    def renew(self, *leases: LeaseRow) -> dict[int, int]:
        pairs = [(lease.lease_id, lease.token) for lease in leases]
        return self.store.write(lambda tx: limit_renew_many(tx, pairs))

    @property
    def holders(self) -> list[str]:
        return [lease.request for lease in self.leases]

    @property
    def leases(self) -> Sequence[LeaseRow]:
        return self.store.read(lambda tx: limit_holders(tx, self.id))

    @property
    def queue(self) -> list[str]:
        return [t.request for t in self.store.read(lambda tx: limit_queue(tx, self.id))]

    @property
    def outcomes(self) -> list[str]:
        return [n.outcome for n in self.store.read(lambda tx: limit_history(tx, self.id))]


@pytest.fixture
def harness(store: Store, clock: VirtualClock) -> LimitHarness:
    return LimitHarness(store, clock, capacity=2, lease_us=MINUTE)


class TestCapacity:
    """The capacity is never exceeded."""

    def test_grants_up_to_capacity_and_queues_the_rest(self, harness: LimitHarness) -> None:
        """The first two hold slots, the others get tickets in the order of their requests."""
        served = harness.ask("r1", "r2", "r3", "r4")
        assert sorted(served.leases) == ["r1", "r2"]
        assert [n for n, _ in served.tickets.values()] == sorted(
            n for n, _ in served.tickets.values()
        )
        assert harness.holders == ["r1", "r2"]
        assert harness.queue == ["r3", "r4"]

    def test_release_grants_in_the_same_transaction(self, harness: LimitHarness) -> None:
        """The next request holds the slot when the release returns, and no other overtakes it."""
        first = harness.ask("r1", "r2", "r3").leases["r1"]
        served = harness.release(first)
        assert list(served.leases) == ["r3"]
        assert harness.holders == ["r2", "r3"]
        assert harness.ask("r4").leases == {}

    def test_a_new_request_does_not_overtake_the_queue(self, harness: LimitHarness) -> None:
        """Capacity that is too small for the head of the queue is not granted to other requests."""
        harness.one("r1")
        assert "heavy" in harness.ask("heavy", weight=2).tickets
        assert "light" in harness.ask("light").tickets
        assert harness.queue == ["heavy", "light"]

    def test_tokens_increase(self, harness: LimitHarness) -> None:
        """Every grant of a limit has a higher token than all before it."""
        tokens = []
        for n in range(6):
            lease = harness.one(f"r{n}")
            tokens.append(lease.token)
            harness.release(lease)
        tokens += [lease.token for lease in harness.ask("x", "y").leases.values()]
        assert tokens == sorted(set(tokens))

    def test_double_late_and_foreign_release_change_nothing(self, harness: LimitHarness) -> None:
        """A release counts once, and only with the token of the lease."""
        one, two = (harness.one(r) for r in ("r1", "r2"))
        harness.release(one)
        again = harness.one("r3")
        harness.release(one)
        harness.release(two._replace(token=two.token + 1_000))
        harness.release(again._replace(lease_id=two.lease_id))
        assert harness.holders == ["r2", "r3"]
        assert harness.outcomes == ["released"]

    def test_weight_above_capacity_is_refused(self, harness: LimitHarness) -> None:
        """A request that could never be granted gets no ticket."""
        served = harness.ask("r1", weight=3)
        assert served.refused == {"r1": "weight"}
        assert harness.queue == []

    def test_without_waiting(self, harness: LimitHarness) -> None:
        """A request that does not wait is refused as busy."""
        harness.ask("r1", "r2")
        assert harness.ask("r3", waits=False).refused == {"r3": "busy"}
        assert harness.queue == []

    def test_the_queue_can_be_bounded(self, store: Store, clock: VirtualClock) -> None:
        """Beyond queue_max, requests are refused immediately."""
        harness = LimitHarness(store, clock, capacity=1, queue_max=2)
        served = harness.ask("r1", "r2", "r3", "r4")
        assert served.refused == {"r4": "full"}
        assert harness.queue == ["r2", "r3"]

    def test_the_same_request_has_the_same_lease(self, harness: LimitHarness) -> None:
        """A request whose response was lost is repeated and gets the same result."""
        served = harness.ask("r1", "r2", "r3")
        again = harness.ask("r1", "r3", "new", is_repeated=True)
        assert again.leases["r1"][:4] == served.leases["r1"][:4]
        assert again.tickets["r3"] == served.tickets["r3"]
        assert harness.holders == ["r1", "r2"]
        assert harness.queue == ["r3", "new"]

    def test_a_repeated_request_has_one_result(self, harness: LimitHarness) -> None:
        """Found waiting and granted in the same transaction, it gets only the lease."""
        harness.ask("r1", "r2", "r3")
        harness.clock.advance(MINUTE + harness.limit.grace_us)
        again = harness.ask("r3", is_repeated=True)
        assert list(again.leases) == ["r3"]
        assert again.tickets == {}
        assert harness.holders == ["r3"]
        assert harness.queue == []

    def test_more_waiters_than_a_page(self, store: Store, clock: VirtualClock) -> None:
        """A higher capacity admits all requests that fit, however long the queue."""
        harness = LimitHarness(store, clock, capacity=1)
        harness.ask(*(f"r{n:03}" for n in range(200)))
        assert len(harness.queue) == 199
        terms = LimitSettings(capacity=150)
        limit, served = store.write(lambda tx: limit_alter(tx, harness.id, terms, actor="ada"))
        assert limit.capacity == 150
        assert served.brokers == {"a"}
        assert harness.holders == [f"r{n:03}" for n in range(150)]
        assert harness.queue[0] == "r150"

    def test_kept_tickets_are_not_read(self, store: Store, clock: VirtualClock) -> None:
        """A grant reads only tickets that wait, and kept ones that are due, up to a page."""
        harness = LimitHarness(store, clock, capacity=1)
        harness.ask("first", "next")
        for kept_until, count in ((clock.now(), 100), (clock.now() + 1, 300)):
            rows = ", ".join(
                f"({harness.id}, 0, '', 'h', 'kept {kept_until} {n}', 1, 1, 1, {kept_until})"
                for n in range(count)
            )
            text = (
                "INSERT INTO limit_tickets (limit_id, customer, broker, holder, request, lease_us, "
                f"asked_at, until_at, kept_until) VALUES {rows}"
            )
            store.write(lambda tx, text=text: tx._connection.execute(text))  # type: ignore[misc]
        params = {"limit_id": harness.id, "after": 0, "n": TICKET_PAGE}
        found = store.read(lambda tx: tx.rows("limit_tickets_next", params))
        requests = [row[4] for row in found]
        assert len(requests) == TICKET_PAGE + 1
        assert requests[-1] == "next"
        assert all(request.startswith(f"kept {clock.now()} ") for request in requests[:-1])
        plan = plan_of(store, "limit_tickets_next", **params, now=clock.now())
        assert "limit_tickets_waiting" in plan
        assert "limit_tickets_kept" in plan
        harness.ask("last")
        assert len(store.read(lambda tx: tx.rows("limit_tickets_next", params))) == 100 - 64 + 2


class TestAcrossBrokers:
    """Two processes share a limit through the store alone."""

    def test_a_grant_to_another_process_is_short_until_it_is_taken(
        self, harness: LimitHarness
    ) -> None:
        """The result names the other broker to wake; taking the grant makes it a full lease."""
        held = harness.ask("r1", "r2").leases["r1"]
        harness.ask("q1", broker="b")
        served = harness.release(held)
        assert served.brokers == {"b"}
        assert served.channels == ["limits:b"]
        granted = next(lease for lease in harness.leases if lease.request == "q1")
        assert granted.until_at == harness.clock.now() + TICKET_US
        taken = harness.grant("b", collect=True).leases["q1"]
        assert taken.until_at == harness.clock.now() + MINUTE
        assert harness.grant("b", collect=True).leases == {}

    def test_a_dead_brokers_tickets_lapse(self, harness: LimitHarness) -> None:
        """Tickets that no broker renews are dropped; renewed ones keep their position."""
        harness.ask("r1", "r2")
        harness.ask("dead", broker="b")
        harness.ask("alive", broker="c")
        harness.clock.advance(TICKET_US // 2)
        renewed = harness.store.write(lambda tx: ticket_renew_many(tx, "c", [harness.id]))
        assert renewed == {"alive"}
        harness.clock.advance(TICKET_US // 2)
        assert harness.store.read(lambda tx: limit_lapsed(tx, 10)) == [harness.id]
        harness.grant("a")
        assert harness.queue == ["alive"]
        assert harness.outcomes == ["abandoned"]

    def test_a_leave_releases_a_concurrent_grant(self, harness: LimitHarness) -> None:
        """A grant concurrent with a cancellation goes to the next in the queue."""
        held = harness.ask("r1", "r2").leases["r1"]
        harness.ask("q1", "q2", broker="b")
        harness.release(held)
        served = harness.grant("b", abandons=[Abandon("q1", "timeout")])
        assert list(served.leases) == ["q2"]
        assert harness.holders == ["r2", "q2"]
        assert harness.grant("b", abandons=[Abandon("q1")]).brokers == set()


class TestLeases:
    """Crashed holders expire; renewed ones do not."""

    def test_expired_slots_are_granted_again(self, harness: LimitHarness) -> None:
        """An expired lease ends in the next grant transaction of any broker."""
        harness.ask("r1", "r2", "r3")
        harness.clock.advance(MINUTE)
        assert harness.store.read(lambda tx: limit_lapsed(tx, 10)) == [harness.id]
        served = harness.ask("r4", "r5", "r6", broker="b")
        assert served.expired == 2
        assert sorted(served.leases) == ["r4", "r5"]
        assert harness.queue == ["r6"]
        assert sorted(harness.outcomes) == ["abandoned", "expired", "expired"]

    def test_renewal(self, harness: LimitHarness) -> None:
        """A renewed lease outlives its first expiry; a deleted one cannot be renewed."""
        one, two = (harness.one(r) for r in ("r1", "r2"))
        harness.clock.advance(50 * SECOND)
        assert harness.renew(one) == {one.lease_id: harness.clock.now() + MINUTE}
        harness.clock.advance(10 * SECOND)
        harness.grant("a")
        assert harness.holders == ["r1"]
        assert harness.renew(one, two) == {one.lease_id: harness.clock.now() + MINUTE}

    def test_late_renewal(self, harness: LimitHarness) -> None:
        """A lease renewed after its expiry, before it was swept, is still held."""
        one = harness.one("r1")
        harness.clock.advance(2 * MINUTE)
        assert harness.renew(one)
        harness.grant("a")
        assert harness.holders == ["r1"]

    def test_grace(self, store: Store, clock: VirtualClock) -> None:
        """During the grace period an expired lease still counts."""
        harness = LimitHarness(store, clock, capacity=1, lease_us=MINUTE, grace_us=30 * SECOND)
        harness.one("r1")
        clock.advance(80 * SECOND)
        assert harness.ask("r2", waits=False).leases == {}
        clock.advance(10 * SECOND)
        assert "r2" in harness.ask("r2", waits=False).leases

    def test_requested_lease_time(self, harness: LimitHarness) -> None:
        """A requested lease time applies to the grant and to its renewals."""
        one = harness.one("r1", lease_us=5 * SECOND)
        assert one.until_at == harness.clock.now() + 5 * SECOND
        harness.clock.advance(4 * SECOND)
        assert harness.renew(one) == {one.lease_id: harness.clock.now() + 5 * SECOND}


class TestAdministration:
    """Declaring, changing, force-releasing and reading limits."""

    def test_declarations_and_changes_are_journaled(self, store: Store) -> None:
        """The journal records the actor and the values."""
        made, _ = store.write(
            lambda tx: limit_declare(tx, "x", LimitSettings(capacity=3), actor="ada")
        )
        limit, _ = store.write(
            lambda tx: limit_declare(tx, "x", LimitSettings(capacity=5), actor="bob")
        )
        assert (limit.capacity, limit.version, limit.updated_by) == (5, 2, "bob")
        entries = store.read(lambda tx: journal_for(tx, "limit", made.limit_id))
        assert [(entry.action, entry.actor) for entry in entries] == [
            ("declared", "ada"),
            ("altered", "bob"),
        ]
        with pytest.raises(InvalidInput, match="limit"):
            store.write(lambda tx: limit_declare(tx, "bad name", LimitSettings(), actor="ada"))

    def test_less_capacity_grants_nothing_until_it_fits(self, harness: LimitHarness) -> None:
        """Holders stay; released slots are not granted again while too much is held."""
        one, two = (harness.one(r) for r in ("r1", "r2"))
        harness.ask("r3")
        terms = LimitSettings(capacity=1, lease_us=MINUTE)
        harness.store.write(lambda tx: limit_alter(tx, harness.id, terms, actor="ada"))
        assert harness.holders == ["r1", "r2"]
        harness.release(one)
        assert harness.holders == ["r2"]
        harness.release(two)
        assert harness.holders == ["r3"]

    def test_a_ticket_above_the_new_capacity_is_refused(self, harness: LimitHarness) -> None:
        """It could never be granted, and must not block the tickets behind it."""
        harness.one("r1")
        harness.ask("heavy", weight=2, broker="b")
        harness.ask("light", broker="b")
        terms = LimitSettings(capacity=1, lease_us=MINUTE)
        _, served = harness.store.write(lambda tx: limit_alter(tx, harness.id, terms, actor="ada"))
        assert harness.queue == ["light"]
        assert served.brokers == {"b"}
        assert harness.outcomes == ["refused"]

    def test_closed(self, harness: LimitHarness) -> None:
        """Capacity 0 grants nothing and refuses nothing."""
        harness.store.write(
            lambda tx: limit_alter(tx, harness.id, LimitSettings(capacity=0), actor="ada")
        )
        assert "r1" in harness.ask("r1", weight=2).tickets
        harness.store.write(
            lambda tx: limit_alter(tx, harness.id, LimitSettings(capacity=2), actor="ada")
        )
        assert harness.holders == ["r1"]

    def test_force_release(self, harness: LimitHarness) -> None:
        """The slot goes to the next request, the journal has actor and reason, renewal fails."""
        one = harness.ask("r1", "r2", "r3").leases["r1"]
        harness.store.write(
            lambda tx: limit_force_release(tx, one.lease_id, actor="ada", why="stuck")
        )
        assert harness.holders == ["r2", "r3"]
        assert harness.renew(one) == {}
        (entry,) = harness.store.read(lambda tx: journal_for(tx, "limit", harness.id))
        assert (entry.action, entry.actor, entry.why, entry.token) == (
            "forced", "ada", "stuck", one.token,
        )  # fmt: skip
        with pytest.raises(NotFound):
            harness.store.write(
                lambda tx: limit_force_release(tx, one.lease_id, actor="ada", why="again")
            )

    def test_views(self, harness: LimitHarness) -> None:
        """A page shows held weight and waiting requests."""
        harness.ask("r1", "r2", "r3")
        (view,) = harness.store.read(lambda tx: limit_list(tx, name="bq:t"))
        assert (view.held, view.holders, view.waiting, view.waiting_runs) == (2, 2, 1, 0)
        assert view.limit.terms == harness.terms

    def test_history_is_bounded(self, harness: LimitHarness) -> None:
        """A hundred rows are shown, and upkeep keeps no more."""
        for n in range(41):
            leases = [harness.one(f"r{n}.{k}") for k in range(2)]
            harness.release(*leases)
        for n in range(60):
            harness.release(*[harness.one(f"s{n}.{k}") for k in range(2)])
        assert len(harness.outcomes) == 100
        assert harness.store.write(lambda tx: limit_trim(tx, 10)) == 102
        assert harness.store.write(lambda tx: limit_trim(tx, 10)) == 0


class TestRate:
    """Tokens per second, in the same row."""

    def test_burst_then_the_rate(self, store: Store, clock: VirtualClock) -> None:
        """The burst is granted at once, the rest in order, each with its delay."""
        harness = LimitHarness(store, clock, capacity=None, rate=10.0, burst=2)
        served = harness.ask("r1", "r2", "r3", "r4")
        assert served.waits == {"r1": 0, "r2": 0, "r3": 100_000, "r4": 200_000}
        clock.advance(50_000)
        assert harness.ask("r5").waits == {"r5": 250_000}
        assert harness.ask("r6", max_wait_us=100_000).refused == {"r6": "rate"}
        assert harness.ask("r7").waits == {"r7": 350_000}
        assert harness.ask("r8", weight=3).refused == {"r8": "burst"}
        assert harness.holders == []

    def test_slot_and_rate_together(self, store: Store, clock: VirtualClock) -> None:
        """A lease of a limit with a rate can be used from the time its token is available."""
        harness = LimitHarness(store, clock, capacity=2, rate=1.0, burst=1, lease_us=MINUTE)
        served = harness.ask("r1", "r2", "r3")
        now = clock.now()
        assert served.leases["r1"].since_at == now
        assert served.leases["r2"].since_at == now + SECOND
        assert served.leases["r2"].until_at == now + SECOND + MINUTE
        granted_lease = harness.release(served.leases["r1"]).leases["r3"]
        assert granted_lease.since_at == now + 2 * SECOND


class TestLearning:
    """Quota errors lower an adaptive capacity, successes of a full limit raise it."""

    def test_down_once_and_up_one_per_epoch(self, store: Store, clock: VirtualClock) -> None:
        """Ten errors of one epoch halve it once; successes at full use raise it again."""
        harness = LimitHarness(store, clock, capacity=8, is_adaptive=True, floor=1)
        first = harness.ask(*(f"a{n}" for n in range(8))).leases
        clock.advance(SECOND)
        reports = [
            store.write(lambda tx, lease=lease: limit_quota(tx, harness.id, lease))  # type: ignore[misc]
            for lease in first.values()
        ]
        assert [r.effective for r in reports] == [4] * 8
        assert [r.is_new for r in reports] == [True] + [False] * 7
        assert reports[-1].errors == 8
        harness.release(*first.values(), good=False)
        second = harness.ask(*(f"b{n}" for n in range(6))).leases
        assert len(second) == 4
        harness.release(*second.values())
        (view,) = store.read(lambda tx: limit_list(tx, name="bq:t"))
        assert view.limit.learned == 5.0
        assert harness.outcomes.count("quota") == 8

    def test_idle_limits_learn_nothing(self, store: Store, clock: VirtualClock) -> None:
        """One holder at a time does not show whether five would succeed."""
        harness = LimitHarness(store, clock, capacity=8, is_adaptive=True)
        store.write(lambda tx: limit_quota(tx, harness.id))
        for n in range(20):
            harness.release(harness.one(f"r{n}"))
        (view,) = store.read(lambda tx: limit_list(tx, name="bq:t"))
        assert view.limit.learned == 4.0

    def test_fixed_limits_only_count_errors(self, harness: LimitHarness) -> None:
        """Errors are counted and shown; the capacity is unchanged."""
        report = harness.store.write(lambda tx: limit_quota(tx, harness.id, holder="me"))
        assert (report.errors, report.effective) == (1, 2)


def test_rate_reservations_are_bounded(store: Store, clock: VirtualClock) -> None:
    """With millions of tokens reserved for minutes ahead, longer waits are refused."""
    harness = LimitHarness(store, clock, capacity=None, rate=1_000_000.0, burst=1_000_000)
    for n in range(20):
        served = harness.ask(f"r{n}", weight=1_000_000, max_wait_us=300 * SECOND)
        assert served.waits or served.refused == {f"r{n}": "rate"}
    assert served.refused
    clock.advance(seconds=60)
    assert harness.ask("later", weight=900_000).waits == {"later": 0}
