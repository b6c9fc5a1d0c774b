"""Output of the saas demo: the live screen and plain lines."""

from collections import Counter

import pytest

from penstock.assembly.process import Overview, StoredAlert
from penstock.core.clock import HOUR, SECOND, to_datetime
from penstock.demo.saas.play import DemoWaitTimes, ScreenState
from penstock.demo.saas.screen import Lines, render, screen
from penstock.testing.clock import VirtualClock

START = 1_763_337_600 * SECOND
OVERVIEW = Overview(
    as_of=to_datetime(START), next_occurrence_at=None, pending_runs=4800, ready_runs=4700,
    later_runs=100, paused_runs=0, blocked_runs=0, claimed_runs=0, running_runs=64,
    oldest_ready_at=to_datetime(START), completed_today=9, failed_today=1, cancelled_today=0,
    expired_today=0,
    sla_breaches_today=0, average_duration=None, blocked_flows=0, waiting_flows=0,
)  # fmt: skip
ALERT = StoredAlert(
    alert_id="alert_5m7t0c2d", rule="config_disabled", severity="HIGH", customer="acme",
    subject_kind="config", subject="cfg_5m7t0c2d", message="bills of acme were disabled", detail={},
    state="open", times=1, opened_at=to_datetime(START), last_at=to_datetime(START),
    closed_at=None, closed_by=None,
)  # fmt: skip


def glance(phase: str = "simulating the day", flood: int = 5000) -> ScreenState:
    waits = DemoWaitTimes([30 * SECOND, 40 * SECOND], set(), {"a", "b"}, 1000)
    return ScreenState(
        now=START + HOUR, start=START, fraction=0.5, phase=phase, overview=OVERVIEW,
        counts=Counter(COMPLETED=1234, dead=3), rate=250.0, feed=[(START, "the day begins")],
        alerts=[ALERT], waits=waits, flooder="acme", flood_size=flood, workers=4,
    )  # fmt: skip


def test_live_screen(capsys: pytest.CaptureFixture[str]) -> None:
    """The screen shows the queue, totals, feed, fairness and alerts."""
    from rich.console import Console

    console = Console(width=110, force_terminal=False)
    console.print(render(glance()))
    console.print(render(glance(flood=0)))
    out = capsys.readouterr().out
    for words in ("4,700", "1,234", "the day begins", "4,000 of 5,000 runs still waiting",
                  "median wait 35 s", "bills of acme were disabled", "no flood yet"):  # fmt: skip
        assert words in out


def test_status_line_every_few_seconds() -> None:
    """Feed lines are printed once, the status line every 5 seconds and at the end."""
    printed: list[str] = []
    clock = VirtualClock(START)
    lines = Lines(printed.append, clock)
    lines(glance())
    lines(glance())
    assert len(printed) == 2
    assert "ready 4,700" in printed[1]
    clock.advance(seconds=6)
    lines(glance())
    lines(glance("done"))
    assert len(printed) == 4


def test_silent_and_visible_screens(capsys: pytest.CaptureFixture[str]) -> None:
    """A silent screen prints nothing; the live screen and plain lines do."""
    with screen(is_live=False, is_silent=True) as show:
        show(glance())
    assert capsys.readouterr().out == ""
    with screen(is_live=False) as show:
        show(glance())
    with screen(is_live=True) as show:
        show(glance())
    assert "the day begins" in capsys.readouterr().out
