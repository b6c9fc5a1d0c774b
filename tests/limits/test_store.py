"""Limits in the store: capacity, order, release, expiry, renewal, rate and learning."""

from collections.abc import Sequence

import pytest

from penstock.audit.store.journal import journal_for
from penstock.core.clock import MINUTE, SECOND
from penstock.core.errors import InvalidInput, NotFound
from penstock.db.store import Store
from penstock.limits.rules import LimitTerms
from penstock.limits.store.grant import TICKET_US, limit_serve
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
    limit_page,
    limit_position,
    limit_queue,
)
from penstock.limits.store.rows import Lease, Leave, Release, Served, Turn, Want
from penstock.testing.clock import VirtualClock


class Desk:
    """Short verbs over one limit; `a` and `b` are two brokers."""

    def __init__(self, store: Store, clock: VirtualClock, **terms: object) -> None:
        self.store = store
        self.clock = clock
        self.terms = LimitTerms(**terms)  # type: ignore[arg-type]
        self.limit = store.write(lambda tx: limit_ensure(tx, "bq:t", self.terms))
        self.id = self.limit.limit_id

    def turn(self, broker: str = "a", **given: object) -> Served:
        turn = Turn(broker=broker, **given)  # type: ignore[arg-type]
        return self.store.write(lambda tx: limit_serve(tx, self.id, turn))

    def ask(self, *requests: str, broker: str = "a", **given: object) -> Served:
        wants = [Want(request=r, holder=f"h-{r}", **given) for r in requests]  # type: ignore[arg-type]
        return self.turn(broker, wants=wants)

    def one(self, request: str, broker: str = "a", **given: object) -> Lease:
        return self.ask(request, broker=broker, **given).leases[request]

    def give(self, *leases: Lease, broker: str = "a", good: bool = True) -> Served:
        releases = [Release(lease.lease_id, lease.token, good) for lease in leases]
        return self.turn(broker, releases=releases, collects=True)

    def renew(self, *leases: Lease) -> dict[int, int]:
        pairs = [(lease.lease_id, lease.token) for lease in leases]
        return self.store.write(lambda tx: limit_renew_many(tx, pairs))

    @property
    def holders(self) -> list[str]:
        return [lease.request for lease in self.leases]

    @property
    def leases(self) -> Sequence[Lease]:
        return self.store.read(lambda tx: limit_holders(tx, self.id))

    @property
    def line(self) -> list[str]:
        return [t.request for t in self.store.read(lambda tx: limit_queue(tx, self.id))]

    @property
    def outcomes(self) -> list[str]:
        return [n.outcome for n in self.store.read(lambda tx: limit_history(tx, self.id))]


@pytest.fixture
def desk(store: Store, clock: VirtualClock) -> Desk:
    return Desk(store, clock, capacity=2, lease_us=MINUTE)


