"""`find`: any object by a fragment of its id, a message, an entity, a customer or a name."""

from __future__ import annotations

import pytest

from penstock import Pipeline, game_day_modes
from penstock.bus.message import NewMessage
from penstock.bus.records import Topic
from penstock.core.errors import InvalidInput
from penstock.core.ids import encode
from penstock.db.store import Store
from penstock.runs.records import Submission
from penstock.testing.clock import VirtualClock
from penstock.tracking.search_text import search_text, spelled
from tests.kits.configs import cfg, create_config
from tests.kits.flows import DAY, Stage, work


@pytest.fixture
def stage(store: Store, clock: VirtualClock) -> Stage:
    """A flow, a run that ended, a live run, a config, a topic and a limit of two customers."""
    made = Pipeline("nba", partition="day", modes=game_day_modes())
    raw = made.phase("raw")
    raw.processor("box")(work)
    made.phase("out", after=raw).processor("site")(work)
    single = Pipeline("nightly")
    single.processor("load")(work)
    return Stage(store, clock, made, single)


def found(stage: Stage, text: str, **options: str) -> list[tuple[str, str]]:
    """Return (kind, id) of what a text finds."""
    return [(one.kind, one.id) for one in stage.client.tracking.find(text, **options).items]


def test_ids_and_fragments(stage: Stage) -> None:
    """A whole id finds its object; four characters find it among the newest."""
    flow = encode("flow", stage.open().flow.flow_id)
    ended = stage.client.runs.submit(Submission(pipeline="nightly", customer="acme")).run_id
    stage.complete("load")
    live = stage.client.runs.submit(Submission(pipeline="nightly", customer="acme")).run_id
    fields = {"pipeline_template": "nightly", "schedule_cron": "0 2 * * *"}
    config = cfg(create_config(stage.client, "acme", fields))
    for kind, one in (("flow", flow), ("run", ended), ("run", live), ("config", config)):
        assert found(stage, one) == [(kind, one)]
        assert (kind, one) in found(stage, one.partition("_")[2][2:6])
        assert found(stage, one[:-2]) == [(kind, one)], "a fragment with its kind"
    (item,) = stage.client.tracking.find(ended).items
    assert (item.state, item.command) == ("COMPLETED", f"penstock runs show {ended}")
    assert found(stage, ended, kinds="flow,config") == []


def test_messages_correlations_and_partitions(stage: Stage) -> None:
    """A message by its number, a correlation id by its beginning, a flow by its partition."""
    stage.open(correlation_id="injury-7")
    run = Submission(pipeline="nightly", customer="acme", correlation_id="batch-2025-1")
    stage.client.runs.submit(run)
    stage.complete("load")
    stage.client.topics.create(Topic(name="feed"), customer="acme")
    (message,) = stage.client.topics.publish(
        "feed", [NewMessage(data=b"{}")], customer="acme"
    ).message_ids
    assert found(stage, message, kinds="message") == [("message", message)]
    assert found(stage, "injury-7") == [("correlation", "injury-7")]
    assert found(stage, "batch-2025") == [("correlation", "batch-2025-1")]
    ((kind, flow),) = found(stage, f"nba {DAY}")
    assert kind == "flow"
    assert stage.client.flows.get(flow).flow.partition == DAY


def test_names(stage: Stage) -> None:
    """Customers by the beginning of their id; other names by any part, in any case."""
    stage.client.runs.submit(Submission(pipeline="nightly", customer="acme-east"))
    stage.client.runs.submit(Submission(pipeline="nightly", customer="acme-west"))
    stage.client.topics.create(Topic(name="night-events"), customer="acme-east")
    assert found(stage, "ACME", kinds="customer") == [
        ("customer", "acme-east"), ("customer", "acme-west"),
    ]  # fmt: skip
    assert found(stage, "night") == [("pipeline", "nightly"), ("topic", "night-events")]
    assert [kind for kind, _ in found(stage, "loa")] == ["processor"]
    assert found(stage, "%%") == []
    many = [Submission(pipeline="nightly", customer=f"zoo-{n}") for n in range(6)]
    stage.client.runs.submit_many(many)
    result = stage.client.tracking.find("zoo")
    assert (len(result.items), result.has_more) == (4, True)


def test_customers_are_apart(stage: Stage) -> None:
    """A bound client finds nothing of other customers."""
    run_id = stage.client.runs.submit(Submission(pipeline="nightly", customer="acme")).run_id
    stage.client.runs.submit(Submission(pipeline="nightly", customer="zoo"))
    other = stage.client.scoped("zoo")
    for text in (run_id, run_id.partition("_")[2][:5], "acme"):
        assert not other.tracking.find(text).items
    assert [one.id for one in other.tracking.find("zoo").items] == ["zoo"]


@pytest.mark.parametrize(("text", "field"), [("x", "q"), (" ", "q")])
def test_too_short(stage: Stage, text: str, field: str) -> None:
    """A text that matches too much is refused."""
    with pytest.raises(InvalidInput) as error:
        stage.client.tracking.find(text)
    assert error.value.field == field


def test_unknown_kind(stage: Stage) -> None:
    """The error names the kinds that exist."""
    with pytest.raises(InvalidInput, match="subscription"):
        stage.client.tracking.find("acme", kinds="customers")


def test_spellings() -> None:
    """Fragments are compared with ids of the kind that they name, or of every kind."""
    ids = [("run", 1), ("flow", 1), ("run", 2)]
    part = encode("run", 1)[4:9]
    assert spelled((None, part), ids)["run"] == [1]
    assert spelled(("flow", part), ids) == {}
    assert search_text("players:7").entity == ("players", "7")
    assert search_text("12345678901234567890").message_id is None
    assert search_text("nba 2025").partition == ("nba", "2025")
