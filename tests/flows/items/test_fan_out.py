"""Fan-out and fan-in on both engines: one run per item, counts, quorum, stragglers, cancel."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.access.store import registry
from penstock.core.clock import MINUTE
from penstock.core.ids import encode
from penstock.db.store import Store
from penstock.flows.items.expander import ExpandCounts
from penstock.flows.items.sources import ItemRequest
from penstock.runs import attempt_result
from penstock.runs.store import runs
from penstock.runs.store.finish import run_end_many
from penstock.testing.clock import VirtualClock
from tests.kits.items import ItemStage, fanned


class TestFanOut:
    """Where items come from, and the runs they become."""

    def test_one_run_per_item_then_the_next_phase(self, store: Store, clock: VirtualClock) -> None:
        """The runs are created with the trigger; the next phase starts after the last item."""
        stage = ItemStage(store, clock, fanned())
        flow = stage.open()
        stage.list_games(["a", "b", "c"])
        stepped = stage.step()
        assert (stepped.triggers, stepped.runs) == (1, 3)
        held = stage.claim_items()
        assert sorted(h.item_key for h in held) == ["a", "b", "c"]
        stage.end_items(held[:2])
        assert stage.step().triggers == 0
        stage.end_items(held[2:])
        assert stage.step().triggers == 1
        row = stage.expansion(flow)
        assert (row.state, row.total, row.created, row.succeeded) == ("SEALED", 3, 3, 3)
        completion = next(c for c in stage.detail(flow).completions if c.processor == "game")
        assert (completion.status, completion.records) == ("success", 6)
        stage.run_off()
        assert stage.state(flow) == "COMPLETE"

    def test_an_item_may_be_any_json_value(self, store: Store, clock: VirtualClock) -> None:
        """The run has the value and its key: a field, the value itself, or a digest."""
        stage = ItemStage(store, clock, fanned(item_key="id"))
        stage.open()
        stage.list_games([{"id": 7, "home": "BOS"}, {"id": "x8", "home": "LAL"}])
        stage.step()
        found = {h.item_key: json.loads(h.item or "null") for h in stage.claim_items()}
        assert found == {"7": {"id": 7, "home": "BOS"}, "x8": {"id": "x8", "home": "LAL"}}

    def test_no_items_complete_the_processor(self, store: Store, clock: VirtualClock) -> None:
        """An empty list is complete immediately; the cascade continues."""
        stage = ItemStage(store, clock, fanned())
        flow = stage.open()
        stage.list_games([])
        stage.step()
        assert stage.states(flow)["games"] == "COMPLETE"
        assert stage.states(flow)["report"] == "IN_PROGRESS"

    @pytest.mark.parametrize(
        ("items", "text"),
        [
            ("abc", "to be a list of items"),
            (["a", "a"], "'a' twice"),
            ([1, "1"], "'1' twice"),
            (["x" * 201], "1 to 200 characters"),
        ],
    )
    def test_a_list_that_is_none_fails_with_the_reason(
        self, store: Store, clock: VirtualClock, items: Any, text: str
    ) -> None:
        """The phase fails, the expansion has the error, and an alert names the fix."""
        stage = ItemStage(store, clock, fanned())
        flow = stage.open()
        stage.list_games(items)
        stage.step()
        assert stage.states(flow)["games"] == "FAILED"
        row = stage.expansion(flow)
        assert row.state == "FAILED"
        assert text in (row.error or "")
        (alert,) = stage.sql("SELECT message FROM alerts WHERE rule = 'expansion_failed'")
        assert "penstock trigger nba 2025-11-16 games" in alert[0]
        assert stage.item_keys() == []

    def test_a_result_without_the_field_fails(self, store: Store, clock: VirtualClock) -> None:
        """The error names the fields that the result has."""
        stage = ItemStage(store, clock, fanned())
        flow = stage.open()
        stage.list_games(["a"], field="games")
        stage.step()
        assert "'items', or a list; its stored result has 'games'" in (
            stage.expansion(flow).error or ""
        )

    def test_items_of_a_function(self, store: Store, clock: VirtualClock) -> None:
        """A function of the flow is called outside the transaction of the trigger."""
        asked: list[ItemRequest] = []

        def games(request: ItemRequest) -> Any:
            asked.append(request)
            return (f"{request.partition}/{n}" for n in range(2))

        stage = ItemStage(store, clock, fanned(games))
        stage.open()
        stage.list_games([])
        stage.step()
        assert sorted(h.item_key for h in stage.claim_items()) == ["2025-11-16/0", "2025-11-16/1"]
        assert [(r.customer, r.mode, r.processor) for r in asked] == [("acme", "same_day", "game")]

    def test_items_of_a_query(self, store: Store, clock: VirtualClock) -> None:
        """A query is run by the process that has the warehouse."""
        asked: list[ItemRequest] = []

        def query(request: ItemRequest) -> Any:
            asked.append(request)
            return [1, 2, 3]

        stage = ItemStage(store, clock, fanned("SELECT id FROM games"), query)
        stage.open()
        stage.list_games([])
        stage.step()
        assert sorted(h.item_key for h in stage.claim_items()) == ["1", "2", "3"]
        assert [(r.sql, r.warehouse) for r in asked] == [("SELECT id FROM games", "w")]

    def test_an_evaluation_that_fails_is_repeated(self, store: Store, clock: VirtualClock) -> None:
        """An error postpones the evaluation; the fifth is final."""
        calls: list[int] = []

        def games(_: ItemRequest) -> Any:
            calls.append(1)
            raise ConnectionError("the schedule is away")

        stage = ItemStage(store, clock, fanned(games))
        flow = stage.open()
        stage.list_games([])
        for attempts in range(1, 5):
            stage.step()
            assert len(calls) == attempts
            assert stage.expansion(flow).state == "EVALUATING"
            clock.advance(10 * MINUTE)
        stage.step()
        row = stage.expansion(flow)
        assert (row.state, len(calls)) == ("FAILED", 5)
        assert "ConnectionError: the schedule is away" in (row.error or "")
        assert stage.states(flow)["games"] == "FAILED"

    def test_a_function_waits_for_its_code(self, store: Store, clock: VirtualClock) -> None:
        """An orchestrator without the code postpones it and opens an alert; another continues."""
        pipeline = fanned(lambda _: ["a"])
        stage = ItemStage(store, clock, pipeline)
        with_code = stage.orchestrator
        stage.orchestrator = type(with_code)(store, stage.probe, holder="o2")
        stage.open()
        stage.list_games([])
        stage.step()
        assert stage.sql("SELECT count(*) FROM alerts WHERE rule = 'items_without_code'") == [(1,)]
        clock.advance(MINUTE)
        with_code.run_once()
        assert [h.item_key for h in stage.claim_items()] == ["a"]

    def test_a_long_list_is_created_in_parts(self, store: Store, clock: VirtualClock) -> None:
        """The trigger creates the first runs, the orchestrator the others; none twice."""
        stage = ItemStage(store, clock, fanned())
        flow = stage.open()
        keys = [f"g{n:05}" for n in range(2_700)]
        stage.list_games(keys)
        stage.step()
        row = stage.expansion(flow)
        assert (row.total, row.created, row.due_at) == (2_700, 2_700, None)
        assert stage.item_keys() == keys
        assert stage.sql("SELECT count(*) FROM expansion_items") == [(0,)]


class TestFanIn:
    """When the processor of the items completes."""

    def test_too_few_items_fail_the_phase_until_they_are_retried(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """All items must succeed by default; a retry by hand heals the phase."""
        stage = ItemStage(store, clock, fanned())
        flow = stage.open()
        stage.list_games(["a", "b"])
        stage.step()
        ended = stage.end_items(stage.claim_items(), lambda h: h.item_key == "b")
        stage.step()
        assert stage.states(flow)["games"] == "FAILED"
        (dead,) = [end.run_id for end in ended if end.is_dead]
        retried = stage.client.runs.retry(encode("run", dead))
        (held,) = stage.claim_items()
        assert (held.item_key, encode("run", held.run_id)) == ("b", retried.run_id)
        stage.end_items([held])
        stage.step()
        assert stage.states(flow)["games"] == "COMPLETE"
        row = stage.expansion(flow)
        assert (row.succeeded, row.failed) == (2, 0)
        stage.run_off()
        assert stage.state(flow) == "COMPLETE"

    def test_a_quorum_completes_the_processor_in_part(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """With enough items the phase is degraded, and later runs learn what is missing."""
        stage = ItemStage(store, clock, fanned(min_items=0.5))
        flow = stage.open()
        stage.list_games(["a", "b"])
        stage.step()
        stage.end_items(stage.claim_items(), lambda h: h.item_key == "b")
        stage.step()
        assert stage.states(flow)["games"] == "DEGRADED"
        (held,) = stage.claim_items("report")
        assert json.loads(held.gate_context or "{}")["missing"] == ["game"]

    def test_stragglers_do_not_hold_up_a_quorum(self, store: Store, clock: VirtualClock) -> None:
        """At the deadline a quorum is enough; the last item then completes the phase."""
        stage = ItemStage(store, clock, fanned(min_items=0.5, stragglers="20m"))
        flow = stage.open()
        stage.list_games(["a", "b"])
        stage.step()
        first, last = stage.claim_items()
        stage.end_items([first])
        stage.step()
        assert stage.states(flow)["games"] == "IN_PROGRESS"
        clock.advance(21 * MINUTE)
        stage.step()
        assert stage.states(flow)["games"] == "DEGRADED"
        stage.end_items([last])
        stage.step()
        assert stage.states(flow)["games"] == "COMPLETE"

    def test_failed_items_count_once_against_the_breaker(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """Ten dead items are one failure of their phase, not ten."""
        stage = ItemStage(store, clock, fanned())
        stage.open()
        stage.list_games(list(range(10)))
        stage.step()
        stage.end_items(stage.claim_items(), lambda _: True)
        stage.step()
        assert stage.sql("SELECT failures FROM breakers WHERE phase = 'games'") == [(1,)]

    def test_each_item_has_its_own_attempts(self, store: Store, clock: VirtualClock) -> None:
        """A retry keeps the item, and ends count it once."""
        stage = ItemStage(store, clock, fanned())
        flow = stage.open()
        stage.list_games(["a", "b"])
        stage.step()
        one, other = stage.claim_items()
        failure = attempt_result.AttemptFailure(error_type="TRANSIENT_NETWORK")
        ends = [attempt_result.failed(one, failure, jitter=0.0)]
        stage.write(lambda tx: run_end_many(tx, ends))
        stage.end_items([other])
        stage.step()
        assert stage.expansion(flow).ended == 1
        clock.advance(30 * MINUTE)
        (again,) = stage.claim_items()
        assert (again.item_key, again.attempt) == (one.item_key, 2)
        stage.end_items([again])
        stage.step()
        assert stage.states(flow)["games"] == "COMPLETE"


class TestCancel:
    """A flow that ends early takes its items with it."""

    def test_cancel_ends_waiting_items_and_creates_no_more(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """Pending runs are cancelled, held ones are asked to stop, stored items are dropped."""
        stage = ItemStage(store, clock, fanned())
        flow = stage.open()
        stage.list_games([f"g{n}" for n in range(300)])
        stage.step()
        held = stage.claim_items(n=5)
        cancelled = stage.client.flows.cancel(encode("flow", flow.flow.flow_id), "wrong day")
        assert cancelled.runs == 300
        assert stage.sql("SELECT count(*) FROM runs") == [(5,)]
        assert stage.sql("SELECT count(*) FROM runs WHERE cancel_requested_at IS NULL") == [(0,)]
        assert stage.sql(
            "SELECT final_state, count(*) FROM history WHERE item_key <> '' GROUP BY 1"
        ) == [("CANCELLED", 295)]
        stage.end_items(held)
        stage.step()
        assert stage.state(flow) == "CANCELLED"

    def test_cancel_during_the_expansion(self, store: Store, clock: VirtualClock) -> None:
        """Items whose runs were not created yet never get one."""
        stage = ItemStage(store, clock, fanned())
        flow = stage.open()
        stage.list_games([f"g{n}" for n in range(3_000)])
        stage.orchestrator._expander = _Idle()  # type: ignore[assignment]
        stage.step()
        assert stage.expansion(flow).created == 200
        stage.client.flows.cancel(encode("flow", flow.flow.flow_id))
        assert stage.sql("SELECT count(*) FROM expansion_items") == [(0,)]
        row = stage.expansion(flow)
        assert (row.state, row.due_at) == ("CANCELLED", None)
        assert stage.sql("SELECT count(*) FROM runs") == [(0,)]


class _Idle:
    """An expander that was killed."""

    has_results = False

    def run_once(self) -> ExpandCounts:
        """Do nothing."""
        return ExpandCounts()


def test_items_are_fair_towards_other_customers(store: Store, clock: VirtualClock) -> None:
    """A run that another customer submits after 300 items is claimed among the first."""
    stage = ItemStage(store, clock, fanned())
    stage.open()
    stage.list_games([f"g{n}" for n in range(300)])
    stage.step()
    stage.open(customer="globex")
    rows = stage.store.read(registry.processor_list)
    claim = runs.Claim(
        pool_key=rows[0].pool_key, processors=[row.processor_key for row in rows], n=3,
        claimed_by="t",
    )  # fmt: skip
    held = stage.write(lambda tx: runs.run_claim(tx, claim))
    assert {h.customer_id for h in held} == {"acme", "globex"}
