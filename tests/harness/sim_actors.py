"""The actors of the simulation: the real services, operators and external programs.

An actor is a process that takes a step when its time has come. A crash discards everything in its
memory and restarts it later. An error of the store makes it wait and retry, as the supervisor
would. Workers are in separate modules (`testing.simulate.workers`, `sim_outside`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from penstock.access.store.names import NameResolver
from penstock.audit.rows import OutboxMessage
from penstock.client import Client
from penstock.core.clock import MINUTE, SECOND, to_datetime
from penstock.core.errors import PenstockError, StoreError
from penstock.core.ids import decode, encode
from penstock.db.store import Store, Tx
from penstock.runs.admitter import Admitter
from penstock.runs.records import Submission
from penstock.runs.sweeper import Sweeper
from penstock.schedules.records import PauseScope
from penstock.schedules.scheduler import Scheduler, SchedulerOptions
from penstock.schedules.store.configs import config_list
from penstock.services.upkeep import OutboxPublisher, Pruner, Sealer
from penstock.testing.simulate.actors import Actor, ServiceActor, Stage
from penstock.testing.simulate.faults import Fault
from tests.harness.sim_limits import LIMITED, resize_shared_limit
from tests.kits.configs import change_of, config_of

LATE_US = MINUTE
CATCH_UP_RATE = 0.5


def services(stage: Stage, schedulers: int, sweepers: int, batch: int) -> list[Actor]:
    """Return all background services in replicas, with small batches to exercise their loops."""
    options = SchedulerOptions(batch=batch, late_us=LATE_US, catch_up_rate=CATCH_UP_RATE)
    cast: list[Actor] = [
        ServiceActor(stage, f"scheduler-{n}", 50 * SECOND, "scheduler",
                     lambda store: Scheduler(store, options, clock=stage.clock))
        for n in range(schedulers)
    ]  # fmt: skip
    cast += [
        ServiceActor(stage, f"sweeper-{n}", 60 * SECOND, "sweeper",
                     lambda store: Sweeper(store, jitter=stage.rng.random))
        for n in range(sweepers)
    ]  # fmt: skip
    cast += [
        ServiceActor(stage, f"admitter-{n}", 30 * SECOND, "admitter",
                     lambda store: Admitter(store, batch=batch))
        for n in range(2)
    ]  # fmt: skip

    def outbox_publisher(store: Store) -> OutboxPublisher:
        made = OutboxPublisher(store, batch=batch)
        made.subscribe(lambda tx, messages: _deliver(stage, tx, messages))
        return made

    cast += [
        ServiceActor(stage, "relay-0", 90 * SECOND, "relay", outbox_publisher),
        ServiceActor(stage, "relay-1", 240 * SECOND, "relay", outbox_publisher),
        ServiceActor(stage, "sealer-0", 200 * SECOND, "sealer", lambda s: Sealer(s, block=7)),
        ServiceActor(stage, "sealer-1", 300 * SECOND, "sealer", lambda s: Sealer(s, block=50)),
        ServiceActor(stage, "pruner-0", 600 * SECOND, "pruner", Pruner),
    ]
    return cast


def _deliver(stage: Stage, tx: Tx, messages: Sequence[OutboxMessage]) -> None:
    """Record the delivered messages once the transaction is durable."""
    ids = [message.outbox_id for message in messages if message.topic == "penstock.runs"]
    tx.after_commit(lambda: stage.delivered.extend(ids))


class Operator(Actor):
    """Operators and programs: submit, cancel, pause, resume, create, change, enable, retry."""

    kind = "operator"

    def __init__(self, stage: Stage, name: str, customers: Sequence[str]) -> None:
        super().__init__(stage, name, 40 * SECOND)
        self._customers = list(customers)
        self._unsure: list[tuple[Submission, str]] = []
        self._keys = 0
        names = NameResolver(
            self.store, stage.clock
        )  # cached names expire by the virtual clock as well
        self.client = Client(self.store, actor=name, names=names)

    def step(self) -> None:
        """Perform one action chosen by the seed; refusals are expected, lost responses repeated."""
        rng = self.stage.rng
        actions: list[tuple[int, Callable[[], None]]] = [
            (8, self._submit), (3, self._repeat), (2, self._cancel), (1, self._pause),
            (3, self._resume), (1, self._create), (2, self._change), (1, self._switch),
            (1, self._retry), (1, self._start_config), (1, self._resize), (1, self._share),
        ]  # fmt: skip
        action = rng.choices([a for _, a in actions], [w for w, _ in actions])[0]
        try:
            action()
        except StoreError:
            raise
        except PenstockError:
            return

    def resume_all(self) -> None:
        """Lift every pause, for recovery."""
        for pause in self.client.pauses.list():
            self.client.pauses.resume(pause.scope, pause.subject)

    def _submit(self) -> None:
        rng = self.stage.rng
        self._keys += 1
        later = self.stage.clock.now() + rng.randrange(600 * SECOND)
        wanted = Submission(
            pipeline=rng.choice(("single", "single", *LIMITED)),
            customer=rng.choice(self._customers),
            priority=rng.choice((5, 5, 5, 1, 9)),
            at=to_datetime(later) if rng.random() < 0.3 else None,
            expires_after=rng.randrange(1, 900) if rng.random() < 0.3 else None,
            ordering_key=f"key-{rng.randrange(2)}" if rng.random() < 0.3 else None,
        )
        key = f"{self.name}-{self._keys}"
        self._unsure.append((wanted, key))
        self._send(wanted, key)

    def _repeat(self) -> None:
        if self._unsure:
            self._send(*self._unsure[-1])

    def _send(self, wanted: Submission, key: str) -> None:
        """Submit with a key: repeated after a lost response, it must not run twice."""
        made = self.client.runs.submit(wanted, key=key)
        self.stage.accepted.append(decode("run", made.run_id))
        self._unsure = [pair for pair in self._unsure if pair[1] != key]
        if self.stage.fault_occurs(Fault.DUPLICATE, 0.1):
            assert self.client.runs.submit(wanted, key=key) == made, "a repeated key ran twice"

    def _cancel(self) -> None:
        if self.stage.accepted:
            run_id = self.stage.rng.choice(self.stage.accepted[-20:])
            self.client.runs.cancel(encode("run", run_id))

    def _retry(self) -> None:
        dead = self.client.dead_letters.list(kind="run", limit=10).items
        if dead:
            dead_letter = self.stage.rng.choice(dead)
            made = self.client.runs.retry(dead_letter.run_id or "")
            self.stage.accepted.append(decode("run", made.run_id))

    def _pause(self) -> None:
        scope, subject = self._scope()
        self.client.pauses.pause(scope, subject, reason="simulated")

    def _resume(self) -> None:
        pauses = self.client.pauses.list()
        if pauses:
            self.resume_all()

    def _scope(self) -> tuple[PauseScope, str | None]:
        rng = self.stage.rng
        scopes: tuple[PauseScope, ...] = ("all", "customer", "pipeline", "config")
        scope = rng.choice(scopes)
        if scope == "customer":
            return scope, rng.choice(self._customers)
        if scope == "pipeline":
            return scope, rng.choice(("single", "double", "outside", *LIMITED))
        if scope == "config":
            return scope, self._config()
        return scope, None

    def _config(self) -> str:
        found = self.client.store.read(lambda tx: config_list(tx, limit=50))
        return encode("cfg", self.stage.rng.choice(found).config_id if found else 1)

    def _create(self) -> None:
        rng = self.stage.rng
        self.client.configs.create(rng.choice(self._customers), config_of(new_config(rng)))

    def _change(self) -> None:
        rng = self.stage.rng
        change: dict[str, Any] = {"priority": rng.randint(1, 10)}
        if rng.random() < 0.5:
            change = cadence(rng)
        if rng.random() < 0.3:
            change["catch_up"] = rng.choice(("one", "all", "none"))
        self.client.configs.update(self._config(), change_of(change))

    def _switch(self) -> None:
        config_id = self._config()
        if self.client.configs.get(config_id).is_active:
            self.client.configs.disable(config_id, reason="simulated")
        else:
            self.client.configs.enable(config_id, reason="simulated")

    def _resize(self) -> None:
        capacity = self.stage.rng.randint(1, 4)
        self.client.store.write(lambda tx: resize_shared_limit(tx, capacity))

    def _share(self) -> None:
        rng = self.stage.rng
        customer = rng.choice(self._customers)
        if rng.random() < 0.5:
            self.client.customers.set(customer, weight=rng.choice((0.5, 1, 3)))
        else:
            self.client.customers.set(customer, concurrency=rng.choice((None, 1, 2, 3)))

    def _start_config(self) -> None:
        started = self.client.configs.start(self._config())
        self.stage.accepted += [decode("run", run_id) for run_id in started.run_ids]


def cadence(rng: random.Random) -> dict[str, Any]:
    """Return a cadence as API fields: an interval, or a cron expression in some zone."""
    if rng.random() < 0.6:
        minutes = rng.choice((2, 3, 5, 7, 11, 30))
        return {"schedule_type": "INTERVAL", "schedule_interval_minutes": minutes}
    return {
        "schedule_type": "CRON",
        "schedule_cron": rng.choice(("*/5 * * * *", "*/7 * * * *", "3 * * * *", "30 2 * * *")),
        "timezone": rng.choice(("UTC", "America/New_York", "Australia/Lord_Howe")),
    }


def new_config(rng: random.Random) -> dict[str, Any]:
    """Return a config of any kind as API fields."""
    overlap = rng.choice(("allow", "skip", "skip", "queue"))
    catch_up = rng.choice(("one", "one", "all", "none"))
    ordered = overlap == "queue" or catch_up == "all"
    pipeline = "single" if ordered else rng.choice(("single", "double", "outside", *LIMITED))
    given: dict[str, Any] = {
        "pipeline_template": pipeline,
        "overlap": overlap,
        "catch_up": catch_up,
        "catch_up_window_minutes": rng.choice((20, 60)),
        "priority": rng.choice((5, 5, 2, 8)),
        "jitter_seconds": rng.choice((0, 0, 45)),
        "max_execution_duration_minutes": rng.choice((3, 10)),
        **cadence(rng),
    }
    if rng.random() < 0.5:
        given["retry_config"] = {
            "max_attempts": rng.choice((1, 2, 4)),
            "base_delay_minutes": rng.choice((0, 1, 2)),
        }
    return given
