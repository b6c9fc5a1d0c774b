"""Use cases of items on both engines: counts, pages, retries, explanations and the command line."""

from __future__ import annotations

import json

import pytest

from penstock.core.errors import InvalidInput, NotFound
from penstock.core.ids import encode
from penstock.db.store import Store
from penstock.flows.items.records import ItemRetry
from penstock.runs.records import Submission
from penstock.testing.clock import VirtualClock
from tests.kits.items import ItemStage, fanned


@pytest.fixture
def stage(store: Store, clock: VirtualClock) -> ItemStage:
    """A flow with ten items: two failed, five succeeded, one is running and two wait."""
    made = ItemStage(store, clock, fanned())
    made.flow_id = encode("flow", made.open().flow.flow_id)
    made.list_games([f"g{n}" for n in range(10)])
    made.step()
    made.end_items(made.claim_items(n=7), lambda h: h.item_key in ("g1", "g4"))
    made.claim_items(n=1)
    made.step()
    return made


class TestReads:
    """Counts and lists."""

    def test_summary(self, stage: ItemStage) -> None:
        """Counts, kinds of errors and the first failures of each processor."""
        (one,) = stage.client.items.summary(stage.flow_id).items
        assert (one.total, one.created, one.succeeded, one.failed) == (10, 10, 5, 2)
        assert (one.state, one.required) == ("SEALED", 10)
        assert [(e.error_type, e.count) for e in one.errors] == [("VALIDATION_ERROR", 2)]
        assert [item.item_key for item in one.first_failures] == ["g1", "g4"]

    def test_pages(self, stage: ItemStage) -> None:
        """Pages follow each other by key, and a state selects."""
        keys: list[str] = []
        cursor = None
        while True:
            page = stage.client.items.list(stage.flow_id, limit=3, cursor=cursor)
            keys += [item.item_key for item in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert keys == [f"g{n}" for n in range(10)]
        for state, count in (("failed", 2), ("succeeded", 5), ("running", 1), ("waiting", 2)):
            found = stage.client.items.list(stage.flow_id, state=state).items  # type: ignore[arg-type]
            assert {item.state for item in found} == {state}
            assert len(found) == count, state

    def test_an_unknown_processor(self, stage: ItemStage) -> None:
        """The error names those that have items."""
        with pytest.raises(InvalidInput, match=r"among games\.game"):
            stage.client.items.list(stage.flow_id, processor="list_games")

    def test_explain_why_and_trace_show_counts(self, stage: ItemStage) -> None:
        """Explanations count items and name the first failures, with the command that helps."""
        found = stage.client.diagnostics.explain_flow(stage.flow_id)
        games = next(phase for phase in found.phases if phase.phase == "games")
        text = "5 of 10 items done, 2 failed (VALIDATION_ERROR 2; first: g1, g4), 3 running"
        assert text in games.headline
        commands = [one.command for one in found.actions]
        assert f"penstock items retry {stage.flow_id} --processor game" in commands
        why = json.dumps(stage.client.diagnostics.why_flow(stage.flow_id), default=str)
        assert "2 failed" in why or "has not completed" in why

    def test_a_submission_of_such_a_processor_is_refused(self, stage: ItemStage) -> None:
        """It has no single run; the error names the command."""
        with pytest.raises(InvalidInput, match="penstock trigger nba"):
            stage.client.runs.submit(Submission(pipeline="nba", processor="game"))


class TestRetry:
    """Retrying one item, a filter of items, or all that failed."""

    def test_all_failed_items(self, stage: ItemStage) -> None:
        """Each failed item gets a new run, and its dead letter is closed."""
        assert stage.sql("SELECT count(*) FROM dead_letters WHERE status = 'open'") == [(2,)]
        done = stage.client.items.retry(stage.flow_id, ItemRetry())
        assert (done.items, done.has_more) == (["g1", "g4"], False)
        assert stage.sql("SELECT count(*) FROM dead_letters WHERE status = 'open'") == [(0,)]
        again = stage.client.items.retry(stage.flow_id, ItemRetry())
        assert again.items == []
        stage.end_items(stage.claim_items())
        stage.step()
        (one,) = stage.client.items.summary(stage.flow_id).items
        assert (one.succeeded, one.failed) == (9, 0)

    def test_a_filter(self, stage: ItemStage) -> None:
        """A pattern of keys and a kind of error select failed items."""
        retry = stage.client.items.retry
        assert retry(stage.flow_id, ItemRetry(match="x*")).items == []
        assert retry(stage.flow_id, ItemRetry(error_type="TIMEOUT")).items == []
        assert retry(stage.flow_id, ItemRetry(match="*4")).items == ["g4"]

    def test_one_item_even_if_it_succeeded(self, stage: ItemStage) -> None:
        """A replay of a success changes no count, however it ends."""
        done = stage.client.items.retry(stage.flow_id, ItemRetry(items=["g0"]))
        assert done.items == ["g0"]
        held = [h for h in stage.claim_items() if h.item_key == "g0"]
        stage.end_items(held, lambda _: True)
        stage.step()
        (one,) = stage.client.items.summary(stage.flow_id).items
        assert (one.succeeded, one.failed) == (5, 2)

    def test_an_item_that_runs(self, stage: ItemStage) -> None:
        """It is not retried in the meantime."""
        running = stage.client.items.list(stage.flow_id, state="running").items[0].item_key
        with pytest.raises(NotFound, match=running):
            stage.client.items.retry(stage.flow_id, ItemRetry(items=[running]))
