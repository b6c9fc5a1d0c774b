"""The basketball season for tests: a shared file and helpers that evaluate its gates."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from penstock.core.clock import Micros, parse_iso
from penstock.demo.nba.pipeline import nba
from penstock.demo.nba.season import AFTER_GAME, publish
from penstock.demo.nba.warehouse import ADDRESS, Season, fill
from penstock.flows.gates.evidence import Assessment, assess
from penstock.flows.gates.gate import decide
from penstock.flows.gates.verdict import Decision, GateInput
from penstock.pipelines.plan import gate_mode
from penstock.probes.protocol import ProbeRequest
from penstock.probes.runner import ProbeRunner
from penstock.testing.clock import VirtualClock

PLAYED, KNOWN = date(2025, 12, 29), date(2025, 12, 30)
"""The last day with box scores, and the last one whose morning work is done."""
NIGHT: Micros = parse_iso("2025-12-31T04:30:00Z")
"""23:30 in New York on the evening of the 30th."""
MORNING: Micros = parse_iso("2025-12-31T15:30:00Z")


def address(path: Path) -> str:
    """Return the address under which probes of this process find the file."""
    return f"duckdb:{path}?shared=true"


def assessments(season: Season, mode: str, phase: str, day: str, now: Micros) -> list[Assessment]:
    """Return the assessments of a phase's gate over the file."""
    needs = nba.needs(mode, phase)
    probes = ProbeRunner(VirtualClock(now), names={ADDRESS: address(season.path)})
    try:
        found = probes.probe(
            ProbeRequest(dependencies=[n.dependency for n in needs], partition=day)
        )
    finally:
        probes.close()
    return [
        assess(need.dependency, observation, judged_at=now, needed_by=need.needed_by)
        for need, observation in zip(needs, found, strict=True)
    ]


def decided(
    season: Season,
    mode: str,
    phase: str,
    day: str,
    *,
    now: Micros = NIGHT,
    waited_us: Micros = 0,
    tries: int = 0,
) -> Decision:
    """Return the decision of a phase's gate over the file."""
    return decide(
        GateInput(
            mode=gate_mode(nba.definition(), nba.modes[mode]),
            now=now,
            phase=phase,
            partition=day,
            assessments=tuple(assessments(season, mode, phase, day, now)),
            waited_us=waited_us,
            historical_tries=tries,
        )
    )


def work(season: Season, mode: str, phase: str, day: str) -> None:
    """Do the work of a phase's processors."""
    with season.opened() as connection:
        for name in nba.plan(mode).phase(phase).expected:
            made = next(p for p in nba.processors if (p.phase, p.name) == (phase, name))
            source = f"nba_landing.{name.removesuffix('_scraper')}"
            for table in made.terms.produces or (source,):
                fill(connection, table, day, day)


def night_falls(season: Season, *late: str) -> None:
    """Publish the games of the 30th from all sources except the late ones."""
    with season.opened() as connection:
        for source in AFTER_GAME:
            if source not in late:
                publish(connection, source, KNOWN)
