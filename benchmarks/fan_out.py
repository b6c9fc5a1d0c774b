"""Fan-out: items of one phase with fan-in and failures, from the trigger to the next phase."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.cascade import open_flows, orchestrator_loop, wait_until_ended
from benchmarks.load import wall_now
from benchmarks.raw import Raw
from benchmarks.result import Result, percentile
from benchmarks.site import Site
from benchmarks.work import worker
from penstock import PermanentError, Pipeline, text, upstream
from penstock.client import Client
from penstock.db.store import Store
from penstock.worker.context import RunContext

ITEMS = 10_000
ROUNDS = 5
FAIL_EVERY = 100

listed_ns: list[int] = []
first_ns: list[int] = []
gathered_ns: list[int] = []
first_at: list[int] = []
"""When the first item of each flow began, on the clock that the database shares."""


def fan_out_of(items: int) -> Pipeline:
    """List items, one no-op run each, of which one in a hundred fails, then gather."""
    made = Pipeline("fan_out", partition=text("day"))
    listing = made.phase("listing")
    each = made.phase("each", after=listing)
    gathering = made.phase("gathering", after=each)

    @listing.processor
    def list_items(_: RunContext) -> list[str]:
        listed_ns.append(time.monotonic_ns())
        return [f"item-{n:06}" for n in range(items)]

    @each.processor(each=upstream("list_items"), min_items=0.95)
    def one(run: RunContext) -> None:
        if not first_ns:
            first_ns.append(time.monotonic_ns())
            first_at.append(wall_now())
        if int((run.item_key or "0")[5:]) % FAIL_EVERY == 0:
            raise PermanentError("this item always fails")

    @gathering.processor
    def gather(_: RunContext) -> None:
        gathered_ns.append(time.monotonic_ns())

    return made


def fan_out(site: Site, *, quick: bool) -> Iterator[Result]:
    """Measure items per second, and from the trigger of the phase to its first item.

    `listed_p50_ms` counts from the call of the processor that lists the items.
    """
    items, rounds = (1_000, 2) if quick else (ITEMS, ROUNDS)
    place = site.create("fan_out")
    store = place.store()
    pipeline = fan_out_of(items)
    Client(store).register([pipeline])
    subject, loop = worker(store, pipeline), orchestrator_loop(store)
    loop.start()
    subject.start()
    subject.started.wait(30)
    first_at.clear()
    rates, delays = [], []
    for n in range(rounds + 1):
        rate, delay = _round(store, f"day{n}")
        if n:  # the first one warms up
            rates.append(rate * items)
            delays.append(delay)
    loop.stop()
    subject.stop()
    store.close()
    raw = place.raw()
    _check(raw, items, rounds + 1)
    triggers = raw.rows("SELECT at FROM triggers WHERE phase = 'each' ORDER BY flow_id")
    starts = [(began - at) / 1_000 for began, (at,) in zip(first_at, triggers, strict=True)][1:]
    raw.close()
    site.drop(place)
    yield Result(
        bench="fan_out",
        engine=site.engine,
        value=max(rates),
        unit="items/s",
        n=items,
        extra={
            "first_start_p50_ms": percentile(starts, 0.5),
            "listed_p50_ms": percentile(delays, 0.5),
            "median": percentile(rates, 0.5),
            "rounds": rounds,
        },
    )


def _round(store: Store, day: str) -> tuple[float, float]:
    """Run one flow; return 1 / seconds from the listing to the gathering, and ms to the first."""
    for known in (listed_ns, first_ns, gathered_ns):
        known.clear()
    open_flows(store, "fan_out", "manual", [day])
    store.wake(["runs:default"])
    wait_until_ended(store)
    ((listed,), (first,), (gathered,)) = (listed_ns, first_ns, gathered_ns)
    return 1e9 / (gathered - listed), (first - listed) / 1e6


def _check(raw: Raw, items: int, flows: int) -> None:
    ended = raw.rows("SELECT count(*), count(DISTINCT run_id) FROM history WHERE item_key <> ''")[0]
    assert ended == (items * flows, items * flows), ended
    distinct = raw.rows(
        "SELECT count(*) FROM (SELECT DISTINCT flow_id, item_key FROM history "
        "WHERE item_key <> '') AS d"
    )[0][0]
    assert distinct == items * flows, distinct
    failed = raw.rows("SELECT count(*) FROM item_completions WHERE status = 'failed'")[0][0]
    assert failed == flows * -(-items // FAIL_EVERY), failed
