"""Completions and nudges: what processors reported, and the hint that a flow is to be judged again.

A completion is one row per flow and processor; a later report may only better it. Whoever records
one appends a nudge in the same transaction, if and only if something changed; the orchestrator
deletes nudges in the transaction that acts on them, so that a crash leaves work that is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from penstock.db.store import Tx
from penstock.runs.rows import Finished


class Nudge(NamedTuple):
    """Something happened to a flow: a processor of `phase` reported; None: judge all of it."""

    flow_id: int
    phase: str | None
    is_failure: bool


class Seen(NamedTuple):
    """A completion as read."""

    flow_id: int
    phase: str
    processor: str
    status: str
    at: int
    quality: float | None
    number: int
    run_id: int | None
    execution_id: str | None
    records: int | None
    entities: str | None


class Reported(NamedTuple):
    """A completion that comes from outside, or is inherited (batch of `completion_put_many`)."""

    flow_id: int
    processor: int
    customer: int
    status: str
    at: int
    run_id: int | None = None
    execution_id: str | None = None
    records: int | None = None
    quality: float | None = None
    entities: str | None = None


def completion_from_runs(tx: Tx, finished: Sequence[Finished]) -> int:
    """Record what runs of flows came to, with their log rows; returns how many are news.

    A run that is tried again completes nothing. One that somebody cancelled is no failure that a
    breaker would count.
    """
    tx.later("execution_log_from_runs", batch=[(end.run_id,) for end in finished])
    over = [(end.run_id,) for end in finished if end.retry_run_id is None]
    news = tx.rows("completion_from_runs", batch=over) if over else []
    dead = {end.run_id for end in finished if end.is_dead}
    return _nudge(tx, [(row[0], row[1], row[2], row[4] in dead) for row in news])


def completion_put_many(tx: Tx, reports: Sequence[Reported], *, nudge: bool = True) -> int:
    """Record reports; returns how many are news, which alone are nudged."""
    news = tx.rows("completion_put_many", batch=reports)
    if nudge:
        _nudge(tx, [(row[0], row[1], row[2], row[3] == "failed") for row in news])
    return len(news)


def completion_seen(tx: Tx, params: dict[str, object]) -> int | None:
    """The flow that took this execution's report before.

    params: customer, pipeline, partition, mode, processor, execution_id.
    """
    rows = tx.rows("completion_seen", params)
    return None if not rows else int(rows[0][0])


def completions_of(tx: Tx, ids: Sequence[int]) -> dict[int, list[Seen]]:
    """What flows have seen."""
    return completions_ask(tx, ids)()


def completions_ask(tx: Tx, ids: Sequence[int]) -> Callable[[], dict[int, list[Seen]]]:
    """Like `completions_of`, without waiting for the answer."""
    answer = tx.later("completion_rows_for_flows", {"ids": list(ids)})

    def read() -> dict[int, list[Seen]]:
        found: dict[int, list[Seen]] = {flow_id: [] for flow_id in ids}
        for row in answer.rows():
            found[row[0]].append(Seen._make(row))
        return found

    return read


def nudge_put_many(tx: Tx, rows: Sequence[tuple[int, int, str | None, bool]]) -> None:
    """Have flows judged: (flow, customer, phase that reported or None for all, is_failure)."""
    tx.later("nudge_put_many", batch=rows)


def nudge_partition(tx: Tx, customer: int, pipeline: int, partition: str) -> list[int]:
    """Have whatever is open for a partition judged again; returns the flows."""
    params = {"customer": customer, "pipeline": pipeline, "partition": partition}
    return [row[0] for row in tx.rows("nudge_partition", params)]


def nudge_next_of_configs(tx: Tx, configs: Iterable[int]) -> None:
    """Flows of these configs ended: have the next in line judged."""
    ids = sorted({config_id for config_id in configs if config_id})
    if ids:
        tx.run("nudge_next_of_configs", {"ids": ids})


def nudge_take(tx: Tx, n: int) -> list[Nudge]:
    """Nudges to act on in this transaction."""
    return [Nudge(row[0], row[1], bool(row[2])) for row in tx.rows("nudge_take", {"n": n})]


def _nudge(tx: Tx, news: Sequence[tuple[int, int, int, bool]]) -> int:
    if news:
        numbers = {row[2] for row in news}
        phases = {row[0]: row[1] for row in tx.rows("phase_of_list", {"ids": sorted(numbers)})}
        nudge_put_many(
            tx,
            [
                (flow_id, customer, phases[number], is_failure)
                for flow_id, customer, number, is_failure in news
            ],
        )
    return len(news)


def completion_from_finished(tx: Tx, finished: Sequence[Finished]) -> None:
    """Record the completions of ended runs that belong to flows."""
    of_flows = [end for end in finished if end.flow_id is not None]
    if of_flows:
        completion_from_runs(tx, of_flows)
