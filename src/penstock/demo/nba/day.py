"""The scenario of the nba demo: when sources publish, what fails, and when the operator asks.

It runs from 22:30 on 30 December to 18:45 on the 31st, New York time. At night a source is late and
a processor fails once; in the morning odds are missing and arrive later, and an app that cannot use
the first picks leaves a dead letter; in the evening the pipeline prepares the next day. Acts change
the data or query the store as users would; `report` reads their effects from the store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Final

from penstock.core.clock import HOUR, MINUTE, Micros, parse_iso
from penstock.demo.nba import app_feed
from penstock.demo.nba.answers import Answer, answer_for
from penstock.demo.nba.app_feed import lines_published
from penstock.demo.nba.season import AFTER_GAME, BEFORE_GAME, games_on, publish
from penstock.demo.nba.warehouse import SEASON
from penstock.schedules.records import Config

if TYPE_CHECKING:
    from penstock.demo.saas.stage import DemoSimulation

START: Final = parse_iso("2025-12-31T03:30:00Z")
END: Final = START + 20 * HOUR + 15 * MINUTE
PLAYED, TODAY, TOMORROW = date(2025, 12, 30), date(2025, 12, 31), date(2026, 1, 1)
PLAYS: Final = "nbac_play_by_play"
LINES: Final = "odds_api_player_points_props"
BREAKS: Final = "player_daily_cache"
CUSTOMER: Final = "default"
SCHEDULES: Final = (
    ("0 23 * * *", "overnight"),
    ("0 10 * * *", "same_day"),
    ("0 17 * * *", "tomorrow"),
)
"""The schedules of the pipeline, each with the mode that is chosen at that time of day."""


@dataclass(slots=True)
class ScenarioState:
    """The state that the acts share, and what the report needs."""

    stage: DemoSimulation
    feed: list[tuple[Micros, str]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    plays_at: Micros = 0
    lines_at: Micros = 0
    lines_before: int = -1
    """Number of the first picks that had a bookmaker's line; -1 until they are counted."""

    def deliver(self) -> None:
        """Publish the announcements of phases, and let the app receive them."""
        self.stage.publish()
        for text in app_feed.receive(self.stage.client):
            self.add_line(text)

    def add_line(self, text: str) -> None:
        """Add a line to the feed on the screen."""
        self.feed.append((self.stage.clock.now(), text))


@dataclass(frozen=True, slots=True)
class ScenarioEvent:
    """A function to call at `after`, the time since the start."""

    after: Micros
    run: Callable[[ScenarioState], None]


def scenario_events() -> list[ScenarioEvent]:
    """Return the acts in order."""
    return [
        ScenarioEvent(0, _open),
        ScenarioEvent(25 * MINUTE, _box_scores),
        ScenarioEvent(HOUR, _ask_night),
        ScenarioEvent(2 * HOUR + 5 * MINUTE, _plays),
        ScenarioEvent(11 * HOUR + 15 * MINUTE, _morning),
        ScenarioEvent(12 * HOUR + 20 * MINUTE, _ask_morning),
        ScenarioEvent(12 * HOUR + 50 * MINUTE, _lines),
        ScenarioEvent(18 * HOUR, _evening),
        ScenarioEvent(20 * HOUR, _ask_evening),
    ]


def _open(scene: ScenarioState) -> None:
    for cron, _ in SCHEDULES:
        config = Config(pipeline="nba", cron=cron, timezone="America/New_York")
        scene.stage.client.configs.create(CUSTOMER, config, reason="demo")
    app_feed.subscribe(scene.stage.client)
    scene.stage.add_worker("worker-1", 8)
    SEASON.broken = {BREAKS: 1}
    scene.add_line(
        f"{games_on(SEASON, PLAYED)} games are ending; a worker with a concurrency of 8 is up"
    )


def _box_scores(scene: ScenarioState) -> None:
    sources = [source for source in AFTER_GAME if source != PLAYS]
    _publish(sources, PLAYED)
    scene.add_line(f"the box scores of {PLAYED} are published; {PLAYS} is late")


def _plays(scene: ScenarioState) -> None:
    scene.plays_at = scene.stage.clock.now()
    _publish([PLAYS], PLAYED)
    scene.add_line(f"{PLAYS} is published")


def _morning(scene: ScenarioState) -> None:
    _publish([source for source in BEFORE_GAME if source != LINES], TODAY)
    scene.add_line(f"{games_on(SEASON, TODAY)} games today: rosters, injuries and some odds are "
               f"published, but not {LINES}")  # fmt: skip


def _lines(scene: ScenarioState) -> None:
    scene.lines_at = scene.stage.clock.now()
    scene.lines_before = lines_published(str(TODAY))
    _publish([LINES], TODAY)
    scene.add_line(f"{LINES} is published; the next attempt of its scraper will find it")


def _evening(scene: ScenarioState) -> None:
    _publish(BEFORE_GAME, TOMORROW)
    scene.add_line(f"{games_on(SEASON, TOMORROW)} games tomorrow: every source is published early")


def _ask_night(scene: ScenarioState) -> None:
    _ask(scene, str(PLAYED), "overnight")


def _ask_morning(scene: ScenarioState) -> None:
    _ask(scene, str(TODAY), "same_day")


def _ask_evening(scene: ScenarioState) -> None:
    _ask(scene, str(TODAY), "same_day")


def _ask(scene: ScenarioState, partition: str, mode: str) -> None:
    scene.add_line(f"the operator checks {mode} of {partition}")
    scene.answers.append(
        answer_for(scene.stage.client, "nba", partition, mode, scene.stage.clock.now())
    )


def _publish(sources: list[str] | tuple[str, ...], day: date) -> None:
    with SEASON.opened() as connection:
        for source in sources:
            publish(connection, source, day)
