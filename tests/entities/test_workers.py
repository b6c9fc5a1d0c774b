"""Incremental processors in workers: the built-in one, child processes and external ones."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Pipeline, day, upstream
from penstock.core.errors import DeclarationError, InvalidInput
from penstock.db.store import Store
from penstock.entities.report import IDS_MAX
from penstock.runs.external.records import ClaimRequest, RunCompletion, RunStart
from penstock.testing import FlowTest
from penstock.testing.clock import VirtualClock
from tests.entities.scene import Scene, incremental_pipeline
from tests.kits.client_harness import Harness
from tests.kits.flows import work
from tests.worker.endpoints.kit import endpoint, replying


def feature_pipeline(seen: list[Any], reported: list[Any]) -> Pipeline:
    """A processor that reports the next list, and one that keeps what it receives."""
    made = Pipeline("features", partition=day("d"), warehouse="w")
    raw = made.phase("raw")

    @raw.processor(entities=["players"])
    def rosters(run: Any) -> None:
        run.entities("players", reported.pop(0))
        run.records = 195
        run.completeness(200)

    @made.phase("last", after=raw).processor(incremental=["players"])
    def build(run: Any) -> None:
        seen.append((run.changed.ids("players"), run.changed.reason))

    return made


class TestBuiltIn:
    """The worker hands the input to the context, and stores the report."""

    def test_the_context_has_the_changes(self) -> None:
        seen: list[Any] = []
        reported = [[1, 2], [3], [3, "x"]]
        with FlowTest(feature_pipeline(seen, reported), call=True) as t:
            for number in (15, 16, 17):
                t.next_flow(f"2025-11-{number}").run()
            assert t.changed("build").counts == {"players": 2}
            detail = t.client.flows.get(t.client.flows.list(limit=1).items[0].flow_id)
        assert seen[0] == (None, "it has not succeeded before")
        assert seen[1] == ((3,), None)
        assert (set(seen[2][0]), seen[2][1]) == ({3, "x"}, None)
        (first, _) = detail.completions
        assert (first.total_expected, first.completeness_pct) == (200, 97.5)
        assert first.entities_total == {"players": 2}
        assert set(first.entities["players"]) == {3, "x"}
        (given,) = detail.inputs
        assert (given.processor, given.entities_total) == ("build", {"players": 2})

    def test_the_ids_are_not_part_of_the_result(self) -> None:
        """They are stored once, and do not count against the size of a result."""
        seen: list[Any] = []
        many = [f"player-{n:07d}" for n in range(IDS_MAX)]
        with FlowTest(feature_pipeline(seen, [many]), call=True) as t:
            t.run()
            runs = {run.processor: run for run in t.client.runs.list().items}
        assert runs["rosters"].result == {
            "entities_changed": {"players": IDS_MAX}, "total_expected": 200,
        }  # fmt: skip

    def test_a_processor_that_is_not_incremental(self) -> None:
        seen: list[Any] = []
        made = Pipeline("plain", partition=day("d"), warehouse="w")

        @made.phase("one").processor
        def load(run: Any) -> None:
            seen.append(run.changed.reason)

        made.phase("two", after=made.phases[0]).processor("rest")(work)
        with FlowTest(made, call=True) as t:
            t.run()
        assert seen == ["the processor is not declared incremental"]

    @pytest.mark.parametrize(
        ("kind", "ids"),
        [("no kind!", [1]), ("players", "abc"), ("players", [True]), ("players", [""])],
    )
    def test_invalid_reports_fail_the_run(self, kind: str, ids: Any) -> None:
        made = Pipeline("wrong", partition=day("d"), warehouse="w")

        @made.phase("one").processor(retry={"max_attempts": 1})
        def load(run: Any) -> None:
            with pytest.raises(InvalidInput):
                run.entities(kind, ids)

        made.phase("two", after=made.phases[0]).processor("rest")(work)
        with FlowTest(made, call=True) as t:
            t.run()
            assert t.errors == []


def test_external_workers_receive_it_with_the_claim(store: Store, clock: VirtualClock) -> None:
    """And report their changes with the result."""
    made = Pipeline("inc", partition=day("d", repeats=True), warehouse="w")
    made.phase("raw").external("rosters", entities=["players"])
    made.phase("last", after=made.phases[0]).external("build", incremental=True)
    scene = Scene(store, clock, made)
    workers = scene.stage.client.workers
    given = []
    for number, ids in ((16, [1]), (17, [2, 3])):
        scene.stage.open(
            "inc", customer="c", partition=f"2025-11-{number}", mode="daily", source="scheduler"
        )
        for report in ({"entities_changed": {"players": ids}, "n": 1}, None):
            (run,) = workers.claim(ClaimRequest(worker_id="w")).claimed_runs
            given.append(run.changed)
            workers.start(run.run_id, RunStart(worker_id="w", fencing_token=run.fencing_token))
            done = RunCompletion(
                worker_id="w", fencing_token=run.fencing_token, result_summary=report
            )
            workers.complete(run.run_id, done)
            scene.stage.step()
    assert [one is None for one in given] == [True, False, True, False]
    first, second = (one for one in given if one is not None)
    assert (first.everything, first.reason) == (True, "it has not succeeded before")
    assert (second.everything, second.entities) == (False, {"players": [2, 3]})


def test_items_report_and_receive_together(store: Store, clock: VirtualClock) -> None:
    """Each item reports what it changed; the watermark moves when all items have succeeded."""
    made = Pipeline("inc", partition=day("d", repeats=True), warehouse="w")
    raw = made.phase("raw")
    raw.processor("listing", entities=["players"])(work)
    games = made.phase("games", after=raw)
    games.processor("game", each=upstream("listing"), entities=["players"])(work)
    last = made.phase("last", after=games)
    last.processor("build", each=upstream("listing"), incremental=["players"])(work)
    scene = Scene(store, clock, made)
    received = []
    for number, ids in ((16, {"a": 1, "b": 2}), (17, {"a": 3, "b": 4}), (18, {"a": 5, "b": 6})):
        scene.open(f"2025-11-{number}")
        scene.end(scene.take("listing"), {}, items=["a", "b"])
        scene.step()
        for _ in ids:
            run = scene.take("game")
            scene.end(run, {"players": [ids[run.item_key]]})
        scene.step()
        found = [scene.take("build") for _ in ids]
        received.append([scene.changed(run) for run in found])
        scene.end(found[0])
        if number == 17:
            scene.kill(found[1])
        else:
            scene.end(found[1])
        scene.step()
    first, second, third = received
    assert [one.reason for one in first] == ["it has not succeeded before"] * 2
    assert [set(one.ids("players") or ()) for one in second] == [{3, 4}] * 2
    assert [set(one.ids("players") or ()) for one in third] == [{3, 4, 5, 6}] * 2
    flow = scene.stage.client.flows.list(customer="c", limit=1).items[0]
    detail = scene.stage.client.flows.get(flow.flow_id)
    (fanned,) = [one for one in detail.completions if one.processor == "game"]
    assert fanned.entities_total == {"players": 2}


def test_http_processors_receive_it_in_the_request(harness: Harness) -> None:
    """And report their changes with the reply."""
    with endpoint(harness, lambda _: replying(200, {"entities": {"teams": [9]}})) as world:
        made = Pipeline("inc", partition=day("d", repeats=True), warehouse="w")
        made.phase("raw").processor("rosters", entities=["players"])(work)
        last = made.phase("last", after=made.phases[0])
        last.http(world.url, name="build", incremental=True, entities=["teams"])
        scene = Scene(harness.store, harness.clock, made)
        scene.left = {"build"}
        for number, ids in ((16, [1]), (17, [2, 3])):
            scene.open(f"2025-11-{number}")
            scene.end(scene.take("rosters"), {"players": ids})
            scene.step()
            assert world.send_all() == 1
        first, second = (one.json["changed"] for one in world.receiver.got)
    assert (first["everything"], first["reason"]) == (True, "it has not succeeded before")
    assert (second["everything"], second["entities"]) == (False, {"players": [2, 3]})
    trail = scene.stage.client.diagnostics.entity("teams:9", customer="c")
    assert [flow.phases[0].phase for flow in trail.flows] == ["last", "last"]


class TestDeclaration:
    """What a declaration of an incremental processor must have."""

    def test_it_needs_a_phase_before_it(self) -> None:
        made = Pipeline("p")
        made.phase("first").processor("load", incremental=True)(work)
        with pytest.raises(DeclarationError, match="needs a phase before it"):
            made.check()

    @pytest.mark.parametrize("kinds", [True, ["teams"]])
    def test_a_processor_before_it_must_report(self, kinds: Any) -> None:
        made = Pipeline("p")
        own: Any = {} if kinds is True else {"entities": ["players"]}
        made.phase("first").processor("load", **own)(work)
        made.phase("second", after=made.phases[0]).processor("build", incremental=kinds)(work)
        with pytest.raises(DeclarationError, match="no processor before it declares"):
            made.check()

    def test_a_scope_needs_incremental(self) -> None:
        with pytest.raises(DeclarationError, match="incremental_per needs incremental"):
            Pipeline("p").phase("a").processor("b", incremental_per="partition")(work)

    def test_false_is_not_incremental(self) -> None:
        """A declaration that says so equals one that says nothing."""
        plain, other = Pipeline("p"), Pipeline("p")
        plain.phase("a").processor("b")(work)
        other.phase("a").processor("b", incremental=False)(work)
        assert plain.digest == other.digest

    def test_the_drawing_says_so(self) -> None:
        found = incremental_pipeline().definition()["phases"][1]["processors"]
        assert [one.get("incremental") for one in found] == [[], ["players"], ["players"]]
