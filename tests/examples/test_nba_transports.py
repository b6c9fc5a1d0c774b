"""The basketball pipeline with its completions over each transport: the same decisions.

The processors are a service of its own, as if another team ran it: it receives triggers, works on
the season's file and reports completions, all by messages. Over the embedded bus it reads the
topics in the store; over another broker a bridge carries them. The service is the same code.
"""

from __future__ import annotations

import copy
import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.access.store.registry import pipeline_get
from penstock.bus.binding import BindingKind
from penstock.bus.message import NewMessage, SubscriptionSpec, TopicSpec
from penstock.bus.records import Subscription, SubscriptionBinding, Topic
from penstock.bus.transports.bridges import parse_bridges
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.bus.transports.nats.options import NatsOptions
from penstock.bus.transports.nats.transport import NatsTransport
from penstock.bus.transports.protocol import Transport
from penstock.bus.transports.pubsub.options import PubsubOptions
from penstock.bus.transports.pubsub.transport import PubsubTransport
from penstock.client import Client
from penstock.core.stored_json import loads
from penstock.db.sqlite.store import SqliteStore
from penstock.demo.nba.pipeline import nba
from penstock.demo.nba.warehouse import ADDRESS, Season, fill
from penstock.flows.gates.rows import DecisionFilter
from penstock.flows.gates.store.gates import decision_list
from penstock.flows.gates.verdict import Decision
from penstock.flows.orchestrator import Orchestrator
from penstock.flows.records import FlowRequest
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.probes.runner import ProbeRunner
from penstock.services.binder import Binder
from penstock.services.bridge import Bridge
from penstock.services.upkeep import OutboxPublisher
from penstock.testing.clock import VirtualClock
from tests.examples.nba_kit import NIGHT, address, night_falls
from tests.kits.nats import NatsServer
from tests.pubsub_wire.kit import served

DAY, MODE = "2025-12-30", "overnight"
REPORTS = "nba.reports"
NUMBERS = itertools.count(1)
TRIGGERS = [f"nba.{phase.name}.trigger" for phase in nba.phases]


def external() -> Pipeline:
    """Return the pipeline with the same gates, its processors executed elsewhere."""
    made = copy.deepcopy(nba)
    for phase in made.phases:
        for name, one in phase._processors.items():
            terms = replace(one.terms, each=None)
            phase._processors[name] = replace(
                one, runs="external", pool="external", body=None, terms=terms
            )
    return made


class Service:
    """The processors: triggers in, completions out."""

    def __init__(self, transport: Transport, season: Season) -> None:
        self.transport = transport
        self.season = season
        self.worked: list[str] = []
        transport.declare(
            [TopicSpec(name=name) for name in [REPORTS, *TRIGGERS]],
            [SubscriptionSpec(name=f"service.{name}", topic=name) for name in TRIGGERS],
        )

    def run_once(self) -> int:
        """Work on every trigger that has arrived."""
        count = 0
        for topic in TRIGGERS:
            name = f"service.{topic}"
            for delivery in self.transport.pull(name):
                self._work(json.loads(delivery.data))
                self.transport.ack(name, [delivery.ack_id])
                count += 1
        return count

    def _work(self, trigger: dict[str, Any]) -> None:
        phase = trigger["phase"]
        expected = nba.plan(MODE).phase(phase).expected
        with self.season.opened() as connection:
            for made in nba.processors:
                if made.phase == phase and made.name in expected:
                    source = f"nba_landing.{made.name.removesuffix('_scraper')}"
                    for table in made.terms.produces or (source,):
                        fill(connection, table, DAY, DAY)
        for name in expected:
            report = {
                "processor_name": name, "phase": phase, "partition": DAY, "status": "success",
                "processing_mode": MODE, "execution_id": f"{phase}-{name}",
                "correlation_id": trigger["correlation_id"],
            }  # fmt: skip
            self.worked.append(f"{phase}/{name}")
            self.transport.publish(REPORTS, [NewMessage(data=json.dumps(report).encode())])


def _carried(bridge: Bridge | None) -> int:
    done = None if bridge is None else bridge.run_once()
    return 0 if done is None else done.sent + done.received


