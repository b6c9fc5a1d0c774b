"""What incremental processors receive, on both engines: sets, reasons, watermarks."""

from __future__ import annotations

import pytest

from penstock import Pipeline, day
from penstock.core.clock import DAY, HOUR
from penstock.core.ids import encode
from penstock.db.store import Store
from penstock.entities.report import IDS_MAX
from penstock.flows.records import CompletionReport, FlowRequest
from penstock.runs.records import Submission
from penstock.runs.states import RunStatus
from penstock.services.store import Retention, prune
from penstock.testing.clock import VirtualClock
from tests.entities.scene import Scene
from tests.kits.flows import work


@pytest.fixture
def scene(store: Store, clock: VirtualClock) -> Scene:
    """A scene in which every incremental processor has succeeded once."""
    made = Scene(store, clock)
    made.open("2025-11-15")
    made.upstream({"players": [1]})
    made.downstream()
    return made


class TestSets:
    """Only what changed since the last success."""

    def test_the_first_run_receives_everything(self, store: Store, clock: VirtualClock) -> None:
        scene = Scene(store, clock)
        scene.open()
        scene.upstream({"players": [1]})
        for found in scene.downstream().values():
            assert found.everything
            assert found.reason == "it has not succeeded before"
            assert found.ids("players") is None

    def test_the_next_one_receives_what_changed(self, scene: Scene) -> None:
        scene.open("2025-11-16")
        scene.upstream({"players": [7, "x"]}, {"teams": ["LAL"]})
        found = scene.downstream()
        assert found["everyone"].counts == {"players": 2, "teams": 1}
        assert set(found["everyone"].ids("players") or ()) == {7, "x"}
        assert found["players"].entities.keys() == {"players"}
        assert found["players"].partitions == ("2025-11-16",)
        assert found["by_day"].reason == "it has not succeeded before"

    def test_nothing_changed(self, scene: Scene) -> None:
        """An empty report says so; the processor still runs."""
        scene.open("2025-11-16")
        scene.upstream({}, {})
        found = scene.downstream()["players"]
        assert (found.everything, found.ids("players"), found.partitions) == (
            False, (), ("2025-11-16",),
        )  # fmt: skip

    def test_missed_flows_are_made_up_for(self, scene: Scene) -> None:
        """The processor failed in one flow and was cancelled in another."""
        scene.open("2025-11-16")
        scene.upstream({"players": [2]})
        for name in ("everyone", "players", "by_day"):
            scene.kill(scene.take(name))
        second = scene.open("2025-11-17")
        scene.upstream({"players": [3]})
        for name in ("everyone", "players", "by_day"):
            scene.take(name)
        scene.stage.client.flows.cancel(encode("flow", second))
        scene.open("2025-11-18")
        scene.upstream({"players": [3, 4]})
        found = scene.downstream()["players"]
        assert set(found.ids("players") or ()) == {2, 3, 4}
        assert found.partitions == ("2025-11-16", "2025-11-17", "2025-11-18")

    def test_what_arrives_during_a_run_is_for_the_next(self, scene: Scene) -> None:
        """Two flows overlap; the earlier one's success covers only what it received."""
        scene.open("2025-11-16")
        scene.upstream({"players": [2]})
        first = scene.take("players")
        scene.open("2025-11-17")
        scene.upstream({"players": [3]})
        second = scene.take("players")
        assert scene.changed(first).ids("players") == (2,)
        assert set(scene.changed(second).ids("players") or ()) == {2, 3}
        scene.end(first)
        scene.kill(second)
        scene.held.clear()
        scene.open("2025-11-18")
        scene.upstream({"players": [4]})
        assert set(scene.downstream()["players"].ids("players") or ()) == {3, 4}

    def test_a_retry_receives_the_same(self, scene: Scene, clock: VirtualClock) -> None:
        """Also if another flow succeeded in the meantime."""
        scene.open("2025-11-16")
        scene.upstream({"players": [2]})
        first = scene.take("players")
        scene.kill(first, "TRANSIENT_NETWORK")
        scene.held.clear()
        scene.open("2025-11-17")
        scene.upstream({"players": [3]})
        assert scene.downstream()["players"].counts == {"players": 2}
        clock.advance(HOUR)
        scene.claim()
        again = scene.take("players")
        assert (again.attempt, scene.changed(again).ids("players")) == (2, (2,))
        scene.end(again)
        scene.open("2025-11-18")
        scene.upstream({"players": [4]})
        assert scene.downstream()["players"].ids("players") == (4,)

    def test_of_one_partition(self, scene: Scene) -> None:
        """A rerun of a partition receives what changed in it, not in others."""
        scene.open("2025-11-16")
        scene.upstream({"players": [2]})
        scene.downstream()
        scene.open("2025-11-15")
        scene.upstream({"players": [3]})
        found = scene.downstream()["by_day"]
        assert (found.ids("players"), found.partitions) == ((3,), ("2025-11-15",))

    def test_customers_are_separate(self, scene: Scene, store: Store, clock: VirtualClock) -> None:
        other = Scene(store, clock, customer="other")
        scene.open("2025-11-16")
        scene.upstream({"players": [2]})
        scene.downstream()
        other.open("2025-11-16")
        other.upstream({"players": [3]})
        assert other.downstream()["players"].reason == "it has not succeeded before"

    def test_late_data_reaches_the_new_generation(self, store: Store, clock: VirtualClock) -> None:
        """A straggler reports after the next phase has started without it."""
        made = Pipeline("inc", partition=day("d", repeats=True), warehouse="w")
        raw = made.phase("raw", stragglers="10m")
        raw.processor("rosters", entities=["players"])(work)
        raw.processor("games", entities=["teams"])(work)
        last = made.phase("features", after=raw, on_late_data="rerun")
        last.processor("players", incremental=True)(work)
        scene = Scene(store, clock, made)
        scene.open("2025-11-15")
        scene.upstream({"players": [1]})
        scene.end(scene.take("players"))
        scene.open("2025-11-16")
        scene.end(scene.take("rosters"), {"players": [2]})
        late = scene.take("games")
        clock.advance(7 * HOUR)
        for _ in range(3):
            scene.step()
            clock.advance(7 * HOUR)
        degraded = scene.take("players")
        assert scene.changed(degraded).counts == {"players": 1, "teams": 0}
        scene.end(degraded)
        scene.step()
        scene.end(late, {"teams": ["LAL"]})
        for _ in range(3):
            scene.step()
        again = scene.take("players")
        assert again.flow_id != degraded.flow_id
        # The run without the late data did not move the watermark.
        assert scene.changed(again).counts == {"players": 1, "teams": 1}


