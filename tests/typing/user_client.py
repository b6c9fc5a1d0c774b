"""User code: the Python client and the client of the HTTP API."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import assert_type

from penstock import (
    Client,
    CompletionReport,
    FlowFilter,
    FlowRequest,
    NotFound,
    Pipeline,
    Role,
    RunFilter,
    StaleVersion,
    Submission,
    connect,
    decode_id,
    encode_id,
    from_datetime,
    run_pending,
    to_datetime,
)
from penstock.bus import (
    EmbeddedBus,
    ErrorKind,
    Nack,
    NewMessage,
    PushSettings,
    SettleResult,
    Subscription,
    SubscriptionSpec,
    Topic,
    TopicSpec,
    Transport,
    sign_webhook,
    verify_webhook,
    webhook_key,
)
from penstock.probes import Observation, ProbeRequest, ProbeRunner
from penstock.remote import connect as connect_remote


def runs(pipeline: Pipeline) -> None:
    """Submit, read and page runs."""
    with connect("sqlite:client.db", actor="docs") as client:
        assert_type(client, Client)
        client.register([pipeline])
        at = from_datetime(datetime(2025, 12, 31, tzinfo=UTC))
        wanted = Submission(pipeline="greet", parameters={"name": "Ada"}, at=at)
        run_id = client.runs.submit(wanted, key="order-17")
        assert_type(run_id, int)
        assert_type(client.runs.submit_many([wanted]), list[int])
        assert_type(run_pending(client, [pipeline]), int)
        run = client.runs.get(run_id, customer="acme")
        assert_type(run.run_id, int)
        assert_type(run.result, str | None)
        assert_type(run.finished_at, int | None)
        assert_type(to_datetime(at), datetime)
        assert_type(decode_id("run", encode_id("run", run_id)), int)
        page = client.runs.page(RunFilter(limit=2, before=run_id), customer="acme")
        assert_type([one.run_id for one in page], list[int])
        assert_type(client.runs.cancel(run_id, reason="not needed"), str)
        client.runs.submit(Submission("greet"))  # type: ignore[call-arg]
        client.runs.submit(wanted, idempotency_key="x")  # type: ignore[call-arg]
        client.runs.get("run_7h2kq0v3")  # type: ignore[arg-type]
        client.runs.page({"limit": 2})  # type: ignore[arg-type]


def other_use_cases(client: Client) -> None:
    """Configs, flows, keys, limits and dead letters."""
    config = client.configs.create("acme", {"pipeline_template": "nightly"})
    assert_type(config.config_id, int)
    try:
        client.configs.update(config.config_id, {"priority": 8}, version=99)
    except StaleVersion as error:
        assert_type(error.current, int | None)
    except NotFound as error:
        assert_type(error.kind, str)
    assert_type(client.configs.start(config.config_id), list[int])
    opened = client.flows.trigger(FlowRequest(pipeline="nba", partition="2025-12-31"))
    assert_type(opened.flow.flow_id, int)
    client.flows.complete(
        CompletionReport(pipeline="nba", processor="boxscores", partition="2025-12-31")
    )
    assert_type([flow.state for flow in client.flows.page(FlowFilter(limit=5))], list[str])
    assert_type(client.diagnostics.explain("nba", "2025-12-31").explanation.summary, str)
    assert_type(client.keys.create("docs", Role.ADMIN).text, str | None)
    assert_type(client.dead_letters.count(pipeline="nba"), int)
    assert_type(client.dead_letters.list().items[0].died_at, datetime)
    assert_type(client.dead_letters.replay("dl_5m7t0c2d").replayed_as, str)
    assert_type(client.limits.declare("crm", capacity=3).limit.held, int)
    assert_type(client.scoped("acme"), Client)
    client.flows.trigger(FlowRequest(partition="2025-12-31"))  # type: ignore[call-arg]
    client.keys.creat("docs", "admin")  # type: ignore[attr-defined]


def bus(client: Client) -> None:
    """Topics and subscriptions, through the client and as a transport."""
    client.topics.create(Topic(name="orders", retention=timedelta(days=7)))
    push = PushSettings(endpoint="https://hooks.example.com/orders")
    made = client.subscriptions.declare(
        Subscription(name="hook", topic="orders", kind="push", push=push)
    )
    assert_type(made.ack_deadline, timedelta)
    assert_type(made.created_at, datetime)
    assert_type(client.subscriptions.get("hook").backlog.oldest_at, datetime | None)
    assert_type(client.subscriptions.pull("hook")[0].message.data, bytes)
    message = NewMessage(data=b"{}", attributes={"kind": "order"}, dedupe_id="1")
    assert_type(client.topics.publish("orders", [message]), list[str])
    transport: Transport = EmbeddedBus(client.store)
    transport.declare([TopicSpec(name="orders")], [SubscriptionSpec(name="s", topic="orders")])
    for delivery in transport.pull("s", max_messages=10):
        assert_type(delivery.data, bytes)
        assert_type(delivery.attempt, int)
        nack = Nack(ack_id=delivery.ack_id, kind=ErrorKind.POISON, error="not JSON")
        assert_type(transport.nack("s", [nack]), list[SettleResult])
        transport.ack("s", [delivery])  # type: ignore[list-item]
    NewMessage(data="{}")  # type: ignore[arg-type]
    keys = [webhook_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]
    headers = sign_webhook(keys, "7", b"{}", now=0)
    assert_type(verify_webhook(keys, headers, b"{}", now=0), str | None)


def probes() -> None:
    """Probe data by hand."""
    runner = ProbeRunner(names={"season": "duckdb:season.duckdb"})
    request = ProbeRequest(dependencies=[], partition="2025-12-31", parameters={"games": 1})
    found: Sequence[Observation] = runner.probe(request)
    assert_type([one.rows for one in found], list[int | None])
    ProbeRequest(partition="2025-12-31")  # type: ignore[call-arg]


def remote() -> None:
    """The client of the HTTP API is typed by its document."""
    with connect_remote("https://penstock.example", key="pnk_x", timeout=5) as api:
        config = api.configs.create_config("acme", {"pipeline_template": "hello"})
        assert_type(config["config_id"], str)
        page = api.configs.list_configs(limit=1000)
        assert_type(page["next_cursor"], str | None)
        api.configs.create_config("acme", {"pipeline": "hello"})  # type: ignore[typeddict-item]
        config["nonsense"]  # type: ignore[typeddict-item]
