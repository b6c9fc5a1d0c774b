"""Runs: the durable queue. Insert, claim, start, finish, release, cancel, read.

Every transition is compare-and-set on (state, token): a caller whose token is stale changes nothing
and learns so from what is missing in the answer. `run_finish_many` is the one door through which a
run ends, whoever ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.db.store import Tx, first
from penstock.limits.store.run_queue import ADMIT, lines_leave
from penstock.runs.rows import Finish, Finished, HeldRun, NewRun, Run
from penstock.runs.states import Admission

FAR_FUTURE = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Who claims what: `start` marks the runs RUNNING at once, because they will start at once."""

    pool: int
    processors: Sequence[int]
    n: int
    session_id: int | None = None
    claimed_by: str | None = None
    start: bool = False
    customer: int | None = None


def run_insert_many(tx: Tx, runs: Sequence[NewRun], actor: str) -> list[int]:
    """Create runs in order; returns their ids (fewer when a slot had started before)."""
    keys = sorted({run.ordering_key for run in runs if run.ordering_key is not None})
    if keys:
        tx.run("ordering_key_lock_many", batch=[(key,) for key in keys])
    rows = tx.rows("run_insert_many", {"actor": actor}, runs)
    if any(row[1] == Admission.LIMITED for row in rows):
        tx.wake([ADMIT])
    return [row[0] for row in rows]


def run_claim(tx: Tx, claim: Claim) -> list[HeldRun]:
    """Take the next ready runs of a pool, in order of level, fair turn and age."""
    rows = tx.rows(
        "run_claim",
        {
            "pool": claim.pool,
            "processors": list(claim.processors),
            "n": claim.n,
            "session_id": claim.session_id,
            "claimed_by": claim.claimed_by,
            "start": claim.start,
            "customer": claim.customer,
        },
    )
    return [HeldRun._make(row) for row in rows]


def run_claim_by_id(
    tx: Tx, run_id: int, claimed_by: str, session_id: int | None = None, customer: int | None = None
) -> HeldRun | None:
    """Take one given run when it is ready; None when it is not, or somebody else has it."""
    params = {
        "run_id": run_id,
        "claimed_by": claimed_by,
        "session_id": session_id,
        "customer": customer,
    }
    row = first(tx.rows("run_claim_by_id", params))
    return None if row is None else HeldRun._make(row)


def fair_clock_raise(tx: Tx, claimed: Iterable[HeldRun]) -> None:
    """Let the clocks follow the turns that were claimed; call at most some ten times a second."""
    highest: dict[tuple[int, int], int] = {}
    for run in claimed:
        place = (run.pool, run.level)
        highest[place] = max(highest.get(place, 0), run.fair_pass)
    tx.run("fair_clock_raise", batch=[(*place, turn) for place, turn in sorted(highest.items())])


def run_start_many(tx: Tx, held: Iterable[tuple[int, int]]) -> set[int]:
    """(run, token) pairs that now are RUNNING; the others were not theirs to start."""
    return {row[0] for row in tx.rows("run_start_many", batch=list(held))}


def run_release_many(tx: Tx, held: Iterable[tuple[int, int, int]]) -> set[int]:
    """Give (run, token, delay) back to the queue; attempts are not counted."""
    rows = list(held)
    note = {"action": "released", "actor": "worker"}
    tx.run("journal_interrupt_many", note, batch=[row[:2] for row in rows])
    released: dict[int, int] = dict(tx.rows("run_release_many", batch=rows))
    if released:
        tx.run("progress_drop_many", {"ids": sorted(released)})
    lines_leave(tx, [run_id for run_id, limits in released.items() if limits])
    return set(released)


def run_lapse_many(tx: Tx, held: Iterable[tuple[int, int]]) -> set[int]:
    """Put CLAIMED runs whose lease expired back, counting the lapse."""
    rows = list(held)
    tx.run("journal_interrupt_many", {"action": "lapsed", "actor": "sweeper"}, batch=rows)
    lapsed: dict[int, int] = dict(tx.rows("run_lapse_many", batch=rows))
    lines_leave(tx, [run_id for run_id, limits in lapsed.items() if limits])
    return set(lapsed)


