"""Every use case of a tenant's client, with two customers, on every kind of store.

Each use case is listed here with what acme's client gets for bravo's objects: the same as for
objects that do not exist, a refusal, or only its own. A new use case fails until it is listed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, cast

import pytest

from penstock.access.api_keys import Role
from penstock.client import Client
from penstock.core.clock import DAY, HOUR, to_datetime
from penstock.core.errors import DuplicateRequest, Forbidden, NotFound, PenstockError
from penstock.core.ids import decode, encode
from penstock.core.naming import CustomerKey
from penstock.db.postgres.store import PostgresStore
from penstock.db.store import Store
from penstock.remote.problems import error_from_code
from penstock.runs.external.client.holder import (
    CompletionItem,
    CompletionResult,
    ExternalWorker,
    FailureReport,
    Heartbeat,
)
from penstock.runs.external.records import (
    ClaimRequest,
    CompletionBatch,
    CompletionEntry,
    CompletionOutcomes,
    HeartbeatBatch,
    HeartbeatItem,
    HeartbeatOutcomes,
    RunCompletion,
    RunFailure,
    RunHeartbeat,
    RunHolder,
    RunStart,
)
from penstock.runs.records import RunRef, Submission
from penstock.runs.rows import HeldRun
from penstock.schedules.records import BulkOutcome, Config, ConfigChange, NewConfig
from penstock.testing.clock import VirtualClock
from tests.kits.configs import config_of, new_configs
from tests.kits.dump import raw, tables
from tests.tenancy.alert_cases import ALERT_FORBIDDEN, ALERT_FOREIGN
from tests.tenancy.bus_cases import BUS_FOREIGN, BUS_OWN, SYSTEM_LISTS
from tests.tenancy.flow_cases import (
    FOREIGN_FLOWS,
    OWN_FLOWS,
    flow_words,
)
from tests.tenancy.run_cases import RUN_FOREIGN
from tests.tenancy.tenants import Tenants, Things

KINDS = (
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.postgres),
    pytest.param("plain", marks=pytest.mark.postgres),
)
CRON = {"pipeline_template": "nightly", "schedule_cron": "0 * * * *"}
W = ExternalWorker("w", "k")
Call = Callable[[Client, Things], Any]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of store."""
    return str(request.param)


@pytest.fixture
def engine(kind: str) -> str:
    """The engine of that kind."""
    return "sqlite" if kind == "sqlite" else "postgres"


@pytest.fixture
def tenants(kind: str, request: pytest.FixtureRequest, clock: VirtualClock) -> Iterator[Tenants]:
    """Two customers with equal data."""
    if kind != "plain":
        yield Tenants(request.getfixturevalue("store"), clock)
        return
    store = PostgresStore(request.getfixturevalue("pg_plain_dsn"), clock)
    yield Tenants(store, clock)
    store.close()


def only(outcomes: Sequence[Any]) -> Any:
    """Return the only outcome of a batch, or raise it if it is an error."""
    (outcome,) = outcomes
    if isinstance(outcome, PenstockError):
        raise outcome
    return outcome


def accepted(batch: HeartbeatOutcomes | CompletionOutcomes) -> list[str]:
    """Return the runs of a batch whose item was accepted; a refusal says that there is no run."""
    refused = [one.problem.code for one in batch.outcomes if one.problem is not None]
    assert set(refused) <= {"not_found"}
    return [one.run_id for one in batch.outcomes if one.problem is None]


def run_text(things: Things) -> str:
    """Return the public id of the run that a worker holds."""
    return encode("run", things.held.run.run_id)


def cfg(things: Things) -> str:
    """Return the public id of the config."""
    return encode("cfg", things.config_id)


def run(number: int) -> str:
    """Return the public id of a run."""
    return encode("run", number)


def number(ref: RunRef) -> int:
    """Return the database id of a run."""
    return decode("run", ref.run_id)


def wanted(*customers: str) -> list[NewConfig]:
    """Return a config for each customer."""
    return new_configs([(customer, CRON) for customer in customers])


def refused(outcomes: Sequence[BulkOutcome]) -> None:
    """Raise the error of the only outcome."""
    (outcome,) = outcomes
    assert outcome.code is not None, outcome
    raise error_from_code(outcome.code, outcome.detail or "", {})


