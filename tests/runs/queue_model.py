"""A model of the queue in a few lines of Python, with which the store must agree step by step.

It has one customer and one pool, so that fair ranks follow the order in which runs become ready.
`Model` computes the expected result of a step; `Replay` runs the same steps on a store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.core.clock import SECOND
from penstock.db.store import Tx
from penstock.runs.rows import RunEnd
from penstock.runs.store import finish, runs
from tests.kits.world import World

READY, LATER, BLOCKED, HELD = 0, 1, 3, 9
ATTEMPTS_MAX = 3

Step = tuple[Any, ...]


@dataclass(slots=True)
class ModelRun:
    """A live run."""

    number: int
    due: int
    priority: int
    key: str | None
    attempt: int = 1
    lapses: int = 0
    state: str = "PENDING"
    mark: int = LATER
    fair_rank: int = 0
    token: int = 0


@dataclass(slots=True)
class Model:
    """Live and ended runs, numbered from 1 in order of creation, and the time."""

    now: int
    live: dict[int, ModelRun] = field(default_factory=dict)
    ended: dict[int, tuple[str, int]] = field(default_factory=dict)
    created: int = 0
    ranks: int = 0
    tokens: int = 0

    def insert(self, priority: int, delay_s: int, key: str | None) -> list[int]:
        """Create one run."""
        due = self.now + delay_s * SECOND
        run = self._create(due, priority, key)
        if any(other.key == key for other in self.live.values() if key and other is not run):
            run.mark = BLOCKED
        elif due <= self.now:
            self._ready(run)
        return [run.number]

    def _create(self, due: int, priority: int, key: str | None) -> ModelRun:
        self.created += 1
        run = ModelRun(self.created, due, priority, key)
        self.live[run.number] = run
        return run

    def _ready(self, run: ModelRun) -> None:
        self.ranks += 1
        run.mark, run.fair_rank = READY, self.ranks

    def admit(self) -> int:
        """Give due runs their fair ranks."""
        due = [r for r in self.live.values() if r.mark == LATER and r.due <= self.now]
        for run in sorted(due, key=lambda r: (r.due, r.number)):
            self._ready(run)
        return len(due)

    def claim(self, n: int, start: bool) -> list[tuple[int, int]]:
        """Return the next ready runs, each with a new token."""
        ready = [r for r in self.live.values() if r.mark == READY]
        ready.sort(key=lambda r: (-r.priority, r.fair_rank, r.number))
        for run in ready[:n]:
            self.tokens += 1
            run.token, run.mark = self.tokens, HELD
            run.state = "RUNNING" if start else "CLAIMED"
        return [(run.number, run.token) for run in ready[:n]]

    def _held(self, number: int, token: int, *states: str) -> ModelRun | None:
        run = self.live.get(number)
        return run if run and run.token == token and run.state in states else None

    def start(self, number: int, token: int) -> bool:
        """Mark a CLAIMED run RUNNING."""
        run = self._held(number, token, "CLAIMED")
        if run:
            run.state = "RUNNING"
        return run is not None

    def release(self, number: int, token: int, delay_s: int) -> bool:
        """Return a run to the queue, not counted."""
        run = self._held(number, token, "CLAIMED", "RUNNING")
        if run:
            run.state, run.mark, run.due = "PENDING", LATER, self.now + delay_s * SECOND
        return run is not None

    def lapse(self, number: int, token: int) -> bool:
        """Return a run to the queue, counted."""
        run = self._held(number, token, "CLAIMED")
        if run:
            run.state, run.mark = "PENDING", LATER
            run.lapses += 1
        return run is not None

    def complete(self, number: int, token: int) -> bool:
        """End a run as completed."""
        run = self._held(number, token, "CLAIMED", "RUNNING")
        if run:
            self._end(run, "COMPLETED")
        return run is not None

    def fail(self, number: int, token: int, delay_s: int) -> int | None:
        """Fail a run. Return the retry's number, 0 if it is dead, None if the token is stale."""
        run = self._held(number, token, "CLAIMED", "RUNNING")
        if run is None:
            return None
        if run.attempt >= ATTEMPTS_MAX:
            self._end(run, "FAILED")
            return 0
        retry = self._create(self.now + delay_s * SECOND, run.priority, run.key)
        retry.attempt = run.attempt + 1
        self._end(run, "FAILED")
        return retry.number

    def cancel(self, number: int) -> bool:
        """Cancel a pending run."""
        run = self.live.get(number)
        if run is None or run.state != "PENDING":
            return False
        self.tokens += 1
        self._end(run, "CANCELLED")
        return True

    def _end(self, run: ModelRun, state: str) -> None:
        del self.live[run.number]
        self.ended[run.number] = (state, run.attempt)
        same_key = [r for r in self.live.values() if run.key and r.key == run.key]
        if same_key and all(r.mark == BLOCKED for r in same_key):
            min(same_key, key=lambda r: r.number).mark = LATER

    def advance(self, seconds: int) -> None:
        """Advance the time."""
        self.now += seconds * SECOND

    def picture(self) -> tuple[dict[int, tuple[Any, ...]], dict[int, tuple[str, int]]]:
        """Return everything observable about the queue."""
        live = {
            r.number: (r.state, r.mark, r.attempt, r.lapses, r.due, r.priority)
            for r in self.live.values()
        }
        return live, dict(self.ended)


