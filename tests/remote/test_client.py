"""The generated client against a server: every method is called and its response type checked."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints
from typing import is_typeddict as is_shape

import pytest

from penstock.core.errors import Conflict, Forbidden, InvalidInput, NotFound, Unauthorised
from penstock.remote import Api, connect
from tests.server.kit import ServedApi

CRON = {"pipeline_template": "nightly", "schedule_cron": "0 * * * *"}
WORKER = "w-1"


@pytest.fixture
def api(served: ServedApi) -> Iterator[Api]:
    """Return a client with an admin key."""
    with connect(served.server.url, key=served.keys["admin"]) as made:
        yield made


def faults(kind: Any, value: Any, path: str) -> Iterator[str]:
    """Return the paths at which a value does not have the type that the client declares."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return
    if origin in (NotRequired, Required):
        yield from faults(inner[0], value, path)
    elif is_shape(kind) and not isinstance(value, dict):
        yield f"{path} is no object"
    elif is_shape(kind):
        hints = get_type_hints(kind, include_extras=True)
        needed = {name for name, hint in hints.items() if get_origin(hint) is not NotRequired}
        for name in needed - value.keys():
            yield f"{path}.{name} is missing"
        for name in value.keys() - hints.keys():
            yield f"{path}.{name} is not described"
        for name in value.keys() & hints.keys():
            yield from faults(hints[name], value[name], f"{path}.{name}")
    elif origin in (Union, types.UnionType):
        found = [list(faults(part, value, path)) for part in inner]
        if all(found):
            yield from min(found, key=len)
    elif origin is list:
        for n, item in enumerate(value):
            yield from faults(inner[0], item, f"{path}[{n}]")
    elif origin is Literal:
        if value not in inner:
            yield f"{path} is {value!r}"
    elif origin is dict:
        if not isinstance(value, dict):
            yield f"{path} is no object"
    elif kind is type(None) or kind is None:
        if value is not None:
            yield f"{path} is not null"
    elif not isinstance(value, (int, float) if kind is float else kind):
        yield f"{path} is {type(value).__name__}, not {kind.__name__}"


