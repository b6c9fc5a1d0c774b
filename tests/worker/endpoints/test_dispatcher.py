"""The dispatcher against real endpoints, on each engine: requests, replies, callbacks, faults."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Pipeline, run_pending
from penstock.bus.push import webhook
from penstock.core.clock import MINUTE, SECOND
from penstock.egress.policy import STRICT, EgressRules
from penstock.flows.records import FlowRequest
from tests.kits.client_harness import Harness
from tests.kits.egress import ReceivedRequest, ScriptedResponse
from tests.server.kit import Client
from tests.worker.endpoints.kit import SECRET, Gate, endpoint, replying


def test_a_run_is_sent_as_a_signed_request(harness: Harness) -> None:
    with endpoint(harness, signing_secrets=["hook"], served=True) as world:
        run_id = world.submit(parameters={"days": 3}, correlation_id="c-1", partition="2025-12-31")
        assert world.send_all() == 1
        (got,) = world.receiver.got
        keys = [webhook.parse_secret(SECRET)]
        now = harness.clock.now()
        assert webhook.verify(keys, got.headers, got.body, now) == f"{run_id}-1"
        body = got.json
        assert (body["run_id"], body["attempt_number"], body["customer_id"]) == (run_id, 1, "acme")
        assert body["parameters"] == {"days": 3}
        assert body["partition"] == "2025-12-31"
        assert body["root_run_id"] == run_id
        assert got.headers["idempotency-key"] == got.headers["ce-id"] == f"{run_id}-1"
        assert got.headers["ce-type"] == "penstock.run"
        assert got.headers["ce-subject"] == "scores/main/score"
        assert got.headers["ce-correlationid"] == "c-1"
        assert got.headers["traceparent"].startswith("00-")
        assert body["callback"]["complete_url"].endswith(f"/pipeline-runs/{run_id}/complete")
        assert world.state(run_id) == "COMPLETED"


def test_a_request_carries_an_oidc_token(harness: Harness) -> None:
    with endpoint(harness, oidc={"email": "a@b.example", "audience": "aud"}) as world:
        world.submit()
        world.send_all()
        (got,) = world.receiver.got
        assert got.headers["authorization"] == "Bearer token:aud:a@b.example:acme"


def test_a_reply_becomes_the_result(harness: Harness) -> None:
    body = {
        "result_summary": {"file": "s3://b/k"},
        "records_processed": 12,
        "entities": {"players": [1, 2]},
    }
    with endpoint(harness, lambda _: replying(200, body)) as world:
        run_id = world.submit()
        world.send_all()
        run = world.detail(run_id).run
        assert run.result["file"] == "s3://b/k"
        assert "entities_changed" in run.result
        assert run.records == 12
        ended = [entry for entry in world.detail(run_id).journal if entry.action == "ended"]
        assert ended[0].why == "the endpoint replied 200"


@pytest.mark.parametrize(
    ("reply", "error_type", "is_dead"),
    [
        (replying(400, {"reason": "no such season"}), "VALIDATION_ERROR", True),
        (replying(401), "AUTHENTICATION_FAILED", True),
        (replying(404), "RESOURCE_NOT_FOUND", True),
        (replying(410), "RESOURCE_NOT_FOUND", True),
        (replying(301, location="http://127.0.0.1/other"), "INVALID_CONFIGURATION", True),
        (replying(307, location="http://127.0.0.1/other"), "INVALID_CONFIGURATION", True),
        (replying(500), "SERVICE_UNAVAILABLE", False),
        (replying(503), "SERVICE_UNAVAILABLE", False),
        (replying(429), "RATE_LIMIT_EXCEEDED", False),
        (replying(422, {"should_retry": True}), "VALIDATION_ERROR", False),
        (replying(500, {"should_retry": False}), "SERVICE_UNAVAILABLE", True),
        (
            replying(200, {"status": "waiting_same_day", "missing": ["t.a"]}),
            "DATA_NOT_READY",
            False,
        ),
        (replying(202), "INVALID_CONFIGURATION", True),
    ],
)
def test_a_failing_reply_is_retried_or_permanent(
    harness: Harness, reply: ScriptedResponse, error_type: str, is_dead: bool
) -> None:
    with endpoint(harness, lambda _: reply) as world:
        run_id = world.submit()
        world.send_all()
        run = world.detail(run_id).run
        assert (run.state, run.error_type, run.is_dead) == ("FAILED", error_type, is_dead)
        assert run.error_details["http_status"] == reply.status
        shown = world.detail(run_id).endpoint
        assert shown is not None
        assert (shown.url, shown.last_status) == (world.url, reply.status)
        assert len(world.receiver.got) == 1, "a redirect is not followed"


def test_retry_after_delays_the_next_attempt(harness: Harness) -> None:
    with endpoint(harness, lambda _: replying(429, retry_after="1800")) as world:
        run_id = world.submit()
        world.send_all()
        (waiting,) = world.client.runs.list(state="PENDING").items
        assert waiting.parent_run_id == run_id
        ended = world.detail(run_id).run.finished_at
        assert ended is not None
        assert (waiting.scheduled_time - ended).total_seconds() >= 1800


def test_a_slow_endpoint_fails_with_a_timeout_that_is_retried(harness: Harness) -> None:
    slow = Gate()
    with endpoint(harness, slow, reply_within="300ms") as world:
        run_id = world.submit()
        world.send_all()
        run = world.detail(run_id).run
        assert (run.state, run.error_type, run.is_dead) == ("FAILED", "TIMEOUT", False)
        assert "reply 202" in run.error_details["message"]
        slow.open.set()


def test_an_endpoint_that_is_down_is_retried(harness: Harness) -> None:
    with endpoint(harness) as world:
        world.receiver.close()
        run_id = world.submit()
        world.send_all()
        run = world.detail(run_id).run
        assert (run.error_type, run.is_dead) == ("TRANSIENT_NETWORK", False)


@pytest.mark.parametrize("rules", [STRICT, EgressRules(allow_http=True)])
def test_a_private_address_is_refused(harness: Harness, rules: EgressRules) -> None:
    with endpoint(harness) as world:
        run_id = world.submit()
        world.send_all(world.dispatcher(rules))
        run = world.detail(run_id).run
        assert (run.state, run.error_type, run.is_dead) == ("FAILED", "INVALID_CONFIGURATION", True)
        assert world.receiver.got == []


def test_an_accepted_run_is_completed_by_callback(harness: Harness) -> None:
    with endpoint(harness, lambda _: replying(202), served=True) as world:
        run_id = world.submit()
        sender = world.dispatcher()
        assert world.send_all(sender) == 1
        shown = world.detail(run_id)
        assert shown.run.state == "RUNNING"
        assert shown.endpoint is not None
        assert shown.endpoint.last_status == 202
        callback = world.receiver.got[0].json["callback"]
        reply = world.call(
            callback["heartbeat_url"], callback["token"], {"progress_percentage": 40}
        )
        assert (reply.status, reply.json["cancel_requested"]) == (200, False)
        progress = world.detail(run_id).progress
        assert progress is not None
        assert progress.percent == 40
        done = {"result_summary": {"rows": 7}, "records_processed": 7}
        reply = world.call(callback["complete_url"], callback["token"], done)
        assert reply.status == 200, reply.body
        again = world.call(callback["complete_url"], callback["token"], done)
        assert again.json == reply.json, "a duplicate gets the first response"
        run = world.detail(run_id).run
        assert (run.state, run.records, run.result) == ("COMPLETED", 7, {"rows": 7})
        assert world.send_all(sender) == 0


def test_an_accepted_run_can_fail_by_callback(harness: Harness) -> None:
    with endpoint(harness, lambda _: replying(202), served=True) as world:
        run_id = world.submit()
        world.send_all()
        callback = world.receiver.got[0].json["callback"]
        failure = {"error_type": "TRANSIENT_NETWORK", "error_details": {"message": "upstream"}}
        assert world.call(callback["fail_url"], callback["token"], failure).status == 200
        assert world.chain(run_id) == ["FAILED", "PENDING"]


def test_a_lost_callback_is_found_by_the_sweeper(harness: Harness) -> None:
    with endpoint(harness, lambda _: replying(202), served=True) as world:
        run_id = world.submit()
        sender = world.dispatcher()
        world.send_all(sender)
        world.later(4 * MINUTE)
        assert world.state(run_id) == "RUNNING", "held until the heartbeat is due"
        world.later(2 * MINUTE)
        run = world.detail(run_id).run
        assert (run.state, run.error_type) == ("FAILED", "STALE_EXECUTION")
        assert world.send_all(sender) == 1, "retried at once the first time"
        first, second = world.receiver.got
        late = first.json["callback"]
        reply = world.call(late["complete_url"], late["token"])
        assert reply.status == 409, reply.body
        now = second.json["callback"]
        assert world.call(now["complete_url"], now["token"]).status == 200
        assert world.chain(run_id) == ["FAILED", "COMPLETED"]


def test_a_stale_token_is_refused(harness: Harness) -> None:
    with endpoint(harness, lambda _: replying(202), served=True) as world:
        run_id = world.submit()
        world.send_all()
        callback = world.receiver.got[0].json["callback"]
        held = world.receiver.got[0].json["fencing_token"]
        reply = world.call(callback["complete_url"], callback["token"], {"fencing_token": held + 1})
        assert (reply.status, reply.json["code"]) == (409, "run.stale_token"), reply.body
        assert world.state(run_id) == "RUNNING"


def test_a_credential_permits_reports_about_its_run_only(harness: Harness) -> None:
    with endpoint(harness, lambda _: replying(202), served=True) as world:
        world.submit()
        other = world.submit()
        world.send_all()
        first, second = (got.json for got in world.receiver.got)
        mine, theirs = first["callback"], second["callback"]
        assert second["run_id"] == other
        reply = world.call(theirs["complete_url"], mine["token"])
        assert (reply.status, world.state(other)) == (403, "RUNNING")
        assert world.api is not None
        api = Client(world.api.server.host, world.api.server.port, mine["token"])
        assert api.get("/pipeline-runs").status == 403
        assert api.post("/scheduler/claim-runs", {"worker_id": "w"}).status == 403
        forged = mine["token"][:-1] + ("A" if mine["token"][-1] != "A" else "B")
        assert world.call(mine["complete_url"], forged).status == 401
        harness.clock.advance(71 * MINUTE)
        assert world.call(mine["complete_url"], mine["token"]).status == 401


def test_an_accepted_run_times_out(harness: Harness) -> None:
    with endpoint(harness, lambda _: replying(202), served=True, timeout="6m") as world:
        run_id = world.submit()
        world.send_all()
        callback = world.receiver.got[0].json["callback"]
        for _ in range(2):
            world.later(2 * MINUTE)
            assert world.call(callback["heartbeat_url"], callback["token"]).status == 200
        world.later(2 * MINUTE + 20 * SECOND)
        assert world.state(run_id) == "TIMEOUT"
        reply = world.call(callback["heartbeat_url"], callback["token"])
        assert reply.status == 409, reply.body


def test_a_cancel_reaches_the_endpoint_at_its_next_heartbeat(harness: Harness) -> None:
    with endpoint(harness, lambda _: replying(202), served=True) as world:
        run_id = world.submit()
        world.send_all()
        world.client.runs.cancel(run_id)
        callback = world.receiver.got[0].json["callback"]
        reply = world.call(callback["heartbeat_url"], callback["token"])
        assert reply.json["cancel_requested"] is True
        assert world.call(callback["cancelled_url"], callback["token"]).status == 200
        assert world.state(run_id) == "CANCELLED"


def test_a_failing_reply_of_a_cancelled_run_is_not_retried(harness: Harness) -> None:
    def respond(_: ReceivedRequest) -> ScriptedResponse:
        (run,) = harness.client.runs.list(state="RUNNING").items
        harness.client.runs.cancel(run.run_id)
        return replying(500)

    with endpoint(harness, respond) as world:
        run_id = world.submit()
        world.send_all()
        assert world.chain(run_id) == ["CANCELLED"]


def test_a_callback_before_the_reply_wins(harness: Harness) -> None:
    calls: list[Any] = []

    def respond(got: ReceivedRequest) -> ScriptedResponse:
        callback = got.json["callback"]
        done = {"result_summary": {"by": "callback"}}
        calls.append(world.call(callback["complete_url"], callback["token"], done))
        return replying(500)

    with endpoint(harness, respond, served=True) as world:
        run_id = world.submit()
        world.send_all()
        assert [call.status for call in calls] == [200]
        run = world.detail(run_id).run
        assert (run.state, run.result) == ("COMPLETED", {"by": "callback"})
        assert [event.outcome for event in world.sent] == ["stale"]


def test_a_dispatcher_that_dies_loses_no_run(harness: Harness) -> None:
    class Killed(BaseException):
        """The process ends during a request."""

    def kill(_: object) -> Any:
        raise Killed

    with endpoint(harness) as world:
        run_id = world.submit()
        killed = world.dispatcher(send=kill)
        with pytest.raises(Killed):
            killed.run_once()
        world.dispatchers.clear()
        assert world.state(run_id) == "RUNNING"
        world.later(46 * SECOND)
        assert world.send_all() == 1
        assert world.chain(run_id) == ["FAILED", "COMPLETED"]


def test_the_query_of_a_url_is_never_shown(harness: Harness) -> None:
    with endpoint(harness) as world:
        world.pipeline.phase("more").http(f"{world.url}?key=hunter2", name="keyed")
        world.client.register([world.pipeline])
        run_id = world.submit(processor="keyed")
        world.send_all()
        detail = world.detail(run_id)
        assert world.receiver.got[0].path == "/score?key=hunter2"
        assert detail.endpoint is not None
        assert detail.endpoint.url == f"{world.url}?…"
        assert "hunter2" not in str(detail)
        assert "hunter2" not in str(harness.client.views.pipelines())


def test_an_endpoint_receives_its_item(harness: Harness) -> None:
    bodies: list[Any] = []

    def reply(request: dict[str, Any]) -> tuple[int, Any]:
        bodies.append(request)
        return 200, {"entities": {"players": [7]}} if request["processor"] == "rosters" else None

    flow = Pipeline("games")
    first = flow.phase("first")
    first.http("https://a.example.com/", name="rosters", entities=["players"])
    second = flow.phase("second", after=first)
    second.http("https://a.example.com/", name="game", each=lambda _: ["bos-nyk", "lal-den"])
    harness.client.register([flow])
    request = FlowRequest(pipeline="games", partition="2025-12-31", customer="acme")
    harness.client.flows.trigger(request)
    run_pending(harness.client, [flow], reply=reply)
    assert [body["processor"] for body in bodies] == ["rosters", "game", "game"]
    assert sorted(body["item"] for body in bodies[1:]) == ["bos-nyk", "lal-den"]