class TestEverything:
    """Reasons for which a processor receives everything, and until when."""

    def next_after(self, scene: Scene) -> tuple[str | None, str | None]:
        """Return why `players` and `everyone` receive everything in this flow."""
        found = scene.downstream()
        return found["players"].reason, found["everyone"].reason

    def test_a_processor_did_not_report(self, scene: Scene) -> None:
        """Only those count whose entities the processor receives; one clean success is enough."""
        scene.open("2025-11-16")
        scene.end(scene.take("rosters"), {"players": [2]})
        scene.end(scene.take("games"))
        scene.step()
        why = "raw.games did not report which entities it changed"
        assert self.next_after(scene) == (None, why)
        scene.open("2025-11-17")
        scene.upstream({"players": [3]})
        assert self.next_after(scene) == (None, None)

    def test_it_said_that_everything_changed(self, scene: Scene) -> None:
        scene.open("2025-11-16")
        scene.end(scene.take("rosters"), everything_changed="full reload")
        scene.end(scene.take("games"), {})
        scene.step()
        assert self.next_after(scene)[0] == "raw.rosters changed everything: full reload"

    def test_too_many_at_once(self, scene: Scene) -> None:
        scene.open("2025-11-16")
        scene.upstream({"players": list(range(IDS_MAX + 1))})
        assert self.next_after(scene)[0] == "raw.rosters changed more than 10,000 entities"

    def test_too_many_together(self, scene: Scene) -> None:
        """Each report is within the bound; the same ids count once."""
        half = IDS_MAX // 2 + 1
        for partition, start in (("2025-11-16", 0), ("2025-11-17", 0), ("2025-11-18", half)):
            scene.open(partition)
            scene.upstream({"players": list(range(start, start + half))})
            reason = scene.changed(scene.take("players")).reason
            scene.held.clear()
        assert reason == "more than 10,000 entities changed since its last success"

    def test_a_report_that_cannot_be_read(self, scene: Scene) -> None:
        scene.open("2025-11-16")
        scene.end(scene.take("rosters"), entities_changed={"players": "all"})
        scene.end(scene.take("games"), {})
        scene.step()
        reason = self.next_after(scene)[0] or ""
        assert reason.startswith("raw.rosters reported invalid changes: ")

    def test_a_failure_before_it(self, scene: Scene, clock: VirtualClock) -> None:
        """It may have changed anything, until a run with complete data succeeds."""
        scene.open("2025-11-16")
        scene.kill(scene.take("rosters"))
        scene.end(scene.take("games"), {})
        for _ in range(3):
            scene.step()
            clock.advance(7 * HOUR)
        why = "raw.rosters ended FAILED and may have changed anything"
        assert self.next_after(scene) == (why, why)
        for expected in (why, None):
            scene.open("2025-11-17")
            scene.upstream({"players": [3]})
            assert self.next_after(scene) == (expected, expected)

    def test_a_partial_success_does_not_count(self, scene: Scene) -> None:
        scene.open("2025-11-16")
        scene.upstream({"players": [2]})
        scene.end(scene.take("players"), status=RunStatus.PARTIAL_SUCCESS)
        scene.held.clear()
        scene.open("2025-11-17")
        scene.upstream({"players": [3]})
        assert set(scene.downstream()["players"].ids("players") or ()) == {2, 3}

    def test_started_again_by_hand(self, scene: Scene) -> None:
        """The rerun of a partition processes all of it; the schedule then continues."""
        request = FlowRequest(
            pipeline="inc", customer="c", partition="2025-11-15", mode="daily", phases=["features"]
        )
        scene.stage.client.flows.trigger(request)
        scene.step()
        assert self.next_after(scene)[0] == "it was started again manually"
        scene.open("2025-11-16")
        scene.upstream({"players": [9]})
        assert self.next_after(scene) == (None, None)

    def test_a_changed_declaration(self, scene: Scene) -> None:
        """Another processor before it may have changed what was never reported."""
        made = Pipeline("inc", partition=day("d", repeats=True), warehouse="w")
        raw = made.phase("raw")
        for name in ("rosters", "games", "odds"):
            raw.processor(name, entities=["players"])(work)
        last = made.phase("features", after=raw)
        last.processor("players", incremental=["players"])(work)
        scene.stage.client.register([made])
        scene.open("2025-11-16")
        for name in ("rosters", "games", "odds"):
            scene.end(scene.take(name), {"players": [5]})
        scene.step()
        reason = scene.changed(scene.take("players")).reason
        assert reason == "its declaration, or that of an earlier processor, has changed"

    def test_deleted_reports(self, scene: Scene, clock: VirtualClock) -> None:
        """Retention deletes reports that a processor has not received yet."""
        scene.open("2025-11-16")
        scene.upstream({"players": [2]})
        waiting = scene.take("players")
        scene.held.clear()
        clock.advance(91 * DAY)
        deleted = scene.stage.write(lambda tx: prune(tx, Retention(flows_us=400 * DAY)))
        assert deleted["entities"] == 4
        why = "reports that it has not received were deleted by retention"
        assert scene.changed(waiting).reason == why
        scene.open("2026-02-20")
        scene.upstream({"players": [3]})
        assert self.next_after(scene)[0] == why

    def test_a_run_outside_a_flow(self, scene: Scene) -> None:
        runs = scene.stage.client.runs
        runs.submit(Submission(pipeline="inc", processor="features.players", customer="c"))
        scene.claim()
        found = scene.changed(scene.take("players"))
        assert found.reason == "the run belongs to no flow, or to one that is no longer stored"