FOREIGN: dict[str, list[Call]] = {
    "configs.create": [lambda c, t: c.configs.create(t.customer_id, config_of(CRON))],
    "configs.create_many": [lambda c, t: c.configs.create_many(wanted("acme", t.customer_id))],
    "configs.create_bulk": [lambda c, t: refused(c.configs.create_bulk(wanted(t.customer_id)))],
    "configs.create_part": [lambda c, t: refused(c.configs.create_part(wanted(t.customer_id)))],
    "configs.get": [lambda c, t: c.configs.get(cfg(t))],
    "configs.list": [lambda c, t: c.configs.list(customer=t.customer_id)],
    "configs.list_of": [lambda c, t: c.configs.list_of(t.customer_id)],
    "configs.update": [
        lambda c, t: c.configs.update(cfg(t), ConfigChange(priority=9)),
        lambda c, t: c.configs.update(cfg(t), ConfigChange(priority=9), version=77),
    ],
    "configs.enable": [lambda c, t: c.configs.enable(cfg(t))],
    "configs.disable": [lambda c, t: c.configs.disable(cfg(t))],
    "configs.delete": [lambda c, t: c.configs.delete(cfg(t))],
    "configs.start": [lambda c, t: c.configs.start(cfg(t))],
    "configs.preview": [lambda c, t: c.configs.preview(cfg(t))],
    "configs.audit": [lambda c, t: c.configs.audit(t.customer_id)],
    "configs.audit_of": [lambda c, t: c.configs.audit_of(cfg(t))],
    "configs.occurrences": [lambda c, t: c.configs.occurrences(cfg(t))],
    "customers.get": [lambda c, t: c.customers.get(t.customer_id)],
    **RUN_FOREIGN,
    **BUS_FOREIGN,
    "pauses.pause": [
        lambda c, t: c.pauses.pause("config", cfg(t)),
        lambda c, t: c.pauses.pause("customer", t.customer_id),
    ],
    "pauses.resume": [
        lambda c, t: c.pauses.resume("config", cfg(t)),
        lambda c, t: c.pauses.resume("customer", t.customer_id),
    ],
    "views.metrics": [lambda c, t: c.views.metrics(t.customer_id)],
    **ALERT_FOREIGN,
    "work.claim_by_id": [
        lambda c, t: c.work.claim_by_id(W, t.waiting),
        lambda c, t: c.work.claim_by_id(W, t.held.run.run_id),
    ],
    "work.start": [lambda c, t: c.work.start(t.held.run.run_id, W, token=t.held.run.token)],
    "work.heartbeat": [lambda c, t: c.work.heartbeat(t.held.run.run_id, W, token=t.held.run.token)],
    "work.heartbeat_many": [
        lambda c, t: only(
            c.work.heartbeat_many(W, [Heartbeat(run_id=t.held.run.run_id, token=t.held.run.token)])
        )
    ],
    "work.complete": [
        lambda c, t: c.work.complete(t.held.run.run_id, W, token=t.held.run.token),
        lambda c, t: c.work.complete(t.ended, W),
    ],
    "work.complete_many": [
        lambda c, t: only(
            c.work.complete_many(
                W, [CompletionItem(run_id=t.held.run.run_id, token=t.held.run.token)]
            )
        )
    ],
    "work.fail": [
        lambda c, t: c.work.fail(
            t.held.run.run_id, W, FailureReport(error_type="TIMEOUT"), token=t.held.run.token
        )
    ],
    "work.cancelled": [lambda c, t: c.work.cancelled(t.held.run.run_id, W, token=t.held.run.token)],
    "workers.claim_by_id": [lambda c, t: c.workers.claim_by_id(run_text(t), "w")],
    "workers.start": [
        lambda c, t: c.workers.start(run_text(t), RunStart(fencing_token=t.held.run.token))
    ],
    "workers.heartbeat": [
        lambda c, t: c.workers.heartbeat(run_text(t), RunHeartbeat(fencing_token=t.held.run.token))
    ],
    "workers.complete": [
        lambda c, t: c.workers.complete(run_text(t), RunCompletion(fencing_token=t.held.run.token))
    ],
    "workers.fail": [
        lambda c, t: c.workers.fail(
            run_text(t), RunFailure(error_type="TIMEOUT", fencing_token=t.held.run.token)
        )
    ],
    "workers.cancelled": [
        lambda c, t: c.workers.cancelled(run_text(t), RunHolder(fencing_token=t.held.run.token))
    ],
    **FOREIGN_FLOWS,
}
"""With another customer's objects: NotFound, in the same words as for objects that do not exist."""