class TestCapacity:
    """Never more than the capacity, whoever asks."""

    def test_as_many_as_fit_and_the_rest_in_line(self, desk: Desk) -> None:
        """The first two hold, the others have tickets in the order they asked."""
        served = desk.ask("r1", "r2", "r3", "r4")
        assert sorted(served.leases) == ["r1", "r2"]
        assert [n for n, _ in served.tickets.values()] == sorted(
            n for n, _ in served.tickets.values()
        )
        assert desk.holders == ["r1", "r2"]
        assert desk.line == ["r3", "r4"]
        assert desk.store.read(lambda tx: limit_position(tx, desk.id, "r4")) == 1

    def test_release_hands_on_in_the_same_turn(self, desk: Desk) -> None:
        """Who is next holds when the release returns, and nobody overtakes."""
        first = desk.ask("r1", "r2", "r3").leases["r1"]
        served = desk.give(first)
        assert list(served.leases) == ["r3"]
        assert desk.holders == ["r2", "r3"]
        assert desk.ask("r4").leases == {}

    def test_a_newcomer_does_not_overtake_the_line(self, desk: Desk) -> None:
        """Room that is too small for the head of the line is not given to others."""
        desk.one("r1")
        assert "heavy" in desk.ask("heavy", weight=2).tickets
        assert "light" in desk.ask("light").tickets
        assert desk.line == ["heavy", "light"]

    def test_tokens_rise(self, desk: Desk) -> None:
        """Every grant of a limit has a higher token than all before it."""
        tokens = []
        for n in range(6):
            lease = desk.one(f"r{n}")
            tokens.append(lease.token)
            desk.give(lease)
        tokens += [lease.token for lease in desk.ask("x", "y").leases.values()]
        assert tokens == sorted(set(tokens))

    def test_double_late_and_foreign_release_change_nothing(self, desk: Desk) -> None:
        """A release counts once, and only with the token of the lease."""
        one, two = (desk.one(r) for r in ("r1", "r2"))
        desk.give(one)
        again = desk.one("r3")
        desk.give(one)
        desk.give(two._replace(token=two.token + 1_000))
        desk.give(again._replace(lease_id=two.lease_id))
        assert desk.holders == ["r2", "r3"]
        assert desk.outcomes == ["released"]

    def test_weight_above_capacity_is_refused(self, desk: Desk) -> None:
        """What could never be granted gets no ticket."""
        served = desk.ask("r1", weight=3)
        assert served.refused == {"r1": "weight"}
        assert desk.line == []

    def test_without_waiting(self, desk: Desk) -> None:
        """Who does not want to wait is told that it is busy."""
        desk.ask("r1", "r2")
        assert desk.ask("r3", waits=False).refused == {"r3": "busy"}
        assert desk.line == []

    def test_the_line_may_be_bounded(self, store: Store, clock: VirtualClock) -> None:
        """Beyond queue_max whoever comes is refused at once."""
        desk = Desk(store, clock, capacity=1, queue_max=2)
        served = desk.ask("r1", "r2", "r3", "r4")
        assert served.refused == {"r4": "full"}
        assert desk.line == ["r2", "r3"]

    def test_the_same_request_has_the_same_lease(self, desk: Desk) -> None:
        """An asking whose answer was lost is repeated and gets what it got."""
        served = desk.ask("r1", "r2", "r3")
        again = desk.ask("r1", "r3", "new", is_repeated=True)
        assert again.leases["r1"][:4] == served.leases["r1"][:4]
        assert again.tickets["r3"] == served.tickets["r3"]
        assert desk.holders == ["r1", "r2"]
        assert desk.line == ["r3", "new"]

    def test_a_repeated_request_has_one_answer(self, desk: Desk) -> None:
        """Found waiting and granted in the same turn, it holds: it is not told to wait as well."""
        desk.ask("r1", "r2", "r3")
        desk.clock.advance(MINUTE + desk.limit.grace_us)
        again = desk.ask("r3", is_repeated=True)
        assert list(again.leases) == ["r3"]
        assert again.tickets == {}
        assert desk.holders == ["r3"]
        assert desk.line == []

    def test_more_waiters_than_a_page(self, store: Store, clock: VirtualClock) -> None:
        """A capacity that grows lets everybody in, however long the line."""
        desk = Desk(store, clock, capacity=1)
        desk.ask(*(f"r{n:03}" for n in range(200)))
        assert len(desk.line) == 199
        terms = LimitTerms(capacity=150)
        limit, served = store.write(lambda tx: limit_alter(tx, desk.id, terms, actor="ada"))
        assert limit.capacity == 150
        assert served.brokers == {"a"}
        assert desk.holders == [f"r{n:03}" for n in range(150)]
        assert desk.line[0] == "r150"


