"""Configs and the audit chain of every change to them."""

import threading
from functools import partial

import pytest

from penstock.access.store import registry
from penstock.core.clock import DAY, HOUR, MINUTE
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx
from penstock.runs.store import admission
from penstock.schedules.cadence import cron, every
from penstock.schedules.store import configs, schedule
from penstock.schedules.store.configs import Change
from tests.conftest import OpenStore
from tests.kits.world import World, config_row, definition


def settings(world: World, config_id: int, **fields: object) -> dict[str, object]:
    """Return the parameters of `config_update`, from the current config."""
    config = world.read(lambda tx: configs.config_get(tx, config_id))
    assert config is not None
    names = (
        "config_id version provider domain schedule_type timezone event_topic event_filter "
        "event_mapping parameters retry priority max_execution_us sla_us expires_us catch_up "
        "catch_up_window_us overlap "
        "jitter_us offset_us is_active inactive_reason"
    )
    given = {name: getattr(config, name) for name in names.split()}
    return {**given, "cadence": None, **fields}


class TestConfigs:
    """Create, read, update, delete, list."""

    def test_insert_many_in_order(self, world: World) -> None:
        """Ids are returned in batch order, ascending, and are never reused."""
        rows = [
            config_row(world.customer, world.pipeline, None, parameters=f'{{"i":{i}}}')
            for i in range(300)
        ]
        ids = world.write(lambda tx: configs.config_insert_many(tx, rows))
        assert ids == sorted(set(ids))
        got = world.sql("SELECT config_id, parameters FROM configs ORDER BY config_id")
        assert got == [(i, f'{{"i":{n}}}') for n, i in enumerate(ids)]
        more = world.write(lambda tx: configs.config_insert_many(tx, rows[:2]))
        assert min(more) > max(ids)

    def test_as_stored(self, world: World) -> None:
        """A config reads back as it was written, with names, cadence, schedule and health."""
        config_id = world.config(cadence=cron("0 2 * * *", "Europe/Berlin"), timezone="X")
        config = world.read(lambda tx: configs.config_get(tx, config_id))
        assert config is not None
        assert (config.customer_id, config.pipeline, config.schedule_cron) == (
            "acme", "etl", "0 2 * * *",
        )  # fmt: skip
        assert (config.interval_us, config.version, config.is_active) == (None, 1, True)
        assert (config.created_at, config.updated_at) == (world.clock.now(),) * 2
        assert config.next_run_time == world.clock.now() + HOUR
        assert (config.consecutive_failures, config.is_paused, config.deleted_at) == (0, 0, None)
        interval = world.config(cadence=every(DAY), schedule_type="INTERVAL")
        config = world.read(lambda tx: configs.config_get(tx, interval))
        assert config is not None
        assert (config.schedule_cron, config.interval_us) == (None, DAY)
        world.write(lambda tx: admission.pause_put(tx, "config", interval, "op", ""))
        config = world.read(lambda tx: configs.config_get(tx, interval))
        assert config is not None
        assert config.is_paused

    def test_config_of_another_customer(self, world: World) -> None:
        """A config read with another customer's filter is not found."""
        (beta,) = world.customers("beta")
        config_id = world.config()
        assert world.read(lambda tx: configs.config_get(tx, config_id, CustomerKey(beta))) is None
        assert world.read(lambda tx: configs.config_get(tx, config_id, CustomerKey(world.customer)))
        assert world.read(lambda tx: configs.config_get(tx, 424_242)) is None

    def test_optimistic_version(self, world: World) -> None:
        """An update on a stale version changes nothing; the current one increments it."""
        config_id = world.config()
        first = settings(world, config_id, priority=9, parameters='{"x":1}')
        world.clock.advance(MINUTE)
        assert world.write(lambda tx: configs.config_update(tx, first)) == 2
        before = world.dump("configs")
        assert world.write(lambda tx: configs.config_update(tx, first)) is None
        assert world.dump("configs") == before
        config = world.read(lambda tx: configs.config_get(tx, config_id))
        assert config is not None
        assert (config.priority, config.parameters, config.version) == (9, '{"x":1}', 2)
        assert config.updated_at == world.clock.now() > config.created_at

    def test_soft_delete(self, world: World) -> None:
        """A deleted config can still be read, is in no list, and cannot be changed or deleted."""
        config_id = world.config()
        stale = settings(world, config_id, version=2)
        assert world.write(lambda tx: configs.config_delete(tx, config_id))
        assert not world.write(lambda tx: configs.config_delete(tx, config_id))
        assert world.write(lambda tx: configs.config_update(tx, stale)) is None
        config = world.read(lambda tx: configs.config_get(tx, config_id))
        assert config is not None
        assert (config.deleted_at, config.is_active) == (world.clock.now(), False)
        assert world.read(configs.config_list) == []

    def test_list_pages_and_filters(self, world: World) -> None:
        """Keyset paging returns every config once, even while earlier pages are being deleted."""
        (beta,) = world.customers("beta")
        ids = world.config_many(23, cadence=None)
        (foreign,) = world.write(
            lambda tx: configs.config_insert_many(
                tx, [config_row(beta, world.pipeline, None, is_active=False)]
            )
        )
        seen: list[int] = []
        after = 0
        while page := world.read(partial(configs.config_list, after=after, limit=5)):
            seen += [config.config_id for config in page]
            after = seen[-1]
            for config_id in seen[-2:]:
                world.write(partial(configs.config_delete, config_id=config_id))
        assert seen == [*ids, foreign]
        kept = [i for i in ids if i not in self.deleted(world)]

        def listed(**fields: object) -> list[int]:
            found = world.read(lambda tx: configs.config_list(tx, **fields))  # type: ignore[arg-type]
            return [config.config_id for config in found]

        assert listed(customer_key=world.customer) == kept
        assert listed(customer_key=beta, is_active=True) == []
        assert listed(is_active=True) == kept
        assert listed(pipeline_key=world.pipeline + 1) == []

    def deleted(self, world: World) -> set[int]:
        """Return the ids of deleted configs."""
        rows = world.sql("SELECT config_id FROM configs WHERE deleted_at IS NOT NULL")
        return {row[0] for row in rows}

    def test_health_reset(self, world: World) -> None:
        """Enabling a config again resets its failures; a config without health is accepted."""
        config_id = world.config(cadence=None)
        world.write(lambda tx: configs.config_health_reset(tx, config_id))
        for occurrence in (1, 2):
            start = {"occurrence_time": occurrence, "trigger_source": "scheduler"}
            world.fail(world.running(config_id=config_id, **start), is_dead=True)
        config = world.read(lambda tx: configs.config_get(tx, config_id))
        assert config is not None
        assert (config.consecutive_failures, config.last_run_status) == (2, "FAILED")
        world.write(lambda tx: configs.config_health_reset(tx, config_id))
        config = world.read(lambda tx: configs.config_get(tx, config_id))
        assert config is not None
        assert config.consecutive_failures == 0

    def test_deactivate(self, world: World) -> None:
        """Disabling a config records the reason and counts as a change, once."""
        config_id = world.config()
        for _ in range(2):
            world.write(lambda tx: configs.config_deactivate(tx, config_id, "5 failures"))
        config = world.read(lambda tx: configs.config_get(tx, config_id))
        assert config is not None
        assert (config.is_active, config.inactive_reason, config.version) == (
            False, "5 failures", 2,
        )  # fmt: skip

    def test_offsets(self, world: World) -> None:
        """Each config keeps its own offset within its jitter."""
        one, two = world.config_many(2)
        world.write(lambda tx: configs.config_set_offset_many(tx, [(two, 7), (one, 5)]))
        rows = world.sql("SELECT offset_us FROM configs ORDER BY config_id")
        assert rows == [(5,), (7,)]

    @pytest.mark.parametrize(
        "fields",
        [{"catch_up": "some"}, {"overlap": "x"}, {"priority": 0}, {"schedule_type": "NEVER"}],
    )
    def test_the_schema_refuses_invalid_values(
        self, world: World, fields: dict[str, object]
    ) -> None:
        """An invalid value is refused by the database and nothing is written."""
        with pytest.raises(Exception, match=r"(?i)check"):
            world.config(**fields)
        assert world.value("SELECT count(*) FROM configs") == 0
        assert world.value("SELECT count(*) FROM schedule") == 0

    def test_next_run_time_is_after_evaluated_to(self, world: World) -> None:
        """A next_run_time up to evaluated_to is refused: no occurrence is evaluated twice."""
        config_id = world.config()
        params = {
            "config_id": config_id, "cadence": 1, "next_run_time": 5, "evaluated_to": 4,
            "catch_up": "one", "window_us": DAY,
        }  # fmt: skip
        with pytest.raises(Exception, match=r"(?i)check"):
            world.write(lambda tx: schedule.schedule_put(tx, params))


