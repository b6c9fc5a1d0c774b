"""Odd names, tokens and addresses at the edge, on both engines."""

from pathlib import Path
from typing import Any

import pytest

from penstock.access.api_keys import Role
from penstock.assembly.process import build_api
from penstock.assembly.routes import ROUTES
from penstock.assembly.settings import load
from penstock.audit.telemetry import Events
from penstock.core.clock import HOUR
from penstock.core.errors import SettingsError
from penstock.schedules.scheduler import SchedulerOptions
from penstock.server.context import ApiOptions
from penstock.server.overload.connections import SEND_SECONDS
from penstock.server.overload.middleware import BULK_FACTOR
from tests.kits.client_harness import Harness
from tests.server.kit import SCHEDULER_TOKEN, ServedApi
from tests.server.scene import CALLS, method_of, scene


def test_nul_in_names(served: ServedApi) -> None:
    """A NUL in a path or a query is refused like any unknown name, by each route."""
    things = scene(served.harness, "acme")
    ids = [things.config, things.failing, *things.runs.values(), things.key, things.flows.flow]
    for route, make in CALLS.items():
        path, body = make(things)
        where, _, query = path.partition("?")
        tried = [f"{where}%00", f"{where}?{query}{'&' if query else ''}customer_id=a%00b"]
        tried += [path.replace(one, f"{one}%00") for one in ids if one in path]
        for odd in tried:
            reply = served.by("admin").call(method_of(route), odd, body)
            assert reply.status in (400, 404), (route, odd, reply.body)


def test_guessing_the_scheduler_token(served: ServedApi) -> None:
    """Wrong tokens are throttled; the right one still works."""
    by = served.by(None)
    statuses = [
        by.post("/scheduler/trigger", {}, X_Scheduler_Token=f"guess-{n}").status for n in range(40)
    ]
    assert set(statuses) == {401, 429}
    reply = by.post("/scheduler/trigger", {}, X_Scheduler_Token=SCHEDULER_TOKEN)
    assert reply.status == 200


def test_short_scheduler_token() -> None:
    """A token that can be guessed is refused at the start, and not shown."""
    with pytest.raises(SettingsError, match="at least 16 characters") as caught:
        load({"PENSTOCK_SCHEDULER_TOKEN": "hunter2"})
    assert "hunter2" not in str(caught.value)
    assert load({"PENSTOCK_SCHEDULER_TOKEN": "x" * 16}).scheduler_token == "x" * 16


def test_beyond_loopback(harness: Harness) -> None:
    """Another address needs a key that is valid; an expired or revoked one does not count."""
    keys = harness.client.keys
    settings = load({"PENSTOCK_API_HOST": "0.0.0.0", "PENSTOCK_API_PORT": "0"})
    keys.create("expired", Role.ADMIN, expires="1h")
    keys.revoke(keys.create("revoked", Role.ADMIN).info.key_id)
    harness.clock.advance(2 * HOUR)
    with pytest.raises(SettingsError, match="valid API key"):
        build_api(harness.client, settings, Events())


def test_documented_bounds() -> None:
    """The page about the API states the bounds of the code."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "use-the-api.md").read_text("utf-8")
    body = ApiOptions().body_max
    whole, bulk = body // 2**20, BULK_FACTOR * body // 2**20
    assert f"at most {whole} MiB ({bulk} MiB for bulk calls)" in page
    assert f"within {SEND_SECONDS:.0f} seconds" in page
    assert load({}).api_body_max == body


def test_one_default_batch(harness: Harness) -> None:
    """A triggered tick takes as many configs as the scheduler's own."""
    assert load({}).scheduler_batch == SchedulerOptions().batch
    asked: list[int | None] = []
    served = ServedApi(harness)
    tick = served.api.asgi.state.trigger
    try:

        def counted(batch: int | None, seconds: float) -> Any:
            asked.append(batch)
            return tick(batch, seconds)

        served.api.asgi.state.trigger = counted
        for body in ({}, {"batch_size": 7}):
            served.by("operator").ok("POST", "/scheduler/trigger", body)
    finally:
        served.stop()
    assert asked == [None, 7], "None stands for the setting scheduler_batch"


def test_slow_routes() -> None:
    """Routes that probe data or read very much have threads of their own."""
    assert {route.name for route in ROUTES.all if route.is_slow} == {
        "POST /api/v1/scheduler/trigger",
        "POST /api/v1/gates/check",
        "POST /api/v1/gates/backtest",
        "GET /api/v1/detections",
        "GET /api/v1/reviews/daily",
        "GET /api/v1/reviews/weekly",
        "GET /api/v1/verification",
    }