class Recorder:
    """Calls methods of the client, checks their results, and records which were called."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.called: set[str] = set()

    def __call__(self, method: Callable[..., Any], *args: Any, **more: Any) -> Any:
        """Call one method and check its result."""
        result = method(*args, **more)
        self.called.add(method.__name__)
        kind = get_type_hints(method, include_extras=True)["return"]
        assert list(faults(kind, result, method.__name__)) == []
        return result

    def all(self) -> set[str]:
        """Return the names of all methods."""
        subjects = [part for name, part in vars(self.api).items() if name != "transport"]
        return {
            name
            for subject in subjects
            for name, _ in inspect.getmembers(subject, inspect.ismethod)
            if not name.startswith("_")
        }


def test_every_method(served: ServedApi, api: Api) -> None:
    """Every method returns its declared type."""
    ask = Recorder(api)
    _configs(ask, served)
    _runs(ask, served)
    _work(ask, served)
    _views(ask)
    _keys(ask)
    _bus(ask)
    _push(ask)
    assert ask.all() - ask.called == set()


def _configs(ask: Recorder, served: ServedApi) -> None:
    configs = ask.api.configs
    made = ask(configs.create_config, "acme", {**CRON, "reason": "r"})
    config_id = made["config_id"]
    ask(configs.create_configs_bulk, [{**CRON, "customer_id": "acme"}, {"customer_id": "acme"}])
    whole = [{**CRON, "customer_id": "acme"}]
    ask(configs.create_configs_bulk, whole, with_configs=True)
    assert ask(configs.create_configs_bulk, whole, dry_run=True)[0]["status"] == "checked"
    assert ask(configs.get_config, config_id) == made
    assert len(ask(configs.list_customer_configs, "acme", is_active=True)["items"]) == 3
    ask(configs.list_configs, limit=1)
    changed = ask(configs.update_config, config_id, {"priority": 9}, if_match='"1"')
    assert changed["version"] == 2
    ask(configs.preview_config, config_id, n=2)
    ask(configs.preview_schedule, {"schedule_cron": "0 2 * * *", "timezone": "Europe/Berlin"})
    ask(configs.start_config, config_id)
    ask(configs.audit_config, config_id)
    ask(configs.audit_customer, "acme", config_id=config_id)
    served.harness.clock.advance(seconds=3 * 3600)
    ask(ask.api.scheduler.trigger, {"batch_size": 100})
    assert ask(configs.list_occurrences, config_id)["items"]
    ask(configs.delete_config, config_id, reason="done")


def _runs(ask: Recorder, served: ServedApi) -> None:
    runs = ask.api.runs
    made = ask(runs.submit_run, "acme", {"pipeline_template": "nightly"}, idempotency_key="k")
    assert runs.submit_run("acme", {"pipeline_template": "nightly"}, idempotency_key="k") == made
    detail = ask(runs.get_run, made["run_id"])
    assert detail["run"]["state"] == "PENDING"
    ask(runs.list_customer_runs, "acme", state="PENDING")
    ask(runs.list_runs, limit=2)
    assert ask(runs.cancel_run, made["run_id"], {"reason": "r"})["outcome"] == "cancelled"
    ask(runs.retry_run, made["run_id"])
    outside = runs.submit_run("acme", {"pipeline_template": "outside"})["run_id"]
    run = _claim(ask, outside)
    ask.api.work.start_run(outside, _held(run))
    end = ask(ask.api.work.fail_run, outside, {**_held(run), "error_type": "INVALID_CONFIGURATION",
                                               "should_retry": False})  # fmt: skip
    assert end["is_dead"]
    assert ask(ask.api.dead_letters.list_dead_letters, customer_id="acme")["items"]
    dead_letters = ask.api.dead_letters
    assert ask(dead_letters.group_dead_letters)["items"]
    assert ask(dead_letters.get_dead_letter, outside)["run"]["run_id"] == outside
    assert ask(dead_letters.replay_dead_letters, {"dry_run": True})["replayed"]
    again = ask(dead_letters.replay_dead_letter, outside)["replayed_as"]
    ask.api.runs.cancel_run(again, {"reason": "r"})
    outside = runs.submit_run("acme", {"pipeline_template": "outside"})["run_id"]
    run = _claim(ask, outside)
    ask.api.work.start_run(outside, _held(run))
    failure: Any = {**_held(run), "error_type": "INVALID_CONFIGURATION", "should_retry": False}
    ask.api.work.fail_run(outside, failure)
    ask(dead_letters.discard_dead_letter, outside, {"reason": "r"})
    assert served.received


def _work(ask: Recorder, served: ServedApi) -> None:
    work, runs = ask.api.work, ask.api.runs
    ids = [runs.submit_run("acme", {"pipeline_template": "outside"})["run_id"] for _ in range(4)]
    held = {run["run_id"]: _held(run) for run in ask(
        work.claim_runs, {"worker_id": WORKER, "max_claims": 3, "wait_seconds": 1}
    )["claimed_runs"]}  # fmt: skip
    assert set(held) == set(ids[:3])
    held[ids[3]] = _held(ask(work.claim_run, ids[3], {"worker_id": WORKER}))
    for run_id in ids:
        ask(work.start_run, run_id, held[run_id])
    ask(work.heartbeat_run, ids[0], {**held[ids[0]], "progress_percentage": 10})
    assert ask.api.runs.get_run(ids[0])["progress"] is not None
    heartbeats = [{"run_id": run_id, **held[run_id]} for run_id in ids[:2]]
    heartbeats.append({"run_id": "run_00000000"})
    outcomes = ask(work.heartbeat_runs, {"worker_id": WORKER, "heartbeats": heartbeats})["outcomes"]
    assert [one["problem"] is None for one in outcomes] == [True, True, False]
    ask(work.complete_run, ids[0], {**held[ids[0]], "records_processed": 3})
    ask(work.complete_runs, {"completions": [{"run_id": ids[1], **held[ids[1]]}]})
    ask.api.runs.cancel_run(ids[2])
    assert ask(work.confirm_cancel, ids[2], held[ids[2]])["state"] == "CANCELLED"
    assert served.harness.client.views.overview().running == 1


def _views(ask: Recorder) -> None:
    views, health = ask.api.views, ask.api.health
    ask(views.pipeline_status)
    ask(views.customer_metrics, "acme")
    ask(views.list_alerts, state="open")
    ask(views.list_sessions)
    assert ask(views.get_pipeline, "nightly") in ask(views.list_pipelines)
    assert ask(views.pause, {"scope": "customer", "subject": "acme"})["changed"]
    assert ask(views.list_pauses)
    assert ask(views.resume, {"scope": "customer", "subject": "acme"})["changed"]
    assert ask(health.healthz) == {"status": "ok"}
    assert ask(health.readyz) == {"status": "ready"}
    assert "penstock_" in ask(health.read_metrics)


def _keys(ask: Recorder) -> None:
    keys = ask.api.keys
    made = ask(keys.create_key, {"name": "ci", "role": "viewer"})
    key_id = made["info"]["key_id"]
    assert ask(keys.rotate_key, key_id)["key"] != made["key"]
    assert ask(keys.revoke_key, key_id)["changed"]
    ask(keys.list_keys, with_revoked=True)


def _push(ask: Recorder) -> None:
    """A push requires a token of an external issuer; the client's key is refused."""
    message: Any = {"messageId": "1", "data": "aGk="}
    with pytest.raises(Unauthorised):
        ask.api.push.receive_push("orders", {"message": message, "subscription": "orders"})
    ask.called.add("receive_push")


