"""User code: the Python client and the client of the HTTP API."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, assert_type

from penstock import (
    Client,
    CompletionReport,
    Config,
    ConfigChange,
    FlowRequest,
    NotFound,
    Page,
    Pipeline,
    Role,
    Run,
    RunDetail,
    StaleVersion,
    StoredConfig,
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
        at = datetime(2025, 12, 31, tzinfo=UTC)
        wanted = Submission(pipeline="greet", parameters={"name": "Ada"}, at=at)
        run_id = client.runs.submit(wanted, key="order-17").run_id
        assert_type(run_id, str)
        assert_type(client.runs.submit_many([wanted]), list[str])
        assert_type(run_pending(client, [pipeline]), int)
        run = client.runs.get("run_7h2kq0v3")
        assert_type(run, Run)
        assert_type(run.run_id, str)
        assert_type(run.started_at, datetime | None)
        assert_type(run.duration, timedelta | None)
        assert_type(client.runs.detail(run_id), RunDetail)
        assert_type(to_datetime(from_datetime(at)), datetime)
        assert_type(encode_id("run", decode_id("run", run_id)), str)
        page = client.runs.list(customer="acme", state="FAILED", since=at, limit=2, before=run_id)
        assert_type([one.run_id for one in page.items], list[str])
        assert_type(page.next_cursor, str | None)
        assert_type(client.runs.retry(run_id).run_id, str)
        assert_type(
            client.runs.cancel(run_id, reason="not needed").outcome,
            Literal["cancelled", "asked", "forced"],
        )
        client.runs.submit(Submission("greet"))  # type: ignore[call-arg]
        client.runs.submit(wanted, idempotency_key="x")  # type: ignore[call-arg]
        client.runs.get(17)  # type: ignore[arg-type]
        client.runs.list(state="DONE")  # type: ignore[arg-type]
        run.state = "DONE"  # type: ignore[misc,assignment]


def other_use_cases(client: Client) -> None:
    """Configs, flows, keys, limits and dead letters."""
    config = client.configs.create("acme", Config(pipeline="nightly", interval=timedelta(hours=1)))
    assert_type(config, StoredConfig)
    assert_type(config.config_id, str)
    assert_type(config.interval, timedelta | None)
    assert_type(config.next_run_time, datetime | None)
    try:
        client.configs.update(config.config_id, ConfigChange(priority=8), version=99)
    except StaleVersion as error:
        assert_type(error.current, int | None)
    except NotFound as error:
        assert_type(error.kind, str)
    assert_type(client.configs.start(config.config_id).run_ids, list[str])
    assert_type(client.configs.list(customer="acme"), Page[StoredConfig])
    assert_type(client.pauses.pause("customer", "acme").is_changed, bool)
    client.configs.create("acme", {"pipeline_template": "nightly"})  # type: ignore[arg-type]
    Config(pipeline="nightly", overlap="maybe")  # type: ignore[arg-type]
    client.pauses.pause("world")  # type: ignore[arg-type]
    opened = client.flows.trigger(FlowRequest(pipeline="nba", partition="2025-12-31"))
    assert_type(opened.flow.flow_id, str)
    assert_type(opened.flow.ended_at, datetime | None)
    assert_type(opened.run_ids, list[str])
    client.flows.complete(
        CompletionReport(pipeline="nba", processor="boxscores", partition="2025-12-31")
    )
    assert_type([flow.flow_id for flow in client.flows.list(limit=5).items], list[str])
    assert_type(client.diagnostics.explain("nba", "2025-12-31").summary, str)
    assert_type(client.keys.create("docs", Role.ADMIN).key, str | None)
    assert_type(client.keys.get("key_5m7t0c2d").last_used_at, datetime | None)
    assert_type(client.views.overview().as_of, datetime)
    assert_type([one.detail for one in client.alerts.list().items], list[dict[str, Any]])
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
    assert_type(client.topics.publish("orders", [message]).message_ids, list[str])
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
    """The client over HTTP has the methods and the types of the local one."""
    with connect_remote("https://penstock.example", key="pnk_x", timeout=5) as client:
        config = client.configs.create("acme", Config(pipeline="hello", cron="0 2 * * *"))
        assert_type(config.config_id, str)
        assert_type(config.next_run_time, datetime | None)
        assert_type(client.configs.list(limit=1000).next_cursor, str | None)
        client.configs.create("acme", Config(pipelin="hello"))  # type: ignore[call-arg]
        config.nonsense  # type: ignore[attr-defined]  # noqa: B018
