"""Run the nba demo: generate the season, simulate the day, check the result."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.assembly.database import describe_database, open_store
from penstock.audit.telemetry import Events
from penstock.client import Client
from penstock.core.clock import SystemClock
from penstock.demo.dashboard import Audience
from penstock.demo.nba import day
from penstock.demo.nba.pipeline import PIPELINES
from penstock.demo.nba.play import DemoDriver
from penstock.demo.nba.report import Report, check_claims
from penstock.demo.nba.screen import screen
from penstock.demo.nba.season import season_write
from penstock.demo.nba.warehouse import ADDRESS, FILE, SEASON
from penstock.demo.saas.performance import check_empty
from penstock.demo.saas.stage import DemoSimulation, SimulatedClock, SimulationConfig

if TYPE_CHECKING:
    from penstock.assembly.settings import Settings

SECONDS: Final = {
    "scrape": (40, 150), "raw": (40, 120), "analytics": (120, 400), "precompute": (150, 500),
    "predict": (300, 600), "publish": (30, 90), "grading": (60, 200),
}  # fmt: skip
"""Range of a run's duration in simulated seconds, by phase."""


def run_demo(
    settings: Settings,
    folder: Path,
    *,
    seconds: float,
    seed: int,
    is_live: bool,
    is_silent: bool,
    audience: Audience,
    show_report: Callable[[Report], None],
) -> None:
    """Run the whole demo and show its report; the folder and the database are kept."""
    real = SystemClock()
    began = real.monotonic()
    SEASON.path = folder / FILE
    season_write(
        SEASON, seed=seed, played_until=day.PLAYED - timedelta(days=1), known_until=day.PLAYED
    )
    clock = SimulatedClock(day.START)
    store = open_store(settings, migrate="always", clock=clock)
    try:
        client = Client(store, actor="demo")
        check_empty(client, settings)
        events = Events()
        cast = SimulationConfig(
            pipelines=PIPELINES,
            seconds=SECONDS,
            seed=seed,
            warehouses={ADDRESS: f"duckdb:{SEASON.path}?shared=true"},
        )
        stage = DemoSimulation(client, settings, clock, events, cast)
        client.register(PIPELINES)
        scene = day.ScenarioState(stage)
        with audience.watching(client, settings, events):
            with screen(is_live=is_live, is_silent=is_silent) as show:
                driver = DemoDriver(scene, events, seconds, show)
                driver.run()
            show_report(
                check_claims(
                    client,
                    scene,
                    url=describe_database(settings.database_url),
                    folder=str(folder),
                    seconds=real.monotonic() - began,
                )
            )
            audience.stay(driver.go_on)
            driver.stop()
    finally:
        store.close()