def run_finish_many(tx: Tx, finishes: Sequence[Finish]) -> list[Finished]:
    """End runs whose token is current; the rest are stale and leave no trace.

    When a batch ends a run twice (a worker's retry of its own call) the first end counts.
    """
    if len({finish.run_id for finish in finishes}) < len(finishes):
        firsts: dict[tuple[int, int], Finish] = {}
        for finish in finishes:
            firsts.setdefault((finish.run_id, finish.token), finish)
        finishes = list(firsts.values())
    rows = tx.rows("run_finish_many", batch=finishes)
    finished = [Finished._make(row) for row in rows]
    keys = sorted({f.ordering_key for f in finished if f.ordering_key and not f.retry_run_id})
    if keys:
        run_unblock(tx, keys)
    lines_leave(tx, [end.run_id for end in finished if end.limits])
    return finished


def ordering_key_lock(tx: Tx, key: str) -> None:
    """Serialize with everybody who inserts or releases runs of this key; before any row's lock."""
    tx.run("ordering_key_lock_many", batch=[(key,)])


def run_unblock(tx: Tx, keys: Sequence[str]) -> int:
    """Let the next run of each ordering key move up; returns how many did."""
    tx.run("ordering_key_lock_many", batch=[(key,) for key in keys])
    return len(tx.rows("run_unblock_keys", {"keys": list(keys)}))


def run_held_get(tx: Tx, run_id: int, customer: int | None = None) -> HeldRun | None:
    """A live run, locked, as its holder sees it."""
    row = first(tx.rows("run_held_get", {"run_id": run_id, "customer": customer}))
    return None if row is None else HeldRun._make(row)


def run_get(tx: Tx, run_id: int, customer: int | None = None) -> Run | None:
    """A run, live or ended."""
    params = {"run_id": run_id, "customer": customer}
    row = first(tx.rows("run_get_live", params)) or first(tx.rows("run_get_ended", params))
    return None if row is None else run_of_row(row)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs a list shows; the keyset (slot_before, before) continues an earlier page."""

    customer: int | None = None
    config_id: int | None = None
    pipeline: int | None = None
    state: str | None = None
    slot_from: int = 0
    slot_to: int = FAR_FUTURE
    slot_before: int = FAR_FUTURE
    before: int = FAR_FUTURE
    limit: int = 50
    offset: int = 0


def run_list_live(tx: Tx, wanted: RunFilter) -> list[Run]:
    """Runs in the queue or in hand, newest first."""
    name = "run_list_live" if wanted.customer is None else "run_list_live_customer"
    return [run_of_row(row) for row in tx.rows(name, _params(wanted))]


def run_list_ended(tx: Tx, wanted: RunFilter) -> list[Run]:
    """Ended runs, newest first; of one customer by slot, of everybody by id."""
    name = "run_list_ended" if wanted.customer is None else "run_list_ended_customer"
    return [run_of_row(row) for row in tx.rows(name, _params(wanted))]


def run_chain(tx: Tx, run: Run, customer: int) -> list[Run]:
    """The ended attempts of a run, oldest first."""
    root = run.root_run_id or run.run_id
    params = {"root": root, "customer": customer, "slot": run.slot}
    return [run_of_row(row) for row in tx.rows("run_chain", params)]


def run_cancel_pending(tx: Tx, run_id: int) -> int | None:
    """Take a pending run out of the queue; returns the token with which it can be ended."""
    row = first(tx.rows("run_cancel_pending", {"run_id": run_id}))
    return None if row is None else int(row[0])


def run_cancel_ask(tx: Tx, run_id: int, actor: str, reason: str | None = None) -> bool:
    """Ask the holder of a run to stop; False when nobody holds it."""
    return bool(tx.rows("run_cancel_ask", {"run_id": run_id, "actor": actor, "reason": reason}))


def run_count_ready(tx: Tx, pool: int, limit: int) -> int:
    """How many runs of a pool could be claimed now, counting at most `limit`."""
    return int(tx.rows("run_count_ready", {"pool": pool, "limit": limit})[0][0])


def _params(wanted: RunFilter) -> dict[str, object]:
    return {name: getattr(wanted, name) for name in RunFilter.__slots__}


def run_of_row(row: tuple[object, ...]) -> Run:
    """A run from a row of `live_columns` or `ended_columns`."""
    run = Run._make(row)
    met = None if run.sla_met is None else bool(run.sla_met)
    assert run.admission is None or run.admission in tuple(Admission)
    return run._replace(sla_met=met, is_dead=bool(run.is_dead))


def run_again_lock(tx: Tx, run_id: int) -> None:
    """Let nobody else try this run again before the transaction ends; look after this."""
    tx.rows("run_again_lock", {"run_id": run_id})