FORBIDDEN: dict[str, list[Callable[[Client], Any]]] = {
    "pauses.pause": [
        lambda c: c.pauses.pause("all", None), lambda c: c.pauses.pause("pipeline", "nightly")
    ],
    "pauses.resume": [
        lambda c: c.pauses.resume("all", None), lambda c: c.pauses.resume("pipeline", "nightly")
    ],
    "schedules.jitter": [lambda c: c.schedules.jitter()],
    "work.execute_batch": [lambda c: c.work.execute_batch([])],
    **ALERT_FORBIDDEN,
    "views.sessions": [lambda c: c.views.sessions()], "views.sizes": [lambda c: c.views.sizes()],
    "views.system": [lambda c: c.views.system()],
    "views.seals": [lambda c: c.views.seals()],
    "views.check_write": [lambda c: c.views.check_write()],
    "views.verify_journal": [lambda c: c.views.verify_journal()],
    "views.verify": [lambda c: c.views.verify()], "views.outbox": [lambda c: c.views.outbox()],
    "views.compare_heads": [lambda c: c.views.compare_heads([])],
    "detections.freshness": [lambda c: c.detections.freshness()],
    "views.tenant_isolation": [lambda c: c.views.tenant_isolation()],
    "subscriptions.backlogs": [lambda c: c.subscriptions.backlogs()],
    "limits.list": [lambda c: c.limits.list()], "limits.get": [lambda c: c.limits.get("l")],
    "limits.recent_waits": [lambda c: c.limits.recent_waits()],
    "limits.declare": [lambda c: c.limits.declare("l", capacity=1)],
    "limits.release": [lambda c: c.limits.release("lease_5m7t0c2d", "x")],
    "customers.set": [lambda c: c.customers.set("acme", weight=9)],
    "keys.create": [lambda c: c.keys.create("k", Role.VIEWER)],
    "keys.get": [lambda c: c.keys.get("key_5m7t0c2d")], "keys.list": [lambda c: c.keys.list()],
    "keys.rotate": [lambda c: c.keys.rotate("key_5m7t0c2d")],
    "keys.revoke": [lambda c: c.keys.revoke("key_5m7t0c2d")],
    "keys.server_secret": [lambda c: c.keys.server_secret("x")],
    "logins.open": [lambda c: c.logins.open("x")], "logins.find": [lambda c: c.logins.find("x")],
    "logins.open_person": [lambda c: c.logins.open_person("a@b.example", Role.VIEWER)],
    "logins.list_own": [lambda c: c.logins.list_own("x")],
    "logins.close": [lambda c: c.logins.close("x")],
    "logins.close_own": [lambda c: c.logins.close_own("x", "y")],
}  # fmt: skip
"""Use cases of the whole installation."""

SUMS = ("views.overview", "views.today", "runs.counts")
"""Reads of an installation that use sums of all customers, which the database denies a tenant."""

OWN: dict[str, Callable[[Client], Any]] = {
    "configs.list": lambda c: c.configs.list().items,
    "runs.list": lambda c: c.runs.list().items,
    "runs.counts": lambda c: c.runs.counts(),
    **BUS_OWN,
    "pauses.list": lambda c: c.pauses.list(),
    "views.customers": lambda c: c.views.customers(sort="trouble").items,
    "exports.page": lambda c: c.exports.page("runs").rows,
    "schedules.load": lambda c: ["start"] * c.schedules.load().starts,
    "views.overview": lambda c: c.views.overview(),
    "alerts.list": lambda c: c.alerts.list().items,
    "alerts.silences": lambda c: c.alerts.silences().items,
    **OWN_FLOWS,
}
"""Lists without a customer: the tenant's own, which resemble the other's."""

NOTHING: dict[str, Call] = {
    "configs.list": lambda c, t: (
        c.configs.list(after=encode("cfg", t.config_id - 1), limit=1).items
    ),
    "runs.list": lambda c, t: c.runs.list(config_id=cfg(t)).items,
    "work.claim": lambda c, t: c.work.claim(W, customer=t.customer_id),
    "workers.claim": lambda c, _: c.workers.claim(ClaimRequest(worker_id="w")).claimed_runs,
    "workers.heartbeat_many": lambda c, t: accepted(
        c.workers.heartbeat_many(
            HeartbeatBatch(
                heartbeats=[HeartbeatItem(run_id=run_text(t), fencing_token=t.held.run.token)]
            )
        )
    ),
    "workers.complete_many": lambda c, t: accepted(
        c.workers.complete_many(
            CompletionBatch(
                completions=[CompletionEntry(run_id=run_text(t), fencing_token=t.held.run.token)]
            )
        )
    ),
}
"""With another customer's objects: empty, as with objects that do not exist."""

