"""The local and the remote client return the same records for the same question."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from penstock.client import UseCaseGroups
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.records.record import encode_record
from penstock.monitoring.health_refresher import HealthRefresher
from penstock.remote.client import RemoteClient
from penstock.remote.transport import Transport
from penstock.schedules.records import Config
from tests.server.bus_scene import bus_things
from tests.server.flow_scene import flow_things
from tests.server.kit import ServedApi


@pytest.fixture
def remote(served: ServedApi) -> Iterator[RemoteClient]:
    """Return a client of the served API."""
    transport = Transport(f"http://127.0.0.1:{served.server.port}", key=served.keys["admin"])
    yield RemoteClient(transport)
    transport.close()


def same(served: ServedApi, remote: RemoteClient, subject: str, method: str, /, *args: object,
         **more: object) -> object:  # fmt: skip
    """Ask both clients the same, compare the bytes, and return the result."""

    def ask(client: UseCaseGroups) -> object:
        return getattr(getattr(client, subject), method)(*args, **more)

    local, far = ask(served.harness.client), ask(remote)
    assert encode_record(local) == encode_record(far)
    assert type(local) is type(far)
    return far


class TestCustomers:
    """Customers."""

    def test_settings(self, served: ServedApi, remote: RemoteClient) -> None:
        """Lists, pages and settings are equal; what is omitted is kept, null removes a maximum."""
        for name in ("acme", "globex"):
            served.harness.submit("outside", customer=name)
        made = remote.customers.set("acme", weight=3, concurrency=2)
        assert (made.weight, made.concurrency) == (3, 2)
        assert same(served, remote, "customers", "get", "acme") == made
        assert remote.customers.set("acme", concurrency=None).concurrency is None
        first = remote.views.customers(limit=1)
        assert [one.weight for one in first.items] == [3]
        same(served, remote, "views", "customers", limit=1, cursor=first.next_cursor)
        with pytest.raises(NotFound, match="customer"):
            remote.customers.get("unknown")
        with pytest.raises(InvalidInput, match=r"weight: expected a number from 0\.1 to 100"):
            remote.customers.set("acme", weight=0)
        with pytest.raises(InvalidInput, match="at least one setting"):
            remote.customers.set("acme")

    def test_health(self, served: ServedApi, remote: RemoteClient) -> None:
        """The health of one customer, lists by filter and order, and counts are equal."""
        config = Config(pipeline="nightly", cron="0 2 * * *", provider="GCP")
        for name in ("acme", "globex"):
            made = served.harness.client.configs.create(name, config)
        served.harness.client.configs.disable(made.config_id, reason="credentials expired")
        HealthRefresher(served.harness.store).run_once()
        assert same(served, remote, "views", "customer_health", "acme")
        for filters in (
            {"sort": "trouble", "health": "off"},
            {"sort": "next", "pipeline": "nightly", "provider": "GCP"},
            {"sort": "name", "q": made.config_id},
        ):
            page = same(served, remote, "views", "customers", **filters)
            assert len(page.items) == 1  # type: ignore[attr-defined]
        same(served, remote, "views", "customer_counts")
        same(served, remote, "views", "system")
        for filters in ({"customer_prefix": "ac"}, {"health": "off"}, {"sort": "next_run_time"}):
            page = same(served, remote, "configs", "list", **filters)
            assert len(page.items) == 1  # type: ignore[attr-defined]
        with pytest.raises(NotFound, match="customer"):
            remote.views.customer_health("unknown")


class TestFlows:
    """Flows."""

    def test_lists(self, served: ServedApi, remote: RemoteClient) -> None:
        """Lists with phases and risk, by filter and order, are equal."""
        flow_things(served.harness, "acme")
        for filters in (
            {"phases": True, "risk": True},
            {"only": "open", "search": "2025"},
            {"only": "trouble", "since": datetime(2020, 1, 1, tzinfo=UTC)},
        ):
            same(served, remote, "flows", "list", **filters)
        assert remote.flows.list(phases=True).items[0].phases


class TestLimits:
    """Limits."""

    def test_reads(self, served: ServedApi, remote: RemoteClient) -> None:
        """Lists, pages and details are equal."""
        things = bus_things(served.harness, "globex")
        same(served, remote, "limits", "get", things.limit)
        same(served, remote, "limits", "list")
        same(served, remote, "limits", "list", show="line")
        same(served, remote, "limits", "list", show="learned", q="bq")
        same(served, remote, "schedules", "jitter", tolerance=timedelta(minutes=5))
        remote.limits.declare("crm", capacity=1)
        first = remote.limits.list(limit=1)
        assert first.next_cursor is not None
        same(served, remote, "limits", "list", limit=1, cursor=first.next_cursor)

    def test_changes(self, served: ServedApi, remote: RemoteClient) -> None:
        """Arguments that are omitted keep their values; null removes a bound."""
        things = bus_things(served.harness, "globex")
        made = remote.limits.declare("crm", capacity=3, lease="5m", rate=2.0)
        assert (made.limit.capacity, made.limit.lease.total_seconds()) == (3, 300)
        assert remote.limits.declare("crm", rate=None).limit.rate is None
        assert remote.limits.release(things.lease, "stuck").lease_id == things.lease

    def test_errors(self, remote: RemoteClient) -> None:
        """Errors have the class and the message of the local client."""
        with pytest.raises(NotFound, match="limit"):
            remote.limits.get("unknown")
        with pytest.raises(InvalidInput, match="lease: expected from 1s to 1d"):
            remote.limits.declare("crm", lease="0s")
        with pytest.raises(InvalidInput, match="capacity"):
            remote.limits.declare("crm", capacity="three")  # type: ignore[arg-type]
