"""The invariants of the bus, checked on the rows after every commit of a simulated history.

I1  every generation of every accepted message has exactly one state; sums agree with rows
I3  one lease per delivery; I4 the epoch rises by one with each delivery, and only then
I5  a message is not delivered while it is leased or after it was acked
I6  attempts are the deliveries of this generation, without those released by their holder
I7  a dead letter has its copy (same bytes, attributes kept), once per generation, and a reason
I8  after a failure a message waits at least its backoff
I9  one head per ordering key, and no message before an earlier one of its key; a run is what
    directly follows a leased head, in order, and is returned with the first that fails
I12 a new generation starts only on request, directly after the last, within the maximum
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.bus.message import ORIGIN_MESSAGE_ID, SOURCE_DELIVERY_COUNT
from penstock.bus.redelivery import redelivery_backoff
from penstock.bus.store.topics import SubscriptionRow
from penstock.core.naming import SubscriptionKey
from penstock.db.sqlite.store import SqliteStore
from penstock.testing.simulate.violation import Violation

READY, LEASED, DELAYED, BEHIND = range(4)
PARENTS = frozenset({"bus_deliveries_put", "bus_generation_add"})


class Open(NamedTuple):
    """A delivery that is not settled."""

    subscription: int
    message_id: int
    state: int
    due_at: int
    until_at: int | None
    generation: int
    replays: int
    attempt: int
    epoch: int
    ordering_key: str | None

    @property
    def follows(self) -> bool:
        """Whether it is leased behind the head of its key."""
        return self.state == BEHIND and self.until_at is not None

    @property
    def is_leased(self) -> bool:
        """Whether a consumer holds it."""
        return self.state == LEASED or self.follows


class Ended(NamedTuple):
    """A generation that is settled."""

    subscription: int
    message_id: int
    generation: int
    epoch: int
    attempts: int
    outcome: str


Key = tuple[int, int]


class BusChecks:
    """Follows one bus through one history."""

    def __init__(self, store: SqliteStore, subs: Sequence[SubscriptionRow]) -> None:
        self._store = store
        self._subs = {sub.subscription_key: sub for sub in subs}
        self._settled_to = 0
        self.open: dict[Key, Open] = {}
        self.ended: dict[tuple[int, int, int], Ended] = {}
        self.dead_lettered: set[tuple[int, int, int]] = set()
        self.acks: set[tuple[int, int, int]] = set()
        """(subscription, message, epoch) that consumers have ever acked."""
        self.nacks: set[tuple[int, int, int]] = set()
        """(subscription, message, epoch) that consumers have ever nacked."""
        self.releases: set[tuple[int, int, int]] = set()
        """(subscription, message, epoch) that consumers have ever released."""
        self.checks = 0

    def rows(self, text: str, *params: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query, read outside the product."""
        return self._store._writer.execute(text, params).fetchall()

    def committed(self, now: int, statements: Sequence[str]) -> None:
        """Check one commit."""
        if not any(name.startswith("bus_") for name in statements):
            return
        before, after = self.open, self._read_open()
        new_ends = self._ends()
        changed = [row for key, row in after.items() if before.get(key) != row]
        for row in changed:
            self._moved(before.get((row.subscription, row.message_id)), row, now, statements)
            self._check_run(before, after, row)
        for key, row in before.items():
            if key not in after or after[key].generation != row.generation:
                self._left(row, new_ends, now)
        self._check_generations(changed)
        self._keys(after)
        self.open = after
        self.checks += 1

    def _read_open(self) -> dict[Key, Open]:
        text = (
            "SELECT subscription, message_id, state, due_at, until_at, round, replays, attempt, "
            "epoch, ordering_key FROM deliveries ORDER BY subscription, message_id"
        )
        found = [Open._make(row) for row in self.rows(text)]
        return {(row.subscription, row.message_id): row for row in found}

    def _ends(self) -> dict[Key, list[Ended]]:
        """Return the generations that ended with this commit."""
        text = (
            "SELECT rowid, subscription, message_id, round, epoch, attempts, outcome FROM settled "
            "WHERE rowid > ? ORDER BY rowid"
        )
        found: dict[Key, list[Ended]] = {}
        for place, *fields in self.rows(text, self._settled_to):
            end = Ended._make(fields)
            self._settled_to = place
            name = (end.subscription, end.message_id, end.generation)
            if name in self.ended:
                raise Violation("I1", f"a generation ended twice: {end}")
            self.ended[name] = end
            found.setdefault((end.subscription, end.message_id), []).append(end)
        return found

    def _moved(self, old: Open | None, new: Open, now: int, statements: Sequence[str]) -> None:
        if old is None or old.generation != new.generation:
            self._began(new, statements)
            return
        leased = new.epoch - old.epoch
        if leased not in (0, 1) or (leased == 1) != (new.attempt == old.attempt + 1):
            raise Violation("I4", f"{old} became {new}")
        if leased:
            due = old.state in (DELAYED, BEHIND) and old.due_at <= now
            if (old.state != READY and not due) or old.is_leased or not new.is_leased:
                raise Violation("I5", f"{old} was delivered as {new}")
            if (old.state == BEHIND) != new.follows:
                raise Violation("I9", f"{old} was delivered as {new}")
            if new.until_at is None or new.until_at <= now:
                raise Violation("I3", f"a lease that has expired already: {new}")
        elif old.follows:
            self._followed(old, new, now)
        elif old.state == LEASED and new.state == READY:
            ticket = (old.subscription, old.message_id, old.epoch)
            if ticket not in self.releases or new.attempt != old.attempt - 1:
                raise Violation("I6", f"{old} was released as {new}")
        elif new.attempt != old.attempt:
            raise Violation("I6", f"{old} became {new}")
        elif old.state == LEASED and new.state != LEASED:
            if new.state != DELAYED:
                raise Violation("I8", f"{old} became {new}")
            self._check_returned(old, now)
            sub = self._subs[SubscriptionKey(new.subscription)]
            if new.due_at - now < redelivery_backoff(sub.policy, new.attempt, 0.0):
                raise Violation("I8", f"{new} waits too short from {now}")
        elif (old.state, new.state) not in _QUIET:
            raise Violation("I1", f"{old} became {new}")
        elif old.state == DELAYED and new.state == READY and old.due_at > now:
            raise Violation("I8", f"{old} was ready early, at {now}")

    def _followed(self, old: Open, new: Open, now: int) -> None:
        """I6, I8: one of a run is extended, becomes the head, fails, or is returned."""
        if new.is_leased:
            if new.attempt != old.attempt:
                raise Violation("I6", f"{old} became {new}")
        elif new.attempt == old.attempt:
            ticket = (old.subscription, old.message_id, old.epoch)
            sub = self._subs[SubscriptionKey(new.subscription)]
            if ticket not in self.nacks or new.state not in (BEHIND, DELAYED):
                raise Violation("I6", f"{old} failed as {new} without a nack")
            if new.due_at - now < redelivery_backoff(sub.policy, new.attempt, 0.0):
                raise Violation("I8", f"{new} waits too short from {now}")
        elif new.attempt != old.attempt - 1:
            raise Violation("I6", f"{old} was returned as {new}")

    def _check_run(self, before: dict[Key, Open], after: dict[Key, Open], new: Open) -> None:
        """I9: deliveries of a key are leased in order and returned only for a reason."""
        old = before.get((new.subscription, new.message_id))
        if new.ordering_key is None or old is None or old.generation != new.generation:
            return
        name = (new.subscription, new.ordering_key)
        earlier = {
            key for rows in (before, after) for key, row in rows.items()
            if (row.subscription, row.ordering_key) == name and row.message_id < new.message_id
        }  # fmt: skip
        if new.epoch > old.epoch and new.generation == 1:
            for row in (after[key] for key in earlier if key in after):
                if row.generation == 1 and not (new.follows and row.is_leased):
                    raise Violation("I9", f"{new} overtook {row}")
        if old.follows and not new.is_leased and new.attempt < old.attempt:
            released = (old.subscription, old.message_id, old.epoch) in self.releases
            if not released and not any(self._gave_way(before, after, key) for key in earlier):
                raise Violation("I9", f"{old} was returned as {new} though its run goes on")

    def _gave_way(self, before: dict[Key, Open], after: dict[Key, Open], key: Key) -> bool:
        """Whether a delivery failed, was released or was added with this commit."""
        old, new = before.get(key), after.get(key)
        if old is None or (new is not None and new.generation != old.generation):
            return True
        if new is not None:
            return old.is_leased and not new.is_leased
        return self.ended[*key, old.generation].outcome == "dead_lettered"

    def _began(self, new: Open, statements: Sequence[str]) -> None:
        if not PARENTS & set(statements):
            raise Violation("I12", f"{new} appeared unexpectedly: {statements}")
        if new.generation > 1:
            last = self.ended.get((new.subscription, new.message_id, new.generation - 1))
            if last is None or new.epoch - last.epoch not in (0, 1):
                raise Violation("I12", f"{new} does not follow {last}")
            if new.replays > self._subs[SubscriptionKey(new.subscription)].replays_max:
                raise Violation("I12", f"{new} was replayed too often")

    def _left(self, old: Open, ends: dict[Key, list[Ended]], now: int) -> None:
        key = (old.subscription, old.message_id)
        mine = [end for end in ends.get(key, []) if end.generation == old.generation]
        if len(mine) != 1:
            raise Violation("I1", f"{old} left to {mine}")
        end = mine[0]
        if end.outcome == "acked" and (
            not old.is_leased or (old.subscription, old.message_id, old.epoch) not in self.acks
        ):
            raise Violation("I4", f"{old} was acked without its lease: {end}")
        if end.outcome == "expired" and old.is_leased and (old.until_at or 0) > now:
            raise Violation("I5", f"{old} expired while leased")
        if end.outcome == "dead_lettered":
            self._check_returned(old, now)
            self._check_dead_letter(old, end)

    def _check_returned(self, old: Open, now: int) -> None:
        """I4, I5: only its holder returns a message before its deadline."""
        ticket = (old.subscription, old.message_id, old.epoch)
        late = old.state == LEASED and old.until_at is not None and old.until_at <= now
        if not old.is_leased or (ticket not in self.nacks and not late):
            raise Violation("I4", f"{old} was returned without its lease")

    def _check_dead_letter(self, old: Open, end: Ended) -> None:
        """I7: one dead letter per generation, with a reason and the message's own data."""
        sub = self._subs[SubscriptionKey(old.subscription)]
        text = (
            "SELECT d.error_kind, d.attempts, c.data = m.data, c.attributes, m.attributes "
            "FROM dead_letters d JOIN messages c ON c.message_id = d.subject "
            "JOIN messages m ON m.message_id = d.message_id "
            "WHERE d.subscription = ? AND d.message_id = ? AND d.round = ?"
        )
        found = self.rows(text, old.subscription, old.message_id, old.generation)
        if len(found) != 1:
            raise Violation("I7", f"{len(found)} dead letters of {end}")
        kind, attempts, same, copied, own = found[0]
        mine, theirs = json.loads(own), json.loads(copied)
        if not same or not mine.items() <= theirs.items() or attempts != end.attempts:
            raise Violation("I7", f"the dead letter of {end} differs from its message: {found}")
        if theirs[SOURCE_DELIVERY_COUNT] != str(end.attempts):
            raise Violation("I7", f"{theirs} counts other attempts than {end}")
        if theirs[ORIGIN_MESSAGE_ID] != str(old.message_id):
            raise Violation("I7", f"{theirs} names another message than {end}")
        if kind != "poison" and end.attempts < sub.max_attempts:
            raise Violation("I7", f"{end} became a dead letter with attempts left")
        self.dead_lettered.add((old.subscription, old.message_id, old.generation))

    def _check_generations(self, changed: Sequence[Open]) -> None:
        """I1: an open delivery is the generation after all ended ones, and none is missing."""
        for row in changed:
            sub, message = row.subscription, row.message_id
            if (sub, message, row.generation) in self.ended:
                raise Violation("I1", f"{row} is open and ended")
            if any((sub, message, n) not in self.ended for n in range(1, row.generation)):
                raise Violation("I1", f"a generation before {row} is missing")

    def _keys(self, after: dict[Key, Open]) -> None:
        heads: dict[tuple[int, str], int] = {}
        for row in after.values():
            if row.ordering_key is not None:
                name = (row.subscription, row.ordering_key)
                heads[name] = heads.get(name, 0) + (row.state != BEHIND)
        wrong = {name: count for name, count in heads.items() if count != 1}
        if wrong:
            raise Violation("I9", f"keys with no head, or with more than one: {wrong}")
        _check_runs(after)

    def finish(self, accepted: Sequence[int], taken: Sequence[int]) -> None:
        """I1, I2, I11: accepted messages are settled, sums agree, nothing is published twice."""
        known = {row[0] for row in self.rows("SELECT message_id FROM messages")}
        lost = set(accepted) - known
        if lost:
            raise Violation("I2", f"accepted but lost: {sorted(lost)}")
        for sub in taken:
            settled = {end.message_id for end in self.ended.values() if end.subscription == sub}
            missing = set(accepted) - settled
            if missing:
                raise Violation("I1", f"subscription {sub} never had {sorted(missing)}")
        counted = self.rows(
            "SELECT sum(acked), sum(dead_lettered), sum(expired), sum(purged) FROM delivery_sums"
        )[0]
        outcomes = [end.outcome for end in self.ended.values()]
        names = ("acked", "dead_lettered", "expired", "purged")
        if list(counted) != [outcomes.count(name) for name in names]:
            raise Violation("I1", f"sums {counted} disagree with rows")
        found = self.rows("SELECT count(*) FROM dead_letters WHERE subscription IS NOT NULL")
        if found[0][0] != len(self.dead_lettered):
            raise Violation("I7", f"{found[0][0]} dead letters, expected {len(self.dead_lettered)}")
        twice = self.rows(
            "SELECT attributes FROM messages WHERE attributes LIKE '%\"once\"%' "
            "AND attributes NOT LIKE '%CloudPubSub%' GROUP BY attributes HAVING count(*) > 1"
        )
        if twice:
            raise Violation("I11", f"published twice under one dedupe id: {twice}")


def _check_runs(after: dict[Key, Open]) -> None:
    """I9: a run directly follows a leased head."""
    runs: dict[tuple[int, str], list[Open]] = {}
    for row in after.values():
        if row.ordering_key is not None:
            runs.setdefault((row.subscription, row.ordering_key), []).append(row)
    for rows in runs.values():
        head = next(row for row in rows if row.state != BEHIND)
        behind = [row for row in rows if row.state == BEHIND]
        run = [row for row in behind if row.follows]
        if run and (head.state != LEASED or run[0].message_id < head.message_id):
            raise Violation("I9", f"{run} follows {head}")
        if run != behind[: len(run)]:
            raise Violation("I9", f"a run with a gap: {behind}")


_QUIET = {
    (READY, READY), (LEASED, LEASED), (DELAYED, DELAYED), (BEHIND, BEHIND), (DELAYED, READY),
    (BEHIND, READY), (BEHIND, LEASED), (BEHIND, DELAYED), (READY, BEHIND),
}  # fmt: skip