ANYBODYS = {"configs.check", "configs.preview_of", "views.now", "views.ping", "views.pipelines",
            "views.pipeline", "views.processor_paths", "keys.authenticate"}  # fmt: skip
"""Use cases without customers' objects."""


GHOST = Things("ghost", 10**6, 10**9, 10**9, None, 10**9, 10**9)  # type: ignore[arg-type]


def ghost_of(things: Things) -> Things:
    """Return the same objects with ids that do not exist."""
    blank = HeldRun._make([0] * len(HeldRun._fields))
    claimed = things.held._replace(run=blank._replace(run_id=10**9, token=things.held.run.token))
    return GHOST._replace(held=claimed)


def anonymous(error: PenstockError, things: Things) -> tuple[type, str, str]:
    """Return an error without the ids it is about."""
    text = f"{error.message} {sorted(error.detail.items())}"
    runs = (things.waiting, things.held.run.run_id, things.ended, things.dead)
    ids = [*(encode("run", run) for run in runs), *flow_words(things)]
    ids += [encode("alert", things.alert), encode("sil", things.silence)]
    ids += [encode("dl", things.dead_letter), f"message {things.message}"]
    ids.append(f"'{things.message}'")
    for word in (things.customer_id, cfg(things), *ids):
        text = text.replace(word, "ID")
    return type(error), error.code, text


def refusal(name: str, call: Call, client: Client, things: Things) -> PenstockError:
    """Return the error of a call, which must fail."""
    try:
        result = call(client, things)
    except PenstockError as error:
        return error
    raise AssertionError(f"{name} answered {result!r:.200}")


def rows_of(store: Store, things: Things) -> dict[str, list[Any]]:
    """Return everything stored about a customer, table by table."""
    found, run_id, config_id = {}, things.held.run.run_id, things.config_id
    keys = {"customer": {things.number}, "config_id": {config_id}, "subject": {config_id, run_id}}
    keys["run_id"] = {run_id, things.waiting}
    for table, columns in _all_columns(cast(Any, store)).items():
        name = next((name for name in keys if name in columns), None)
        if name is not None:
            index, values = columns.index(name), keys[name]
            rows = raw(store, f'SELECT * FROM "{table}"')
            found[table] = sorted(map(str, (row for row in rows if row[index] in values)))
    return found


@lru_cache(1)
def _all_columns(store: Any) -> dict[str, list[str]]:
    return {table: _columns(store, table) for table in tables(store)}


def _columns(store: Store, table: str) -> list[str]:
    if store.capabilities.engine == "postgres":
        text = (
            "SELECT attname::text FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped "
            f"AND attrelid = '{table}'::regclass ORDER BY attnum"
        )
        return [row[0] for row in raw(store, text)]
    return [row[1] for row in raw(store, f'PRAGMA table_info("{table}")')]


def test_every_use_case_is_listed(store: Store) -> None:
    """A use case that is not in one of the lists above fails here."""
    client = Client(store)
    found = {
        f"{subject}.{name}"
        for subject, group in inspect.getmembers(type(client))
        if isinstance(group, cached_property)
        for name in dir(type(getattr(client, subject)))
        if not name.startswith("_")
    }
    assert found == {*FOREIGN, *FORBIDDEN, *OWN, *NOTHING, *ANYBODYS}


def test_objects_of_another_customer(tenants: Tenants) -> None:
    """Another customer's objects give the same errors as missing ones, and stay unchanged."""
    bound, other, ghost = tenants.scoped(tenants.acme), tenants.bravo, ghost_of(tenants.bravo)
    before = rows_of(tenants.store, other)
    own = tenants.harness.counts()
    for name, calls in FOREIGN.items():
        for call in calls:
            foreign, missing = refusal(name, call, bound, other), refusal(name, call, bound, ghost)
            assert isinstance(foreign, NotFound), name
            assert anonymous(foreign, other) == anonymous(missing, ghost), name
    for name, empty in NOTHING.items():
        assert empty(bound, other) == empty(bound, ghost) == [], name
    assert rows_of(tenants.store, other) == before
    assert tenants.harness.counts() == own


