"""`why` of a customer: what of its work waits or failed."""

from __future__ import annotations

import pytest

from penstock import Pipeline, game_day_modes, same_day
from penstock.core.errors import NotFound
from penstock.db.store import Store
from penstock.runs.records import Submission
from penstock.testing.clock import VirtualClock
from tests.kits.configs import cfg, create_config
from tests.kits.flows import Stage, work


@pytest.fixture
def stage(store: Store, clock: VirtualClock) -> Stage:
    """A flow whose second phase waits for data, and a pipeline without a flow."""
    made = Pipeline("nba", partition="day", warehouse="w", modes=game_day_modes())
    raw = made.phase("raw")
    raw.processor("box")(work)
    made.phase("sum", after=raw).processor("total", needs=[same_day("t.box")])(work)
    single = Pipeline("nightly")
    single.processor("load")(work)
    stage = Stage(store, clock, made, single)
    stage.rows = {"t.box": 0}
    return stage


def why(stage: Stage, customer: str = "acme") -> dict[str, str]:
    """Return the causes of a customer by kind."""
    return {one.kind: one.text for one in stage.client.diagnostics.why_customer(customer).causes}


def test_nothing_waits(stage: Stage) -> None:
    """A customer without anything that waits waits for nothing."""
    stage.client.runs.submit(Submission(pipeline="nightly", customer="acme"))
    stage.complete("load")
    found = why(stage)
    assert found == {"customer": "acme: 0 configs, 0 runs in progress, 0 pending: nothing waits"}


def test_what_waits(stage: Stage) -> None:
    """Disabled configs, waiting phases, pending runs, pauses and dead letters are causes."""
    fields = {"pipeline_template": "nightly", "schedule_cron": "0 2 * * *"}
    config = cfg(create_config(stage.client, "acme", fields))
    stage.client.configs.disable(config, reason="too expensive")
    stage.client.runs.submit(Submission(pipeline="nightly", customer="acme"))
    stage.kill("load")
    stage.open()
    stage.complete("box")
    stage.step()
    stage.client.runs.submit(Submission(pipeline="nightly", customer="acme"))
    stage.client.pauses.pause("customer", "acme", reason="audit")
    found = why(stage)
    assert found["disabled"] == f"{config} (nightly) is disabled: too expensive"
    assert "nba 2025-11-16: sum has been waiting since" in found["phase"]
    assert found["dead_letter"] == "1 dead letter is open"
    assert "pause" in found
    assert found["customer"].startswith("acme: 1 config, 0 runs in progress, 1 pending")


def test_unknown(stage: Stage) -> None:
    """A customer that does not exist is not found."""
    with pytest.raises(NotFound):
        stage.client.diagnostics.why_customer("other")