class TestRegistry:
    """Names and numeric keys."""

    def test_customers(self, world: World) -> None:
        """A customer keeps its key, however often and in whatever batch it is named."""
        one = world.write(lambda tx: registry.customer_ensure_many(tx, ["x", "y", "x"]))
        two = world.write(lambda tx: registry.customer_ensure_many(tx, ["y", "z"]))
        assert one["y"] == two["y"]
        assert set(one) == {"x", "y"}
        assert world.read(lambda tx: registry.customer_get(tx, "z")) == two["z"]
        assert world.read(lambda tx: registry.customer_get(tx, "unknown")) is None
        assert world.write(lambda tx: registry.customer_ensure_many(tx, [])) == {}

    def test_hostile_names(self, world: World) -> None:
        """Names are data: quotes, percent signs, markup and other alphabets are preserved."""
        names = [
            "a'; DROP TABLE runs; --",
            "100%s %(x)s",
            '"',
            "日本語",
            "x" * 5000,
            "{{now}}",
            ":a",
        ]
        numbers = world.write(lambda tx: registry.customer_ensure_many(tx, names))
        assert len(set(numbers.values())) == len(names)
        for name, number in numbers.items():
            assert world.read(partial(registry.customer_get, customer_id=name)) == number

    def test_pipelines(self, world: World) -> None:
        """A changed declaration keeps keys and retires removed processors."""
        number = world.pipeline_add("p", ["a", "b"])
        before = world.processors("p")
        assert world.pipeline_add("p", ["b", "c"]) == number
        rows = {r.name: r for r in world.read(registry.processor_list) if r.pipeline == "p"}
        assert [rows[n].is_current for n in "abc"] == [False, True, True]
        assert rows["b"].processor_key in before
        text = definition("p", ["b", "c"])
        stored = (f"d{len(text)}", text, False)
        assert world.read(lambda tx: registry.pipeline_get(tx, "p")) == (number, *stored)
        assert world.read(lambda tx: registry.pipeline_get(tx, "q")) is None
        assert (number, "p", *stored, None) in world.read(registry.pipeline_list)