def _bus(ask: Recorder) -> None:
    topics, subs, got = ask.api.topics, ask.api.subscriptions, ask.api.deliveries
    assert ask(topics.create_topic, {"name": "rosters"})["retention_seconds"] == 7 * 86_400
    assert ask(topics.list_topics, limit=1)["items"]
    made = ask(subs.declare_subscription, {"name": "reader", "topic": "rosters"})
    assert made["dead_letter_topic"] == "reader.dlq"
    assert ask(topics.get_topic, "rosters")["subscriptions"] == ["reader"]
    messages: Any = [{"data": "aGk=", "attributes": {"n": str(n)}} for n in range(4)]
    ids = ask(topics.publish, "rosters", {"messages": messages})["message_ids"]
    first, second, *_, last = ask(got.pull_messages, "reader", {"wait_seconds": 1})[
        "received_messages"
    ]
    settled = ask(got.release_messages, "reader", {"ack_ids": [last["ack_id"]]})
    assert settled["outcomes"] == ["done"]
    assert ask(got.ack_messages, "reader", {"ack_ids": [first["ack_id"]]})["outcomes"] == ["done"]
    ask(got.extend_messages, "reader", {"ack_ids": [second["ack_id"]], "ack_deadline_seconds": 30})
    ask(got.nack_messages, "reader", {"nacks": [{"ack_id": second["ack_id"], "kind": "poison"}]})
    assert ask(topics.get_message, ids[1])["deliveries"][0]["state"] == "dead_lettered"
    assert ask(subs.get_subscription, "reader")["sums"]["dead_lettered"] == 1
    assert ask(subs.list_subscriptions, topic="rosters")["items"]
    assert ask(subs.pause_subscription, "reader", {"is_paused": True})["is_paused"]
    ask(subs.seek_subscription, "reader", {"time": "2020-01-01"})
    assert ask(subs.purge_subscription, "reader")["purged"] > 0
    ask(subs.delete_subscription, "reader")
    ask(topics.delete_topic, "rosters")


def _claim(ask: Recorder, run_id: str) -> Any:
    return ask.api.work.claim_run(run_id, {"worker_id": WORKER})


def _held(run: Any) -> Any:
    return {"worker_id": WORKER, "fencing_token": run["fencing_token"]}


def test_errors(served: ServedApi, api: Api) -> None:
    """A refusal of the server is raised as the same error class."""
    with pytest.raises(NotFound) as missing:
        api.runs.get_run("run_00000000")
    assert (missing.value.kind, missing.value.id) == ("run", "run_00000000")
    with pytest.raises(InvalidInput) as bad:
        api.configs.create_config("acme", {**CRON, "schedule_cron": "61"})  # type: ignore[typeddict-item]
    assert bad.value.field == "schedule_cron"
    run_id = api.runs.submit_run("acme", {"pipeline_template": "nightly"})["run_id"]
    with pytest.raises(Conflict):
        api.runs.retry_run(run_id)
    with connect(served.server.url, key=served.keys["viewer"]) as viewer, pytest.raises(Forbidden):
        viewer.runs.cancel_run(run_id)
    with connect(served.server.url) as anonymous, pytest.raises(Unauthorised):
        anonymous.runs.list_runs()


def test_repeated_key_creation_hides_the_secret(api: Api) -> None:
    """A repeated request does not return the secret; the key must be rotated."""
    wanted: Any = {"name": "ci", "role": "viewer"}
    assert api.keys.create_key(wanted, idempotency_key="k")["key"] is not None
    assert api.keys.create_key(wanted, idempotency_key="k")["key"] is None