def test_use_cases_of_the_installation(tenants: Tenants) -> None:
    """Use cases of the whole installation are refused and have no effect."""
    bound = tenants.scoped(tenants.acme)
    before = tenants.harness.counts()
    for name, calls in FORBIDDEN.items():
        for call in calls:
            with pytest.raises(Forbidden):
                call(bound)
            assert tenants.harness.counts() == before, name
    with pytest.raises(Forbidden):
        bound.register([])


def test_own_lists(tenants: Tenants) -> None:
    """Lists hold the caller's own rows; both customers have equal data, so equal lengths."""
    for name, call in OWN.items():
        acme, bravo = (call(tenants.scoped(t)) for t in (tenants.acme, tenants.bravo))
        assert "bravo" not in str(acme), name
        assert "acme" not in str(bravo), name
        if isinstance(acme, list):
            assert acme, name
            is_bounded = name in ("runs.list", "views.last_failures", *SYSTEM_LISTS)
            assert len(acme) == len(bravo), name
            assert is_bounded or len(acme) < len(call(tenants.client)), name
    total, own = tenants.client.views.overview(), tenants.scoped(tenants.acme).views.overview()
    assert (own.running_runs, total.running_runs) == (1, 2)
    assert (own.completed_today, total.completed_today) == (3, 6)
    assert (own.failed_today, total.failed_today) == (4, 8)


def test_a_claim_takes_own_runs_only(tenants: Tenants) -> None:
    """A tenant's worker gets only its customer's runs."""
    for who in ("acme", "bravo", "bravo"):
        tenants.client.runs.submit(Submission(pipeline="outside", customer=who))
    claimed = tenants.scoped(tenants.acme).work.claim(W, 10)
    assert [c.run.customer_id for c in claimed] == ["acme"]
    assert len(tenants.client.work.claim(W, 10)) == 2


@pytest.mark.postgres
@pytest.mark.parametrize("kind", ["postgres", pytest.param("plain", marks=pytest.mark.slow)])
def test_row_level_security_alone(tenants: Tenants) -> None:
    """Without the client's filters, the database still isolates bravo's objects."""
    unbound = Client(tenants.store.scoped(CustomerKey(tenants.acme.number)), actor="unfiltered")
    before = rows_of(tenants.store, tenants.bravo)
    for name, calls in FOREIGN.items():
        if name == "previews.trigger":
            continue  # a customer it cannot see looks like a new one
        for call in calls:
            refusal(name, call, unbound, tenants.bravo)
        assert rows_of(tenants.store, tenants.bravo) == before, name
    for name, listed in OWN.items():
        if name not in SUMS:
            assert "bravo" not in str(listed(unbound)), name


def test_equal_idempotency_keys(tenants: Tenants) -> None:
    """Two customers can use the same key for different requests."""
    wanted = Submission(pipeline="nightly", partition="p")
    made = {}
    for who in (tenants.acme, tenants.bravo):
        bound = tenants.scoped(who)
        made[who.customer_id] = bound.runs.submit(wanted, key="same").run_id
        assert bound.runs.submit(wanted, key="same").run_id == made[who.customer_id]
        with pytest.raises(DuplicateRequest):
            bound.runs.submit(Submission(pipeline="nightly", partition="q"), key="same")
    assert len(set(made.values())) == 2


def test_scoping(tenants: Tenants) -> None:
    """A tenant's client exists only for an existing customer, and cannot be widened."""
    for name in ("unknown", "bravo "):
        with pytest.raises(PenstockError):
            tenants.client.scoped(name)
    bound = tenants.scoped(tenants.acme)
    assert bound.customer_id == "acme"
    assert bound.scoped("acme").customer_id == "acme"
    with pytest.raises(NotFound):
        bound.scoped("bravo")
    with pytest.raises(AssertionError):
        bound.store.scoped(CustomerKey(tenants.bravo.number))
    assert not {"migrate", "verify", "close"} & set(dir(bound.store))
    assert tenants.client.views.now()


