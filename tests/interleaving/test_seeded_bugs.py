"""Proof of the interleaver: classic bugs, inserted on purpose, that it must detect.

Each is a patch of a rendered statement or a function, undone after the test. The scene passes
without the patch and fails with it, within a few dozen orders.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from penstock.audit.rows import OutboxMessage
from penstock.audit.store.journal import outbox_put
from penstock.core.clock import MINUTE
from penstock.db.statements import load
from penstock.db.store import Store, Tx
from penstock.runs.admitter import Admitter
from penstock.runs.rows import HeldRun
from penstock.runs.store.leases import session_expire
from penstock.runs.sweeper import Sweeper
from penstock.schedules import scheduler
from penstock.schedules.rows import TickCounts
from penstock.schedules.store import schedule
from penstock.services import upkeep
from tests.harness.interleaving import Act, InterleavingFailed, Outcome, Scene, explore
from tests.interleaving.stage import Stage, claim_act, submit_act
from tests.interleaving.test_runs import conserved, one_free
from tests.interleaving.test_services import publish_outbox, slots_once, tick

pytestmark = [pytest.mark.postgres, pytest.mark.seeded]

SEEDS = range(1_000)
"""Orders to try; a bug is usually detected within a few dozen."""
log = logging.getLogger(__name__)


@contextmanager
def patched(name: str, *changes: tuple[str, str]) -> Iterator[None]:
    """Replace parts of a statement's text."""
    statements = load("postgres")
    original = statements[name]
    texts = original.texts
    for old, new in changes:
        assert any(old in text for text in texts), f"{name} does not say {old!r}"
        texts = tuple(text.replace(old, new) for text in texts)
    statements[name] = replace(original, texts=texts, one=())  # also for a batch of one row
    try:
        yield
    finally:
        statements[name] = original


def caught(stage: Stage, scene: Scene) -> int:
    """Return the number of orders it took to detect the bug."""
    for seed in SEEDS:
        try:
            explore(stage.arena, scene, [seed])
        except InterleavingFailed as error:
            if not isinstance(error.cause, AssertionError):
                raise  # broken in another way than intended
            log.info("caught after %d orders: %s", seed + 1, error)
            return seed + 1
    pytest.fail(f"not caught within {len(SEEDS)} orders")


def rescue_scene(stage: Stage) -> Scene:
    """A sweeper has found a lapsed claim; before it acts, another rescues it and it is claimed."""

    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        ids = stage.submit(1)
        stage.claim(stage.session())
        stage.lapse()
        stage.store.write(session_expire)
        live = stage.session()

        def rescue(store: Store) -> object:
            return store.write(Sweeper(store, jitter=lambda: 0.0)._rescue)

        def claim_again(store: Store) -> list[HeldRun]:
            rescue(store)
            Admitter(store).run_once()
            taken: list[HeldRun] = claim_act(stage, live)(store)
            return taken

        def check(outcomes: list[Outcome]) -> None:
            conserved(stage, ids)
            for run in outcomes[1].value:
                held = stage.sql("SELECT session_id FROM runs WHERE run_id = %s", run.run_id)
                assert held == [(live,)], "taken from a live worker"

        return [rescue, claim_again], check

    return scene


def test_rescue_by_id_without_token(stage: Stage) -> None:
    scene = rescue_scene(stage)
    explore(stage.arena, scene, SEEDS[:20])
    with patched("run_lapse_many", ("runs.token = batch.token", "TRUE")):
        assert caught(stage, scene) <= len(SEEDS)


def key_scene(stage: Stage) -> Scene:
    """Two inserts of a new ordering key: at most one run may be free."""

    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        return [submit_act(stage, key="k")] * 2, lambda _: one_free(stage, at_least=1)

    return scene


def test_cap_by_count_then_insert(stage: Stage) -> None:
    scene = key_scene(stage)
    explore(stage.arena, scene, SEEDS[:20])
    lock = load("postgres")["ordering_key_lock_many"].texts[0]
    with patched(
        "ordering_key_lock_many", (lock, "SELECT 1 WHERE %(b_ordering_key)s::text[] IS NULL")
    ):
        assert caught(stage, scene) <= len(SEEDS)


def outbox_scene(stage: Stage) -> Scene:
    """A producer that commits late, another one, and an outbox publisher that runs in between."""

    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        seen: list[str] = []

        def produce(name: str) -> Act:
            return lambda store: store.write(lambda tx: outbox_put(tx, "t", name))

        def check(_: list[Outcome]) -> None:
            publish_outbox(seen, stage.store)
            assert sorted(seen) == ['"a"', '"b"'], "a message was never delivered"

        return [produce("a"), produce("b"), lambda store: publish_outbox(seen, store)], check

    return scene


def test_outbox_by_high_water_mark(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = outbox_scene(stage)
    explore(stage.arena, scene, SEEDS[:20])
    mark = [0]

    def by_mark(tx: Tx, n: int) -> list[OutboxMessage]:
        found = sorted(OutboxMessage._make(row) for row in tx.rows("outbox_take", {"n": n}))
        new = [message for message in found if message.outbox_id > mark[0]]
        mark[0] = max([mark[0], *(message.outbox_id for message in new)])
        return new

    monkeypatch.setattr(upkeep, "outbox_take", by_mark)
    assert caught(stage, scene) <= len(SEEDS)


def cron_scene(stage: Stage) -> Scene:
    """Two schedulers that both believe they are the leader."""

    def scene():  # type: ignore[no-untyped-def]
        stage.empty()
        stage.config(overlap="allow")
        stage.clock.advance(5 * MINUTE)
        return [tick, tick], lambda _: slots_once(stage)

    return scene


def test_leader_only_cron_without_unique_key(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = cron_scene(stage)
    explore(stage.arena, scene, SEEDS[:20])

    def trusting(tx: Tx, plans: Sequence[object], **more: object) -> TickCounts:
        counts = schedule.schedule_start_many(tx, plans, **more)  # type: ignore[arg-type]
        return counts._replace(advanced=counts.due)

    monkeypatch.setattr(scheduler, "schedule_start_many", trusting)
    index = stage.value("SELECT indexdef FROM pg_indexes WHERE indexname = 'runs_once_per_slot'")
    stage.sql("DROP INDEX runs_once_per_slot")
    try:
        arbiter = "(customer, config_id, slot, processor, attempt, item_key) DO NOTHING"
        with (
            patched("schedule_take_due", ("FOR UPDATE SKIP LOCKED", "")),
            patched("schedule_start_many", (arbiter, "DO NOTHING")),
        ):
            assert caught(stage, scene) <= len(SEEDS)
    finally:
        stage.empty()
        stage.sql(index)
