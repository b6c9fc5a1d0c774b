"""Whether the change of an entity reached the last phase, and where it stopped."""

from __future__ import annotations

import pytest

from penstock.core.errors import InvalidInput
from penstock.core.ids import encode
from penstock.db.store import Store
from penstock.flows.explain.records import EntityFlow
from penstock.testing.clock import VirtualClock
from tests.entities.scene import DOWN, Scene


@pytest.fixture
def scene(store: Store, clock: VirtualClock) -> Scene:
    """A scene in which every incremental processor has succeeded once."""
    made = Scene(store, clock)
    made.open("2025-11-15")
    made.upstream({"players": [1]})
    made.downstream()
    return made


def found(scene: Scene, entity: str, partition: str | None = None) -> list[EntityFlow]:
    """Return the flows in which an entity changed."""
    diagnostics = scene.stage.client.diagnostics
    trail = diagnostics.entity(entity, partition=partition, customer="c")
    assert (trail.entity, trail.customer, trail.has_more) == (entity, "c", False)
    return trail.flows


def test_it_reached_the_last_phase(scene: Scene) -> None:
    """Numbers and texts are found by the same id; other partitions have their own answer."""
    scene.open("2025-11-16")
    scene.upstream({"players": [7, "x"]})
    scene.downstream()
    for entity in ("players:7", "players:x"):
        (flow,) = found(scene, entity, "2025-11-16")
        assert flow.reached_last is True
        assert [(one.phase, one.outcome) for one in flow.phases] == [
            ("raw", "changed"), ("features", "processed"),
        ]  # fmt: skip
        assert flow.phases[1].processors == ["everyone", "players", "by_day"]
        assert flow.text == (
            f"{entity} was changed by raw.rosters and reached features, the last phase."
        )
    assert found(scene, "players:7", "2025-11-15") == []
    assert found(scene, "players:8") == []


def test_it_stopped(scene: Scene) -> None:
    """The phase after it is still to come, then in progress, then failed."""
    scene.open("2025-11-16")
    scene.end(scene.take("rosters"), {"players": [7]})
    scene.step()
    (flow,) = found(scene, "players:7")
    assert (flow.reached_last, flow.phases[1].outcome) == (False, "waiting")
    scene.end(scene.take("games"), {})
    scene.step()
    (flow,) = found(scene, "players:7")
    assert flow.phases[1].outcome == "in_progress"
    assert flow.text == (
        "players:7 was changed by raw.rosters and got as far as raw: features has started and not "
        "ended."
    )
    for name in DOWN:
        scene.kill(scene.take(name))
    scene.step()
    (flow,) = found(scene, "players:7")
    assert flow.reached_last is False


def test_a_later_flow_made_up_for_it(scene: Scene) -> None:
    """The processors of its own flow failed; those of the next one received the change."""
    scene.open("2025-11-16")
    scene.upstream({"players": [7]})
    for name in DOWN:
        scene.kill(scene.take(name))
    scene.step()
    scene.open("2025-11-17")
    scene.upstream({"players": [8]})
    scene.downstream()
    (flow,) = found(scene, "players:7", "2025-11-16")
    assert flow.phases[1].outcome == "processed"
    assert flow.phases[1].processors == ["everyone", "players"]
    assert "in flow_" in flow.phases[1].text


def test_a_pruned_flow_is_still_named(scene: Scene) -> None:
    scene.stage.sql("DELETE FROM flows")
    (flow,) = found(scene, "players:1")
    assert (flow.state, flow.reached_last, flow.phases) == (None, None, [])
    assert flow.text == "players:1 was changed by raw.rosters; its flow is no longer stored."


@pytest.mark.parametrize("entity", ["players", ":7", "players:", "no kind:7"])
def test_the_form_of_an_entity(scene: Scene, entity: str) -> None:
    with pytest.raises(InvalidInput, match="kind and id such as players:1630567"):
        found(scene, entity)


def test_what_a_processor_receives_is_shown(scene: Scene) -> None:
    """By the explanation of the flow, the run and the flow itself, each with the reason."""
    flow_id = scene.open("2025-11-16")
    scene.upstream({"players": [7, 8]}, {"teams": ["LAL"]})
    client = scene.stage.client
    explained = client.diagnostics.explain_flow(encode("flow", flow_id))
    (features,) = [one for one in explained.phases if one.phase == "features"]
    assert "everyone receives players (2), teams (1)." in features.sentences
    assert "by_day receives everything: it has not succeeded before." in features.sentences
    changed = {
        run.processor: client.runs.detail(run.run_id).changed
        for run in client.runs.list(partition="2025-11-16", customer="c").items
    }
    assert changed["rosters"] is None
    everyone, by_day = changed["everyone"], changed["by_day"]
    assert everyone is not None
    assert (everyone.entities_total, everyone.partitions) == (
        {"players": 2, "teams": 1}, ["2025-11-16"],
    )  # fmt: skip
    assert by_day is not None
    assert (by_day.everything, by_day.reason) == (True, "it has not succeeded before")
    inputs = client.flows.get(encode("flow", flow_id)).inputs
    assert [one.processor for one in inputs] == ["everyone", "players", "by_day"]