class TestAcrossBrokers:
    """Two processes share a limit through the store alone."""

    def test_a_grant_to_another_process_is_short_until_it_is_taken(self, desk: Desk) -> None:
        """The other broker is named to be woken; taking makes it a full lease."""
        held = desk.ask("r1", "r2").leases["r1"]
        desk.ask("q1", broker="b")
        served = desk.give(held)
        assert served.brokers == {"b"}
        assert served.channels == ["limits:b"]
        granted = next(lease for lease in desk.leases if lease.request == "q1")
        assert granted.until_at == desk.clock.now() + TICKET_US
        taken = desk.turn("b", collects=True).leases["q1"]
        assert taken.until_at == desk.clock.now() + MINUTE
        assert desk.turn("b", collects=True).leases == {}

    def test_a_dead_brokers_tickets_lapse(self, desk: Desk) -> None:
        """Whoever nobody answers for leaves the line; those who are renewed keep their place."""
        desk.ask("r1", "r2")
        desk.ask("dead", broker="b")
        desk.ask("alive", broker="c")
        desk.clock.advance(TICKET_US // 2)
        renewed = desk.store.write(lambda tx: ticket_renew_many(tx, "c", [desk.id]))
        assert renewed == {"alive"}
        desk.clock.advance(TICKET_US // 2)
        assert desk.store.read(lambda tx: limit_lapsed(tx, 10)) == [desk.id]
        desk.turn("a")
        assert desk.line == ["alive"]
        assert desk.outcomes == ["abandoned"]

    def test_who_leaves_gives_back_what_was_granted_meanwhile(self, desk: Desk) -> None:
        """A grant that crosses a cancellation goes to the next in line."""
        held = desk.ask("r1", "r2").leases["r1"]
        desk.ask("q1", "q2", broker="b")
        desk.give(held)
        served = desk.turn("b", leaves=[Leave("q1", "timeout")])
        assert list(served.leases) == ["q2"]
        assert desk.holders == ["r2", "q2"]
        assert desk.turn("b", leaves=[Leave("q1")]).brokers == set()


class TestLeases:
    """Crashed holders expire; renewed ones do not."""

    def test_expiry_hands_on(self, desk: Desk) -> None:
        """A lease that ran out ends in the next turn, whoever takes it."""
        desk.ask("r1", "r2", "r3")
        desk.clock.advance(MINUTE)
        assert desk.store.read(lambda tx: limit_lapsed(tx, 10)) == [desk.id]
        served = desk.ask("r4", "r5", "r6", broker="b")
        assert served.expired == 2
        assert sorted(served.leases) == ["r4", "r5"]
        assert desk.line == ["r6"]
        assert sorted(desk.outcomes) == ["abandoned", "expired", "expired"]

    def test_renewal_keeps_and_a_lost_one_says_so(self, desk: Desk) -> None:
        """A renewed lease outlives its first end; one that was swept cannot be renewed."""
        one, two = (desk.one(r) for r in ("r1", "r2"))
        desk.clock.advance(50 * SECOND)
        assert desk.renew(one) == {one.lease_id: desk.clock.now() + MINUTE}
        desk.clock.advance(10 * SECOND)
        desk.turn("a")
        assert desk.holders == ["r1"]
        assert desk.renew(one, two) == {one.lease_id: desk.clock.now() + MINUTE}

    def test_late_is_not_dead(self, desk: Desk) -> None:
        """A holder who renews after its end, before anybody swept it, holds."""
        one = desk.one("r1")
        desk.clock.advance(2 * MINUTE)
        assert desk.renew(one)
        desk.turn("a")
        assert desk.holders == ["r1"]

    def test_grace(self, store: Store, clock: VirtualClock) -> None:
        """With a grace, a lease that ran out still counts for that long."""
        desk = Desk(store, clock, capacity=1, lease_us=MINUTE, grace_us=30 * SECOND)
        desk.one("r1")
        clock.advance(80 * SECOND)
        assert desk.ask("r2", waits=False).leases == {}
        clock.advance(10 * SECOND)
        assert "r2" in desk.ask("r2", waits=False).leases

    def test_own_lease_time(self, desk: Desk) -> None:
        """A caller's lease time holds for the grant and for its renewals."""
        one = desk.one("r1", lease_us=5 * SECOND)
        assert one.until_at == desk.clock.now() + 5 * SECOND
        desk.clock.advance(4 * SECOND)
        assert desk.renew(one) == {one.lease_id: desk.clock.now() + 5 * SECOND}


class TestPeople:
    """Declaring, changing, taking away, looking."""

    def test_declared_and_altered_are_written_down(self, store: Store) -> None:
        """The journal says who set what."""
        made, _ = store.write(
            lambda tx: limit_declare(tx, "x", LimitTerms(capacity=3), actor="ada")
        )
        limit, _ = store.write(
            lambda tx: limit_declare(tx, "x", LimitTerms(capacity=5), actor="bob")
        )
        assert (limit.capacity, limit.version, limit.updated_by) == (5, 2, "bob")
        lines = store.read(lambda tx: journal_for(tx, "limit", made.limit_id))
        assert [(line.action, line.actor) for line in lines] == [
            ("declared", "ada"),
            ("altered", "bob"),
        ]
        with pytest.raises(InvalidInput, match="limit"):
            store.write(lambda tx: limit_declare(tx, "bad name", LimitTerms(), actor="ada"))

    def test_less_capacity_lets_nobody_in_until_it_fits(self, desk: Desk) -> None:
        """Holders stay; what they give back is not handed on while too much is held."""
        one, two = (desk.one(r) for r in ("r1", "r2"))
        desk.ask("r3")
        terms = LimitTerms(capacity=1, lease_us=MINUTE)
        desk.store.write(lambda tx: limit_alter(tx, desk.id, terms, actor="ada"))
        assert desk.holders == ["r1", "r2"]
        desk.give(one)
        assert desk.holders == ["r2"]
        desk.give(two)
        assert desk.holders == ["r3"]

    def test_a_ticket_too_heavy_for_the_new_capacity_leaves_the_line(self, desk: Desk) -> None:
        """It could never be granted, and must not block those behind it."""
        desk.one("r1")
        desk.ask("heavy", weight=2, broker="b")
        desk.ask("light", broker="b")
        terms = LimitTerms(capacity=1, lease_us=MINUTE)
        _, served = desk.store.write(lambda tx: limit_alter(tx, desk.id, terms, actor="ada"))
        assert desk.line == ["light"]
        assert served.brokers == {"b"}
        assert desk.outcomes == ["refused"]

    def test_closed(self, desk: Desk) -> None:
        """Capacity 0 lets nobody in and refuses nobody."""
        desk.store.write(lambda tx: limit_alter(tx, desk.id, LimitTerms(capacity=0), actor="ada"))
        assert "r1" in desk.ask("r1", weight=2).tickets
        desk.store.write(lambda tx: limit_alter(tx, desk.id, LimitTerms(capacity=2), actor="ada"))
        assert desk.holders == ["r1"]

    def test_force_release(self, desk: Desk) -> None:
        """The slot goes to the next, the journal says who and why, the holder cannot renew."""
        one = desk.ask("r1", "r2", "r3").leases["r1"]
        desk.store.write(lambda tx: limit_force_release(tx, one.lease_id, actor="ada", why="stuck"))
        assert desk.holders == ["r2", "r3"]
        assert desk.renew(one) == {}
        (line,) = desk.store.read(lambda tx: journal_for(tx, "limit", desk.id))
        assert (line.action, line.actor, line.why, line.token) == (
            "forced", "ada", "stuck", one.token,
        )  # fmt: skip
        with pytest.raises(NotFound):
            desk.store.write(
                lambda tx: limit_force_release(tx, one.lease_id, actor="ada", why="again")
            )

    def test_views(self, desk: Desk) -> None:
        """A page tells what is held and who waits."""
        desk.ask("r1", "r2", "r3")
        (view,) = desk.store.read(lambda tx: limit_page(tx, name="bq:t"))
        assert (view.held, view.holders, view.waiting, view.waiting_runs) == (2, 2, 1, 0)
        assert view.limit.terms == desk.terms

    def test_history_is_bounded(self, desk: Desk) -> None:
        """A hundred lines are shown, and upkeep keeps no more."""
        for n in range(41):
            leases = [desk.one(f"r{n}.{k}") for k in range(2)]
            desk.give(*leases)
        for n in range(60):
            desk.give(*[desk.one(f"s{n}.{k}") for k in range(2)])
        assert len(desk.outcomes) == 100
        assert desk.store.write(lambda tx: limit_trim(tx, 10)) == 102
        assert desk.store.write(lambda tx: limit_trim(tx, 10)) == 0


class TestRate:
    """Tokens per second, in the same row."""

    def test_burst_then_the_rate(self, store: Store, clock: VirtualClock) -> None:
        """What was saved up goes at once, the rest in order, each told how long to wait."""
        desk = Desk(store, clock, capacity=None, rate=10.0, burst=2)
        served = desk.ask("r1", "r2", "r3", "r4")
        assert served.waits == {"r1": 0, "r2": 0, "r3": 100_000, "r4": 200_000}
        clock.advance(50_000)
        assert desk.ask("r5").waits == {"r5": 250_000}
        assert desk.ask("r6", within_us=100_000).refused == {"r6": "rate"}
        assert desk.ask("r7").waits == {"r7": 350_000}
        assert desk.ask("r8", weight=3).refused == {"r8": "burst"}
        assert desk.holders == []

    def test_slot_and_rate_together(self, store: Store, clock: VirtualClock) -> None:
        """A lease of a limit with a rate may be used from when its token is there."""
        desk = Desk(store, clock, capacity=2, rate=1.0, burst=1, lease_us=MINUTE)
        served = desk.ask("r1", "r2", "r3")
        now = clock.now()
        assert served.leases["r1"].since_at == now
        assert served.leases["r2"].since_at == now + SECOND
        assert served.leases["r2"].until_at == now + SECOND + MINUTE
        handed = desk.give(served.leases["r1"]).leases["r3"]
        assert handed.since_at == now + 2 * SECOND


class TestLearning:
    """Quota errors lower an adaptive capacity, successes of a full limit raise it."""

    def test_down_once_per_round_and_up_one_per_round(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """Ten errors of one round halve it once; full rounds of successes bring it back."""
        desk = Desk(store, clock, capacity=8, is_adaptive=True, floor=1)
        first = desk.ask(*(f"a{n}" for n in range(8))).leases
        clock.advance(SECOND)
        reports = [
            store.write(lambda tx, lease=lease: limit_quota(tx, desk.id, lease))  # type: ignore[misc]
            for lease in first.values()
        ]
        assert [r.effective for r in reports] == [4] * 8
        assert [r.is_new for r in reports] == [True] + [False] * 7
        assert reports[-1].errors == 8
        desk.give(*first.values(), good=False)
        second = desk.ask(*(f"b{n}" for n in range(6))).leases
        assert len(second) == 4
        desk.give(*second.values())
        (view,) = store.read(lambda tx: limit_page(tx, name="bq:t"))
        assert view.limit.learned == 5.0
        assert desk.outcomes.count("quota") == 8

    def test_idle_limits_learn_nothing(self, store: Store, clock: VirtualClock) -> None:
        """One holder at a time says nothing about whether five could."""
        desk = Desk(store, clock, capacity=8, is_adaptive=True)
        store.write(lambda tx: limit_quota(tx, desk.id))
        for n in range(20):
            desk.give(desk.one(f"r{n}"))
        (view,) = store.read(lambda tx: limit_page(tx, name="bq:t"))
        assert view.limit.learned == 4.0

    def test_what_is_not_adaptive_only_counts(self, desk: Desk) -> None:
        """Errors are counted and shown; the capacity stays."""
        report = desk.store.write(lambda tx: limit_quota(tx, desk.id, holder="me"))
        assert (report.errors, report.effective) == (1, 2)


def test_a_rate_promises_no_more_than_it_can_count(store: Store, clock: VirtualClock) -> None:
    """Tokens by the million for minutes ahead: who would wait beyond that is refused."""
    desk = Desk(store, clock, capacity=None, rate=1_000_000.0, burst=1_000_000)
    for n in range(20):
        served = desk.ask(f"r{n}", weight=1_000_000, within_us=300 * SECOND)
        assert served.waits or served.refused == {f"r{n}": "rate"}
    assert served.refused
    clock.advance(seconds=60)
    assert desk.ask("later", weight=900_000).waits == {"later": 0}
