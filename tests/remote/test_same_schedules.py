"""The local and the remote client return the same records of configs and pauses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from penstock.client import UseCaseGroups
from penstock.core.clock import HOUR
from penstock.core.errors import ApiError, Conflict, InvalidInput, NotFound, StaleVersion
from penstock.core.records.record import encode_record
from penstock.remote.client import RemoteClient
from penstock.schedules.records import (
    NULL_IS_DEFAULT,
    Config,
    ConfigChange,
    NewConfig,
    StoredConfig,
)
from tests.remote.test_same_records import remote, same
from tests.server.kit import ServedApi

__all__ = ["remote"]

HOURLY = Config(pipeline="nightly", cron="0 * * * *")


def created(served: ServedApi, customer: str = "acme") -> StoredConfig:
    """Create a config on the server."""
    return served.harness.client.configs.create(customer, HOURLY, reason="contract")


class TestReads:
    """Reads of configs."""

    def test_configs(self, served: ServedApi, remote: RemoteClient) -> None:
        """Configs, their lists and pages are equal."""
        config, other = created(served), created(served, "globex")
        same(served, remote, "configs", "get", config.config_id)
        same(served, remote, "configs", "list")
        same(served, remote, "configs", "list", customer="globex", is_active=True)
        same(served, remote, "configs", "list", pipeline="nightly", after=config.config_id)
        same(served, remote, "configs", "list", offset=1)
        same(served, remote, "configs", "list_of", "acme")
        first = remote.configs.list(limit=1)
        assert first.next_cursor is not None
        same(served, remote, "configs", "list", limit=1, cursor=first.next_cursor)
        assert remote.configs.list(cursor=first.next_cursor).items == [other]

    def test_occurrences(self, served: ServedApi, remote: RemoteClient) -> None:
        """Previews and missed occurrences are equal."""
        config = created(served)
        same(served, remote, "configs", "preview", config.config_id, 3)
        quarter = timedelta(minutes=15)
        (one,) = remote.configs.preview_of(interval=quarter, n=1).occurrences
        assert one.at - quarter == config.created_at
        same(served, remote, "configs", "preview_of", cron="30 2 * * *", timezone="Europe/Paris")
        served.harness.clock.advance(3 * HOUR)
        served.harness.client.configs.disable(config.config_id)
        same(served, remote, "configs", "occurrences", config.config_id)
        assert remote.configs.occurrences(config.config_id).items[0].occurrences == 3

    def test_audit(self, served: ServedApi, remote: RemoteClient) -> None:
        """The audit trails of a customer and of a config are equal."""
        config = created(served)
        created(served)
        remote.configs.update(config.config_id, ConfigChange(priority=8), reason="urgent")
        same(served, remote, "configs", "audit", "acme")
        same(served, remote, "configs", "audit", "acme", config_id=config.config_id)
        same(served, remote, "configs", "audit_of", config.config_id)
        assert remote.configs.audit_of(config.config_id).items[-1].new_values == {"priority": 8}

    def test_pauses(self, served: ServedApi, remote: RemoteClient) -> None:
        """Pauses are equal in every scope."""
        config = created(served)
        pauses = served.harness.client.pauses
        pauses.pause("all", reason="works")
        pauses.pause("customer", "acme")
        pauses.pause("pipeline", "nightly")
        pauses.pause("config", config.config_id)
        same(served, remote, "pauses", "list")
        assert len(remote.pauses.list()) == 4


class TestWrites:
    """Changes of configs and pauses."""

    def test_create(self, served: ServedApi, remote: RemoteClient) -> None:
        """A created config has every field that was sent, durations included."""
        config = Config(
            pipeline="nightly",
            provider="GCP",
            interval=timedelta(minutes=7.5),
            parameters={"days": 2},
            retry={"max_attempts": 2},
            priority=7,
            max_duration=timedelta(minutes=90),
            sla=timedelta(minutes=20),
            catch_up="all",
            catch_up_window=timedelta(hours=3),
            overlap="queue",
            jitter=timedelta(seconds=30),
            is_active=False,
        )
        made = remote.configs.create("acme", config, reason="contract")
        assert {name: getattr(made, name) for name in Config.__struct_fields__} == {
            **{name: getattr(config, name) for name in Config.__struct_fields__},
            "schedule_type": "INTERVAL",
        }
        near = served.harness.client.configs
        assert encode_record(near.get(made.config_id)) == encode_record(made)
        assert near.audit("acme").items[0].reason == "contract"

    def test_changes(self, served: ServedApi, remote: RemoteClient) -> None:
        """Omitted fields keep their values; null removes; versions and ETags are checked."""
        config = created(served)
        change = ConfigChange(retry={"max_attempts": 2}, jitter=timedelta(seconds=5))
        changed = remote.configs.update(config.config_id, change, version=1)
        assert (changed.retry, changed.jitter) == ({"max_attempts": 2}, timedelta(seconds=5))
        assert (changed.cron, changed.version) == ("0 * * * *", 2)
        removed = remote.configs.update(config.config_id, ConfigChange(retry=None), if_match='"2"')
        assert (removed.retry, removed.jitter) == (None, timedelta(seconds=5))
        with pytest.raises(StaleVersion, match="is now at version 3"):
            remote.configs.update(config.config_id, change, version=1)
        with pytest.raises(StaleVersion):
            remote.configs.delete(config.config_id, if_match='"1"')
        with pytest.raises(InvalidInput, match="If-Match"):
            remote.configs.delete(config.config_id, if_match="three")
        remote.configs.delete(config.config_id, reason="contract ended", if_match='"3"')
        with pytest.raises(NotFound):
            remote.configs.get(config.config_id)
        entry = served.harness.client.configs.audit("acme").items[-1]
        assert (entry.action, entry.reason) == ("DELETED", "contract ended")

    def test_start(self, served: ServedApi, remote: RemoteClient) -> None:
        """A start returns the ids of its runs; a second one conflicts."""
        config = created(served)
        (run_id,) = remote.configs.start(config.config_id, trigger_source="person").run_ids
        assert run_id.startswith("run_")
        with pytest.raises(Conflict, match="overlap is skip"):
            remote.configs.start(config.config_id)

    def test_bulk(self, served: ServedApi, remote: RemoteClient) -> None:
        """A bulk request has one outcome per item, in order."""
        wanted = [
            NewConfig(pipeline="nightly", cron="0 * * * *", customer="acme"),
            NewConfig(pipeline="nightly", customer="acme"),
            NewConfig(pipeline="nightly", interval=timedelta(hours=1), customer="b c"),
        ]
        checked = same(served, remote, "configs", "create_bulk", wanted, dry_run=True)
        assert isinstance(checked, list)
        assert [one.status for one in checked] == ["checked", "refused", "refused"]
        assert [one.field for one in checked] == [None, "schedule_cron", "customer_id"]
        made = remote.configs.create_bulk(wanted, with_configs=True)
        config = made[0].config
        assert config == remote.configs.get(str(made[0].config_id))
        assert made[1:] == checked[1:]
        assert remote.configs.create_bulk(wanted[:1])[0].config is None
        with pytest.raises(ApiError, match="create_many is not part of the API"):
            remote.configs.create_many(wanted)

    def test_pauses(self, served: ServedApi, remote: RemoteClient) -> None:
        """A pause is set and lifted once."""
        created(served)
        assert remote.pauses.pause("customer", "acme", reason="works").is_changed
        assert not remote.pauses.pause("customer", "acme").is_changed
        assert served.harness.client.pauses.list()[0].reason == "works"
        assert remote.pauses.resume("customer", "acme").is_changed
        assert not served.harness.client.pauses.list()

    def test_nulls(self, served: ServedApi) -> None:
        """Null means the default in a new config; it is refused where it never was one."""
        by = served.by("operator")
        fields = {"pipeline_template": "nightly", "schedule_cron": "0 * * * *"}
        nulls = dict.fromkeys([*NULL_IS_DEFAULT, "event_topic", "schedule_type", "reason"])
        made = by.post("/customers/acme/pipeline-configs", {**fields, **nulls})
        assert (made.status, made.json["priority"], made.json["overlap"]) == (201, 5, "skip")
        for name in ("is_active", "timezone"):
            refused = by.post("/customers/acme/pipeline-configs", {**fields, name: None})
            assert (refused.status, refused.json["errors"][0]["field"]) == (400, name)
        path = f"/pipeline-configs/{made.json['config_id']}"
        kept = by.call("PATCH", path, {"priority": None, "retry_config": None, "version": None})
        assert (kept.status, kept.json["priority"], kept.json["version"]) == (200, 5, 2)
        assert by.call("POST", f"{path}/start", b"null").status == 201

    def test_errors(self, served: ServedApi, remote: RemoteClient) -> None:
        """Errors have the class and the message of the local client."""
        near = served.harness.client
        cases: list[Callable[[UseCaseGroups], object]] = [
            lambda client: client.configs.create("acme", Config(pipeline="nightly")),
            lambda client: client.configs.create("acme", Config(pipeline="none", cron="0 * * * *")),
            lambda client: client.configs.create("a b", HOURLY),
            lambda client: client.configs.get("cfg_00000000"),
            lambda client: client.configs.get("nonsense"),
            lambda client: client.configs.list(customer="unknown"),
            lambda client: client.pauses.pause("customer", "unknown"),
            lambda client: client.pauses.pause("config", "run_00000000"),
            lambda client: client.pauses.pause("customer", "a b"),
        ]
        for call in cases:
            with pytest.raises((InvalidInput, NotFound)) as local:
                call(near)
            with pytest.raises(type(local.value)) as far:
                call(remote)
            assert str(far.value) == str(local.value)