class Replay:
    """The same steps on a store; ids and tokens are numbered in order of appearance."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._ids: list[int] = []
        self._tokens: dict[int, int] = {0: 0}
        self._last_token = 0

    def _number(self, run_id: int) -> int:
        if run_id not in self._ids:
            assert not self._ids or run_id > self._ids[-1], "an id was reused"
            self._ids.append(run_id)
        return self._ids.index(run_id) + 1

    def _pair(self, number: int, token: int) -> tuple[int, int]:
        return self._ids[number - 1], self._tokens[token]

    def insert(self, priority: int, delay_s: int, key: str | None) -> list[int]:
        """Create one run."""
        due = self.world.clock.now() + delay_s * SECOND
        ids = self.world.insert(priority=priority, scheduled_time=due, ordering_key=key)
        return [self._number(i) for i in ids]

    def admit(self) -> int:
        """Admit due runs."""
        return self.world.admit()

    def claim(self, n: int, start: bool) -> list[tuple[int, int]]:
        """Claim runs; tokens must increase."""
        held = self.world.claim(n=n, start=start)
        for token in sorted(h.token for h in held):
            assert token > self._last_token, "a token was reused"
            self._last_token = token
        numbered = []
        for run in held:
            self._tokens[len(self._tokens)] = run.token
            numbered.append((self._number(run.run_id), len(self._tokens) - 1))
        return numbered

    def start(self, number: int, token: int) -> bool:
        """Mark a CLAIMED run RUNNING."""
        pair = self._pair(number, token)
        return bool(self.world.write(lambda tx: runs.run_start_many(tx, [pair])))

    def release(self, number: int, token: int, delay_s: int) -> bool:
        """Return a run to the queue."""
        row = (*self._pair(number, token), delay_s * SECOND)
        return bool(self.world.write(lambda tx: finish.run_release_many(tx, [row])))

    def lapse(self, number: int, token: int) -> bool:
        """Return a run to the queue, counted."""
        pair = self._pair(number, token)
        return bool(self.world.write(lambda tx: finish.run_lapse_many(tx, [pair])))

    def complete(self, number: int, token: int) -> bool:
        """End a run as completed."""
        end = RunEnd(*self._pair(number, token), "COMPLETED", "SUCCESS")
        return bool(self.world.finish_all([end]))

    def fail(self, number: int, token: int, delay_s: int) -> int | None:
        """Fail a run like a worker does, which decides by the attempt it holds."""
        run_id, real = self._pair(number, token)

        def body(tx: Tx) -> int | None:
            held = runs.run_held_get(tx, run_id)
            is_dead = held is not None and held.attempt >= ATTEMPTS_MAX
            end = RunEnd(
                run_id, real, "FAILED", "FAILURE", is_dead=is_dead,
                retry_delay_us=None if is_dead else delay_s * SECOND,
            )  # fmt: skip
            for finished in runs.run_finish_many(tx, [end]):
                return finished.retry_run_id or 0
            return None

        retry = self.world.write(body)
        return self._number(retry) if retry else retry

    def cancel(self, number: int) -> bool:
        """Cancel a pending run."""
        run_id = self._ids[number - 1]

        def body(tx: Tx) -> int | None:
            token = runs.run_cancel_pending(tx, run_id)
            if token is not None:
                assert runs.run_finish_many(tx, [RunEnd(run_id, token, "CANCELLED", None)])
            return token

        token = self.world.write(body)
        if token is None:
            return False
        assert token > self._last_token, "a token was reused"
        self._last_token = token
        self._tokens[len(self._tokens)] = token
        return True

    def advance(self, seconds: int) -> None:
        """Advance the time."""
        self.world.clock.advance(seconds=seconds)

    def picture(self) -> tuple[dict[int, tuple[Any, ...]], dict[int, tuple[str, int]]]:
        """Return everything observable about the queue."""
        columns = "run_id, state, admission, attempt, lapses, scheduled_time, priority"
        live = self.world.sql(f"SELECT {columns} FROM runs")
        ended = self.world.sql("SELECT run_id, final_state, attempt FROM history")
        assert len({row[0] for row in live + ended}) == len(live) + len(ended), "doubled"
        return (
            {self._number(row[0]): tuple(row[1:]) for row in sorted(live)},
            {self._number(row[0]): tuple(row[1:]) for row in sorted(ended)},
        )


def play(steps: list[Step], model: Model, replay: Replay) -> list[Any]:
    """Run the steps on both and compare every result. Return the results."""
    held: list[tuple[int, int]] = []
    results = []
    for verb, *values in steps:
        arguments = tuple(values)
        if verb in ("start", "release", "lapse", "complete", "fail"):
            if not held:
                continue
            index, *rest = values
            arguments = (*held[index % len(held)], *rest)
        elif verb == "cancel":
            if not model.created:
                continue
            arguments = (values[0] % model.created + 1,)
        expected = getattr(model, verb)(*arguments)
        got = getattr(replay, verb)(*arguments)
        assert got == expected, (verb, arguments, got, expected)
        if verb == "claim":
            held += expected
        results.append(got)
    assert replay.picture() == model.picture()
    live, ended = model.picture()
    assert len(live) + len(ended) == model.created
    assert all(attempt <= ATTEMPTS_MAX for _, attempt in ended.values())
    return results
