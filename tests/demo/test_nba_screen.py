"""Output of the nba demo: the live screen and plain lines."""

import pytest
from rich.console import Console

from penstock.assembly.process import StoredAlert
from penstock.core.clock import parse_iso, to_datetime
from penstock.demo.nba.answers import Answer, PhaseStatus
from penstock.demo.nba.play import ScreenState
from penstock.demo.nba.screen import Lines, render, screen

NOW = parse_iso("2025-12-31T04:30:00Z")
LINES = [
    PhaseStatus("scrape", "waiting", "", "since 23:00"),
    PhaseStatus("raw", "not triggered", "", "[x]"),
]
ANSWER = Answer("nba · 2025-12-30", LINES, ["Waiting for feed.plays."], ["Wait."])
ALERT = StoredAlert(
    alert_id="alert_5m7t0c2d", rule="gate", severity="HIGH", customer="acme", subject_kind="flow",
    subject="flow_5m7t0c2d", message="scrape waits long", detail={}, state="open", times=1,
    opened_at=to_datetime(NOW), last_at=to_datetime(NOW), closed_at=None, closed_by=None,
)  # fmt: skip


def glance(*, answered: bool) -> ScreenState:
    return ScreenState(
        now=NOW,
        fraction=0.1,
        boards=lambda: [("overnight", LINES)],
        feed=[(NOW, "plays are late [x]")],
        answers=[ANSWER] if answered else [],
        alerts=lambda: [ALERT],
        is_answer_new=answered,
        is_done=False,
    )


def test_live_screen(capsys: pytest.CaptureFixture[str]) -> None:
    """The screen shows phases, alerts, and the feed or an answer; brackets are not markup."""
    console = Console(width=110, force_terminal=False)
    console.print(render(glance(answered=False)))
    feed = capsys.readouterr().out
    console.print(render(glance(answered=True)))
    answer = capsys.readouterr().out
    for words in ("23:30 in New York", "waiting", "since 23:00", "scrape waits long"):
        assert words in feed
        assert words in answer
    assert "overnight" in feed
    assert "plays are late [x]" in feed
    assert "Waiting for feed.plays." in answer
    assert "What can I do?" in answer


def test_lines() -> None:
    """Each feed line is printed once, and each answer when it is new."""
    printed: list[str] = []
    lines = Lines(printed.append)
    lines(glance(answered=False))
    lines(glance(answered=True))
    lines(glance(answered=False))
    assert printed[0] == "23:30  plays are late [x]"
    assert printed[1].strip() == "? nba · 2025-12-30"
    assert printed[-1].strip() == "Wait."


def test_silent_screen(capsys: pytest.CaptureFixture[str]) -> None:
    """A silent screen prints nothing."""
    with screen(is_live=False, is_silent=True) as show:
        show(glance(answered=True))
    assert capsys.readouterr().out == ""
