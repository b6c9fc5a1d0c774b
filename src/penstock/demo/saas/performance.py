"""Run the saas demo: create the sample data, simulate the day, check the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import penstock.demo.saas.world as world
from penstock.assembly.database import describe_database, open_store
from penstock.audit.telemetry import Events
from penstock.client import Client
from penstock.core.clock import Micros, SystemClock
from penstock.core.errors import Conflict
from penstock.demo.dashboard import Audience
from penstock.demo.saas.cloud import CLOUD
from penstock.demo.saas.pipelines import PIPELINES
from penstock.demo.saas.play import DemoDriver
from penstock.demo.saas.report import Facts, Report, check_claims
from penstock.demo.saas.scenario import ScenarioState
from penstock.demo.saas.screen import screen
from penstock.demo.saas.stage import DemoSimulation, SimulatedClock, SimulationConfig

if TYPE_CHECKING:
    from penstock.assembly.settings import Settings

SECONDS = {"cost_billing": (60, 240), "security_audit": (120, 420), "compliance_report": (20, 70)}
"""Range of a run's duration in simulated seconds, by pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Options of the demo; `seconds` is real time, `start` the beginning of the simulated day."""

    customers: int
    flood: int
    seconds: float
    seed: int
    start: Micros


def run_demo(
    wanted: DemoOptions,
    settings: Settings,
    *,
    is_live: bool,
    is_silent: bool,
    audience: Audience,
    show_report: Callable[[Report], None],
) -> None:
    """Run the whole demo and show its report; the database is kept."""
    real = SystemClock()
    began = real.monotonic()
    clock = SimulatedClock(wanted.start)
    store = open_store(settings, migrate="always", clock=clock)
    try:
        client = Client(store, actor="demo")
        check_empty(client, settings)
        events = Events()
        cast = SimulationConfig(pipelines=PIPELINES, seconds=SECONDS, seed=wanted.seed)
        stage = DemoSimulation(client, settings, clock, events, cast)
        client.register(PIPELINES)
        names = world.customers(wanted.customers)
        stage.upkeep()
        client.configs.create_many(world.configs(names, wanted.start, wanted.seed), reason="demo")
        scene = ScenarioState(stage, names, wanted.seed, wanted.start, wanted.flood)
        with audience.watching(client, settings, events):
            with screen(is_live=is_live, is_silent=is_silent) as show:
                play = DemoDriver(scene, events, wanted.seconds, show)
                play.run()
            facts = Facts(
                scene=scene,
                scheduled=play.counts["scheduled"],
                refused=play.counts["refused"],
                database=describe_database(settings.database_url),
                database_url=settings.database_url,
                seconds=real.monotonic() - began,
            )
            show_report(check_claims(client, facts))
            audience.stay()
    finally:
        CLOUD.recover()
        store.close()


def check_empty(client: Client, settings: Settings) -> None:
    """Raise Conflict if the database is in use."""
    if client.configs.list(limit=1).items or client.views.pipelines():
        where = describe_database(settings.database_url)
        raise Conflict(f"{where} is not empty: the demo needs an empty database. "
                       "Omit --database-url to create a new file.")  # fmt: skip
