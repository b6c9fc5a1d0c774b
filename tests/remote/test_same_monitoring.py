"""The local and the remote client return the same overviews, metrics, alerts and pipelines."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock.alerts.records import AlertSelection, NewSilence
from penstock.core.clock import DAY, to_datetime
from penstock.core.errors import ApiError, InvalidInput, NotFound
from penstock.monitoring.verify.records import PublishedHead
from penstock.remote.client import RemoteClient
from penstock.services.upkeep import seal_block
from tests.remote.test_same_records import remote, same
from tests.server.kit import ServedApi
from tests.server.scene import scene

__all__ = ["remote"]


def test_overview(served: ServedApi, remote: RemoteClient) -> None:
    """Counts of runs are equal."""
    scene(served.harness, "globex")
    same(served, remote, "views", "overview")
    same(served, remote, "views", "longest_running")
    same(served, remote, "views", "customers", limit=1)
    same(served, remote, "views", "customers", health="failing", q="glo")
    same(served, remote, "views", "longest_running", customer="globex", limit=1)
    same(served, remote, "views", "last_failures", limit=5)
    same(served, remote, "views", "today")
    same(served, remote, "views", "today", customer="globex", limit=1)
    assert remote.views.today().flows
    assert remote.views.overview().active_runs > 0


def test_journal(served: ServedApi, remote: RemoteClient) -> None:
    """What happened is equal, page by page and with filters."""
    scene(served.harness, "globex")
    first = remote.views.journal(limit=3)
    assert len(first.items) == 3
    same(served, remote, "views", "journal", limit=3, cursor=first.next_cursor)
    same(served, remote, "views", "journal", kind="flow", customer="globex", notable=True)


def test_metrics(served: ServedApi, remote: RemoteClient) -> None:
    """Metrics are equal, for the default period and for a given one."""
    scene(served.harness, "globex")
    same(served, remote, "views", "metrics", "globex")
    now = served.harness.clock.now()
    since, until = to_datetime(now - DAY), to_datetime(now + DAY)
    same(served, remote, "views", "metrics", "globex", start_date=since, end_date=until)
    found = remote.views.metrics("globex", start_date=since, end_date=until)
    assert (found.start_date, found.end_date) == (since, until)
    assert found.total_runs > 0
    assert sum(one.total_runs for one in found.by_provider) == found.total_runs


def test_alerts(served: ServedApi, remote: RemoteClient) -> None:
    """Alerts are equal, by state, by customer and by page."""
    for customer in ("globex", "acme"):
        scene(served.harness, customer)
    same(served, remote, "alerts", "list")
    same(served, remote, "alerts", "list", state="resolved")
    same(served, remote, "alerts", "list", state="open", customer="globex")
    first = remote.alerts.list(limit=1)
    assert first.next_cursor is not None
    same(served, remote, "alerts", "list", limit=1, cursor=first.next_cursor)


def test_alerts_and_channels(served: ServedApi, remote: RemoteClient) -> None:
    """Single alerts, silences, rules, channels and notices are equal; so are changes."""
    things = scene(served.harness, "globex").alerts
    same(served, remote, "alerts", "get", things.alerts[0])
    same(served, remote, "alerts", "silences", with_ended=True)
    same(served, remote, "alerts", "rules")
    same(served, remote, "alerts", "channels")
    same(served, remote, "alerts", "notices", channel="chat")
    same(served, remote, "alerts", "notice", things.notice)
    made = remote.alerts.silence(
        NewSilence(alert_id=things.alerts[0], duration=timedelta(hours=1), reason="known")
    )
    assert (made.alerts, made.is_active) == (1, True)
    assert remote.alerts.end_silence(made.silence_id).ended_by is not None
    done = remote.alerts.acknowledge_many(AlertSelection(rule="drill"), note="all of them")
    assert done.changed == 4
    assert {one.note for one in done.alerts} == {"all of them"}
    assert remote.alerts.resolve(things.alerts[0]).state == "resolved"
    assert remote.alerts.resolve_many(AlertSelection(alert_ids=[things.alerts[1]])).changed == 1
    assert remote.alerts.test_channel("chat").state == "waiting"
    assert remote.alerts.resend("chat") == 0


def test_processes_and_pipelines(served: ServedApi, remote: RemoteClient) -> None:
    """Live processes and registered pipelines are equal."""
    same(served, remote, "views", "sessions")
    same(served, remote, "views", "pipelines")
    same(served, remote, "views", "pipeline", "nightly")
    (processor,) = remote.views.pipeline("nightly").processors
    assert processor.max_execution_duration is None


def test_published_heads(served: ServedApi, remote: RemoteClient) -> None:
    """Published heads are compared on the server: a changed one, and one without a block."""
    scene(served.harness, "acme")
    seal_block(served.harness.store, 10)
    heads = [PublishedHead(block=one.block, head=one.head) for one in remote.views.seals().items]
    assert heads
    same(served, remote, "views", "compare_heads", heads)
    assert remote.views.compare_heads(heads).is_intact
    forged = [PublishedHead(block=heads[0].block, head="0" * 64), PublishedHead(block=99, head="f")]
    found = remote.views.compare_heads([*forged, *heads[1:]])
    assert [(one.kind, one.subject) for one in found.problems] == [
        ("head_changed", f"block {heads[0].block}"), ("head_changed", "block 99"),
    ]  # fmt: skip
    with pytest.raises(InvalidInput, match="one head for each block"):
        remote.views.compare_heads([*heads, forged[0]])
    with pytest.raises(InvalidInput, match="heads"):
        remote.views.compare_heads([])


def test_errors(remote: RemoteClient) -> None:
    """Errors have the class of the local client; what needs the database says so."""
    with pytest.raises(NotFound, match="pipeline"):
        remote.views.pipeline("unknown")
    with pytest.raises(NotFound, match="customer"):
        remote.views.metrics("unknown")
    with pytest.raises(InvalidInput, match="start_date"):
        remote.views.metrics("acme", start_date=to_datetime(2 * DAY), end_date=to_datetime(DAY))
    with pytest.raises(
        InvalidInput, match="state: expected one of acknowledged, open, resolved, silenced"
    ):
        remote.alerts.list(state="closed")  # type: ignore[arg-type]
    with pytest.raises(ApiError, match="direct access to the database"):
        remote.views.verify_journal()