class TestExternalReports:
    """Processors that Penstock does not run report with their completion."""

    def report(self, scene: Scene, execution_id: str, ids: list[int] | None) -> None:
        """Report the completion of `rosters` in the open flow."""
        scene.stage.client.flows.complete(
            CompletionReport(
                pipeline="inc", customer="c", partition="2025-11-16", mode="daily",
                processor="rosters", execution_id=execution_id,
                entities=None if ids is None else {"players": list(ids)},
            )
        )  # fmt: skip

    def test_a_second_execution_adds_to_the_first(self, scene: Scene) -> None:
        """A repeated report adds nothing; the pending run that it replaces changed nothing."""
        scene.open("2025-11-16")
        scene.take("rosters")
        self.report(scene, "e1", [2])
        self.report(scene, "e2", [3])
        self.report(scene, "e2", [3])
        scene.end(scene.take("games"), {})
        scene.step()
        assert set(scene.downstream()["players"].ids("players") or ()) == {2, 3}
        rows = scene.stage.sql("SELECT count(*) FROM entity_changes WHERE execution_id IS NOT NULL")
        assert rows[0][0] == 2

    def test_one_without_entities_means_everything(self, scene: Scene) -> None:
        scene.open("2025-11-16")
        scene.take("rosters")
        self.report(scene, "e1", None)
        scene.end(scene.take("games"), {})
        scene.step()
        why = "raw.rosters did not report which entities it changed"
        assert scene.downstream()["players"].reason == why
