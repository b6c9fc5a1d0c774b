"""Why a config starts no runs, on both engines."""

from typing import Any

import pytest

from penstock.bus.records import Topic
from penstock.core.errors import NotFound
from penstock.flows.explain.records import CauseEntry
from tests.kits.client_harness import Harness
from tests.kits.configs import cfg


def causes(harness: Harness, config_id: str) -> dict[str, CauseEntry]:
    """Return the direct causes, by kind."""
    tree = harness.client.diagnostics.why_config(config_id)
    return {cause.kind: cause for cause in tree.causes if cause.depth == 1}


def test_the_next_occurrence(harness: Harness) -> None:
    found = causes(harness, cfg(harness.config()))
    assert list(found) == ["schedule"]
    assert (found["schedule"].clears, found["schedule"].earliest_at is not None) == ("time", True)


def test_disabled_and_paused(harness: Harness) -> None:
    config_id = cfg(harness.config())
    harness.client.configs.disable(config_id, reason="holiday")
    harness.client.pauses.pause("config", config_id, reason="works")
    found = causes(harness, config_id)
    assert set(found) == {"disabled", "pause"}
    assert found["disabled"].text == "it is disabled: holiday"
    assert found["disabled"].action is not None
    assert found["disabled"].action.command == f"penstock configs enable {config_id}"
    assert "works" in found["pause"].text


def test_overlap_names_the_run_and_its_causes(harness: Harness) -> None:
    config = harness.config(overlap="skip")
    harness.start(config)
    tree = harness.client.diagnostics.why_config(cfg(config)).causes
    overlap = next(cause for cause in tree if cause.kind == "overlap")
    assert "has not ended, and overlap is skip: occurrences are skipped" in overlap.text
    assert [cause.kind for cause in tree if cause.depth == 2] == ["run"]


def test_an_event_without_its_topic(harness: Harness) -> None:
    event: dict[str, Any] = {
        "schedule_type": "EVENT_DRIVEN",
        "event_topic": "orders",
        "schedule_cron": None,
    }
    config_id = cfg(harness.config(**event))
    missing = causes(harness, config_id)["topic"]
    assert missing.text == "its topic orders does not exist"
    assert missing.clears == "person"
    harness.client.topics.create(Topic(name="orders"))
    assert causes(harness, config_id)["event"].text == "it starts with the next message on orders"


def test_failures_and_their_common_cause(harness: Harness) -> None:
    configs = [harness.config(f"c{n}", overlap="allow") for n in range(5)]
    for config in configs:
        harness.start(config, trigger_source="scheduler")
    harness.fail(*harness.claim(n=10))
    own = causes(harness, cfg(configs[0]))["failures"]
    assert own.text == "it failed once in a row; five failures disable it"
    for _ in range(2):
        for config in configs:
            harness.start(config, trigger_source="scheduler")
        harness.fail(*harness.claim(n=10))
    common = causes(harness, cfg(configs[0]))["common_cause"]
    assert "configs of" in common.text
    bound = harness.client.scoped("c0").diagnostics.why_config(cfg(configs[0])).causes
    assert "common_cause" not in [cause.kind for cause in bound]
    with pytest.raises(NotFound):
        harness.client.scoped("c1").diagnostics.why_config(cfg(configs[0]))
