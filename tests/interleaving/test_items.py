"""Items, orchestrators and cancellations against each other, statement by statement."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from penstock import Pipeline, game_day_modes, text
from penstock.client import Client
from penstock.core.ids import encode
from penstock.db.store import Store
from penstock.flows.items import item_list
from penstock.flows.items.sources import ItemRequest
from penstock.flows.orchestrator import Orchestrator
from penstock.flows.records import FlowRequest
from tests.harness.interleaving import Act, InterleavingFailed, Outcome, explore
from tests.interleaving.stage import Stage, claim_act, finish_act
from tests.interleaving.test_seeded_bugs import patched
from tests.kits.effort import effort

pytestmark = pytest.mark.postgres

ITEMS = ["a", "b", "c", "d", "e"]


def work(run: Any) -> None:
    """Never called: scenes end runs themselves."""


def listed(_: ItemRequest) -> list[str]:
    """List the items."""
    return ITEMS


@pytest.fixture(scope="module")
def scene_stage(stage: Stage) -> Stage:
    """The stage, with a pipeline that fans out registered."""
    made = Pipeline("fan", partition=text("day"), warehouse="w", modes=game_day_modes())
    first = made.phase("items")
    first.processor("item", each="SELECT id FROM items")(work)
    made.phase("next", after=first).processor("gathered")(work)
    stage.client.register([made])
    rows = stage.sql("SELECT processor FROM processors WHERE pool = %s", stage.pool)
    stage.processors = [row[0] for row in rows]
    return stage


def orchestrate(name: str) -> Act:
    """Return one step of an orchestrator."""
    return lambda store: Orchestrator(store, query=listed, holder=name).run_once()


def opened(stage: Stage) -> None:
    """Open a flow; its items have not been evaluated yet."""
    stage.empty()
    stage.client.flows.trigger(
        FlowRequest(pipeline="fan", customer="acme", partition="d", mode="same_day")
    )


def first_runs(stage: Stage) -> list[tuple[Any, ...]]:
    """Return the items of first runs, live and ended."""
    return stage.sql(
        "SELECT item_key FROM runs WHERE item_key <> '' AND parent_run_id IS NULL UNION ALL "
        "SELECT item_key FROM history WHERE item_key <> '' AND parent_run_id IS NULL ORDER BY 1"
    )


def test_two_orchestrators_create_each_run_once(scene_stage: Stage) -> None:
    """However evaluations and parts of the list interleave, each item has one run."""
    stage = scene_stage

    def scene():  # type: ignore[no-untyped-def]
        opened(stage)

        def check(_outcomes: list[Outcome]) -> None:
            orchestrate("last")(stage.store)
            assert first_runs(stage) == [(key,) for key in ITEMS]
            found = stage.sql("SELECT state, total, created, due_at FROM expansions")
            assert found == [("SEALED", 5, 5, None)]

        return [orchestrate("o1"), orchestrate("o2")], check

    with patch.multiple(item_list, BATCH=2, FIRST_BATCH=1):
        assert explore(stage.arena, scene, range(effort(16, 40))) > effort(4, 10)


@pytest.mark.seeded
def test_evaluations_without_a_token(scene_stage: Stage) -> None:
    """If any evaluation may store its items, the bug is detected."""
    stage = scene_stage

    def scene():  # type: ignore[no-untyped-def]
        opened(stage)

        def check(outcomes: list[Outcome]) -> None:
            assert [one.error for one in outcomes] == [None, None]
            orchestrate("last")(stage.store)
            assert first_runs(stage) == [(key,) for key in ITEMS]

        return [orchestrate("o1"), orchestrate("o2")], check

    any_token = ("AND token = %(token)s", "")
    with (
        patch.multiple(item_list, BATCH=2, FIRST_BATCH=1),
        patched("expansion_lease", any_token, ("AND due_at IS NOT NULL", "")),
        patched("expansion_seal", any_token, ("AND state = 'EVALUATING'", "")),
        pytest.raises(InterleavingFailed),
    ):
        explore(stage.arena, scene, range(120))


def test_last_items_do_not_miss_each_other(scene_stage: Stage) -> None:
    """Whichever item ends last, the processor completes once and the next phase starts once."""
    stage = scene_stage

    def scene():  # type: ignore[no-untyped-def]
        opened(stage)
        orchestrate("first")(stage.store)
        held = list(claim_act(stage, stage.session(), start=True)(stage.store))
        assert len(held) == len(ITEMS)
        acts = [
            finish_act(held[:2]), finish_act(held[2:]), orchestrate("o1"), orchestrate("o2"),
        ]  # fmt: skip

        def check(_outcomes: list[Outcome]) -> None:
            orchestrate("last")(stage.store)
            assert stage.sql("SELECT phase, runs FROM triggers ORDER BY 1") == [
                ("items", 0), ("next", 1),
            ]  # fmt: skip
            assert stage.sql("SELECT status FROM completions") == [("success",)]
            assert stage.sql("SELECT succeeded, failed FROM expansions") == [(5, 0)]
            assert stage.sql("SELECT count(*) FROM item_counts") == [(0,)]
            assert stage.sql("SELECT count(*) FROM nudges") == [(0,)]

        return acts, check

    assert explore(stage.arena, scene, range(effort(16, 40))) > effort(6, 15)


def test_a_cancellation_leaves_no_runs(scene_stage: Stage) -> None:
    """A flow that is cancelled while its items are created has no live run afterwards."""
    stage = scene_stage

    def scene():  # type: ignore[no-untyped-def]
        opened(stage)
        ((flow_id,),) = stage.sql("SELECT flow_id FROM flows")

        def cancel(store: Store) -> object:
            client = Client(store)
            client._names._cache = stage.client._names._cache
            return client.flows.cancel(encode("flow", flow_id))

        def check(_outcomes: list[Outcome]) -> None:
            orchestrate("last")(stage.store)
            assert stage.sql("SELECT state FROM flows") == [("CANCELLED",)]
            assert stage.sql("SELECT count(*) FROM runs") == [(0,)]
            assert stage.sql("SELECT count(*) FROM expansion_items") == [(0,)]
            ((state, total, created),) = stage.sql("SELECT state, total, created FROM expansions")
            assert state == "CANCELLED" or (state, created) == ("SEALED", total)

        return [orchestrate("o1"), cancel], check

    with patch.multiple(item_list, BATCH=2, FIRST_BATCH=1):
        assert explore(stage.arena, scene, range(effort(16, 40))) > effort(4, 10)