class TestOwnLife:
    """A tenant can do everything its role allows: no policy prevents it."""

    def test_configs(self, tenants: Tenants, clock: VirtualClock) -> None:
        """Create, change, enable, preview, start, pause, list missed occurrences, delete, audit."""
        bound = tenants.scoped(tenants.acme)
        made, second = bound.configs.create_many(wanted("acme", "acme"))
        name = made.config_id
        assert bound.configs.update(name, ConfigChange(cron="*/7 * * * *")).version == 2
        clock.advance(3 * HOUR)
        bound.configs.update(name, ConfigChange(cron="*/9 * * * *"))
        assert bound.configs.occurrences(name).items
        bound.configs.disable(name)
        bound.configs.enable(name)
        assert len(bound.configs.preview(name).occurrences) == 5
        (run_id,) = bound.configs.start(name).run_ids
        assert bound.runs.cancel(run_id).outcome == "cancelled"
        assert bound.pauses.pause("config", name).is_changed
        assert bound.pauses.pause("customer", "acme").is_changed
        assert {p.scope for p in bound.pauses.list()} == {"config", "customer"}
        waiting = bound.runs.submit(Submission(pipeline="nightly")).run_id
        assert bound.runs.get(waiting).waits == "paused"
        assert bound.pauses.resume("customer", "acme").is_changed
        assert bound.pauses.resume("config", name).is_changed
        bound.configs.delete(second.config_id)
        assert bound.configs.audit("acme").items[-1].action == "DELETED"
        assert len(bound.configs.audit_of(second.config_id).items) == 2
        assert all(c.customer == "acme" for c in bound.configs.list().items)
        for is_dry in (True, False):
            own, foreign = bound.configs.create_bulk(wanted("acme", "bravo"), dry_run=is_dry)
            assert own.status == ("checked" if is_dry else "created")
            assert (foreign.status, foreign.code) == ("refused", NotFound.code)

    def test_global_pauses(self, tenants: Tenants) -> None:
        """A pause that the caller cannot see still stops its new runs."""
        tenants.client.pauses.pause("all", None)
        bound = tenants.scoped(tenants.acme)
        made = bound.runs.submit(Submission(pipeline="nightly")).run_id
        assert bound.runs.get(made).waits == "paused"
        assert {p.scope for p in bound.pauses.list()} == {"config"}

    def test_work(self, tenants: Tenants) -> None:
        """Claim, start, heartbeat, complete, fail until the config is disabled, retry."""
        bound = tenants.scoped(tenants.acme)
        config = bound.configs.create("acme", Config(pipeline="outside", event_topic="topic-1"))
        for n in range(6):
            if n < 5:
                started = bound.configs.start(config.config_id, trigger_source="scheduler")
                ids = [decode("run", one) for one in started.run_ids]
            else:
                made = bound.runs.submit(Submission(pipeline="outside", ordering_key="one"))
                ids = [number(made)]
            (claimed,) = bound.work.claim(W, 5)
            assert claimed.run.run_id == ids[0]
            bound.work.start(claimed.run.run_id, W, token=claimed.run.token)
            bound.work.heartbeat(claimed.run.run_id, W)
            if n < 5:
                bound.work.fail(claimed.run.run_id, W, FailureReport(error_type="VALIDATION_ERROR"))
            else:
                bound.work.complete(
                    claimed.run.run_id, W, completion=CompletionResult(result_summary={"n": 1})
                )
        assert not bound.configs.get(config.config_id).is_active
        assert {a.rule for a in bound.alerts.list(state="open").items} >= {"config_disabled"}
        detail = bound.runs.detail(run(claimed.run.run_id))
        assert (detail.run.state, len(detail.journal)) == ("COMPLETED", 2)
        bound.configs.enable(config.config_id)
        dead = bound.dead_letters.list().items[0]
        again = bound.runs.retry(dead.run_id or "")
        assert bound.runs.cancel(again.run_id).outcome == "cancelled"
        bound.dead_letters.discard(bound.dead_letters.list().items[0].dead_letter_id, "seen")
        start, end = (to_datetime(tenants.clock.now() + span) for span in (-DAY, DAY))
        sums = bound.views.metrics("acme", start_date=start, end_date=end)
        assert (sums.successful_runs, len(sums.by_provider)) == (4, 1)
        held = tenants.acme.held.run
        assert bound.runs.cancel(run(held.run_id)).outcome == "asked"
        bound.work.cancelled(held.run_id, ExternalWorker("w-acme", "k"), token=held.token)

    def test_ordering(self, tenants: Tenants) -> None:
        """Runs behind an ordering key become ready when the one in front ends."""
        bound = tenants.scoped(tenants.acme)
        first, second = (
            number(bound.runs.submit(Submission(pipeline="outside", ordering_key="queue")))
            for _ in range(2)
        )
        assert bound.runs.get(run(second)).waits == "blocked"
        bound.work.claim_by_id(W, first)
        bound.work.start(first, W)
        bound.work.complete(first, W)
        assert bound.runs.get(run(second)).waits == "later"