class TestAudit:
    """Every change is an entry of its customer's chain."""

    def change(self, world: World, action: str = "UPDATED", **fields: object) -> Change:
        """Build a change of acme's."""
        values = {"customer_key": world.customer, "action": action, "config_id": 1, "actor": "ann"}
        return Change(**{**values, **fields})  # type: ignore[arg-type]

    def append(self, world: World, *changes: Change) -> None:
        """Append in one transaction."""
        world.write(lambda tx: configs.audit_append(tx, changes))

    def test_chain(self, world: World) -> None:
        """Entries are numbered without gaps, each with the hash of the previous one."""
        (beta,) = world.customers("beta")
        self.append(world, self.change(world, old={"b": 1, "a": 2}, new={"a": 3}, reason="why"))
        self.append(
            world,
            self.change(world, config_id=2),
            self.change(world, customer_key=beta),
            self.change(world, config_id=None),
        )
        rows = world.read(lambda tx: configs.audit_list(tx, CustomerKey(world.customer)))
        assert [row.n for row in rows] == [1, 2, 3]
        assert rows[0].previous == ""
        assert [row.previous for row in rows[1:]] == [row.hash for row in rows[:-1]]
        assert (rows[0].old_values, rows[0].new_values) == ('{"a":2,"b":1}', '{"a":3}')
        assert (rows[0].actor, rows[0].reason, rows[0].at) == ("ann", "why", world.clock.now())
        assert self.verify(world) == (3, None)
        assert self.verify(world, beta) == (1, None)
        of_two = world.read(
            lambda tx: configs.audit_list(tx, CustomerKey(world.customer), config_id=2)
        )
        assert [row.n for row in of_two] == [2]
        page = world.read(
            lambda tx: configs.audit_list(tx, CustomerKey(world.customer), after=1, limit=1)
        )
        assert [row.n for row in page] == [2]

    def verify(self, world: World, customer: int | None = None) -> tuple[int, str | None]:
        """Verify a chain in a read transaction, as an auditor would."""
        return world.read(
            lambda tx: configs.audit_verify(tx, CustomerKey(customer or world.customer))
        )

    def test_empty_chain(self, world: World) -> None:
        """A customer without changes has a valid chain without entries."""
        assert self.verify(world) == (0, None)

    @pytest.mark.parametrize(
        ("tamper", "problem"),
        [
            ("UPDATE audit SET actor = 'eve' WHERE n = 3", "link 3 was changed"),
            ("UPDATE audit SET new_values = '{}' WHERE n = 1", "link 1 was changed"),
            ("UPDATE audit SET at = at + 1 WHERE n = 5", "link 5 was changed"),
            ("UPDATE audit SET hash = 'x' WHERE n = 2", "link 2 was changed"),
            ("DELETE FROM audit WHERE n = 2", "link 2 is missing"),
            ("DELETE FROM audit WHERE n = 5", "newest links are missing"),
            ("DELETE FROM audit", "newest links are missing"),
            ("UPDATE customers SET audit_n = 4", "newest links are missing"),
            ("UPDATE audit SET customer = 99 WHERE n = 4", "link 4 is missing"),
        ],
    )
    def test_tampering_is_detected(self, world: World, tamper: str, problem: str) -> None:
        """A changed, missing or truncated entry is reported."""
        for _ in range(5):
            self.append(world, self.change(world))
        world.sql(tamper)
        _, found = self.verify(world)
        assert found is not None
        assert problem in found

    def test_rollback(self, world: World) -> None:
        """A change that rolls back leaves no entry; the chain continues without a gap."""
        self.append(world, self.change(world))

        def body(tx: Tx) -> None:
            configs.audit_append(tx, [self.change(world)])
            raise RuntimeError("no")

        with pytest.raises(RuntimeError):
            world.write(body)
        self.append(world, self.change(world))
        assert self.verify(world) == (2, None)

    def test_concurrent_appends(self, world: World, open_store: OpenStore) -> None:
        """Writers on several connections append to one customer's chain without fork or gap."""
        errors: list[BaseException] = []
        worlds = [World(open_store(), world.clock) for _ in range(3)]

        def appends(one: World) -> None:
            try:
                for _ in range(15):
                    self.append(one, self.change(world), self.change(world))
                    links, problem = self.verify(one)
                    assert problem is None, (links, problem)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=appends, args=(one,)) for one in worlds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert errors == []
        assert self.verify(world) == (90, None)