class Run:
    """One night of the pipeline over one transport, under a virtual clock."""

    def __init__(self, store: SqliteStore, clock: VirtualClock, season: Season) -> None:
        self.store = store
        self.clock = clock
        self.client = Client(store, actor="tester")
        self.client.register([external()])
        self.client.topics.create(Topic(name=REPORTS))
        binding = SubscriptionBinding(kind=BindingKind.COMPLETIONS, pipeline="nba")
        self.client.subscriptions.declare(
            Subscription(name="nba-reports", topic=REPORTS, kind="bound", binding=binding)
        )
        self.probes = ProbeRunner(clock, names={ADDRESS: address(season.path)})
        self.orchestrator = Orchestrator(store, self.probes.probe, pipelines=[nba], threads=0)
        self.outbox = OutboxPublisher(store)
        self.binder = Binder(store, jitter=lambda: 0.0)

    def play(self, service: Service, bridge: Bridge | None) -> None:
        """Let the night happen until its flow has ended: the play-by-play arrives late."""
        request = FlowRequest(pipeline="nba", partition=DAY, mode=MODE, correlation_id="night")
        self.client.flows.trigger(request)
        for step in range(60):
            if step == 4:
                night_falls(service.season)
            idle = 0
            while idle < 2:
                self.orchestrator.run_once()
                self.outbox.run_once()
                moved = _carried(bridge) + service.run_once() + _carried(bridge)
                moved += self.binder.run_once().done
                idle = 0 if moved else idle + 1
            if self.client.flows.list(pipeline="nba").items[0].ended_at is not None:
                return
            self.clock.advance(seconds=300)
        raise AssertionError("the night did not end")

    def close(self) -> None:
        """Close the probes."""
        self.probes.close()
        self.orchestrator.close()

    def story(self) -> dict[str, list[Any]]:
        """Return decisions and journal, without ids and times."""
        number = self.store.read(lambda tx: pipeline_get(tx, "nba"))
        assert number is not None
        wanted = DecisionFilter(pipeline=number[0], limit=10_000)
        rows = self.store.read(lambda tx: decision_list(tx, wanted))
        return {
            "decisions": [
                (row.phase, row.processor, loads(Decision, row.decision)) for row in reversed(rows)
            ],
            "journal": self._rows(
                "SELECT kind, action, actor, from_state, to_state, why FROM journal "
                "WHERE kind NOT IN ('topic', 'subscription') ORDER BY seq"
            ),
            "completions": self._rows(
                "SELECT processor, status FROM completions ORDER BY processor"
            ),
        }

    def _rows(self, sql: str) -> list[Any]:
        def body(tx: Any) -> list[Any]:
            return [tuple(row) for row in tx._connection.execute(sql).fetchall()]

        return self.store.write(body)


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker beside the store: how to connect to it."""

    connect: Callable[[], Transport]


@contextmanager
def over_nats(request: pytest.FixtureRequest, clock: VirtualClock) -> Iterator[Broker]:  # noqa: ARG001
    """A NATS server."""
    server: NatsServer = request.getfixturevalue("nats_server")
    options = NatsOptions(servers=(server.url,), prefix=f"nba{next(NUMBERS)}")
    yield Broker(partial(NatsTransport, options))


@contextmanager
def over_pubsub(request: pytest.FixtureRequest, clock: VirtualClock) -> Iterator[Broker]:
    """Google's client library, against the front end of another Penstock."""
    path = request.getfixturevalue("tmp_path") / "broker.db"
    store = SqliteStore(shutil.copy(request.getfixturevalue("sqlite_template"), path), clock)
    with served(store, clock, jitter=lambda: 0.0) as wire:
        options = PubsubOptions(project="acme", endpoint=wire.server.address)
        yield Broker(partial(PubsubTransport, options, clock=clock))
    store.close()


BROKERS = {"nats": over_nats, "pubsub": over_pubsub}


def story_of(folder: Path, season_file: Path, template: Path, clock: VirtualClock,
             broker: Broker | None) -> dict[str, list[Any]]:  # fmt: skip
    """Play the night over a broker, or over the store itself; return what happened."""
    folder.mkdir()
    season = Season(path=Path(shutil.copy(season_file, folder / "season.duckdb")))
    store = SqliteStore(Path(shutil.copy(template, folder / "penstock.db")), clock)
    night_falls(season, "nbac_play_by_play")
    run = Run(store, clock, season)
    bridge = None
    transport: Transport = EmbeddedBus(store)
    if broker is not None:
        transport = broker.connect()
        declared = {"url": "nats://x", "send": ["nba.*.trigger"], "receive": [REPORTS]}
        settings = parse_bridges({"main": declared})[0]
        bridge = Bridge(store, settings, broker.connect, clock=clock)
        bridge.run_once()
    run.play(Service(transport, season), bridge)
    found = run.story()
    run.close()
    if bridge is not None:
        bridge.close()
    transport.close()
    store.close()
    return found


@pytest.fixture(scope="module")
def embedded(
    season_file: Path, tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path
) -> dict[str, list[Any]]:
    """The night over the topics of the store itself."""
    folder = tmp_path_factory.mktemp("embedded") / "night"
    return story_of(folder, season_file, sqlite_template, VirtualClock(NIGHT), None)


@pytest.mark.parametrize("name", BROKERS)
def test_the_same_night(
    name: str, request: pytest.FixtureRequest, embedded: dict[str, list[Any]], season_file: Path,
    tmp_path: Path, sqlite_template: Path,
) -> None:  # fmt: skip
    """Same decisions, same journal but for ids and times, same completions as embedded."""
    verdicts = [(phase, decision.verdict.value) for phase, _, decision in embedded["decisions"]]
    assert ("scrape", "WAIT") in verdicts
    assert ("grading", "PROCEED") in verdicts
    clock = VirtualClock(NIGHT)
    with BROKERS[name](request, clock) as broker:
        there = story_of(tmp_path / name, season_file, sqlite_template, clock, broker)
    assert there["decisions"] == embedded["decisions"]
    assert there["completions"] == embedded["completions"]
    assert there["journal"] == embedded["journal"]
