"""Formatting of times, durations, tables and counts."""

import click
import pytest

from penstock.cli import output
from penstock.core.clock import DAY, HOUR, MILLISECOND, MINUTE, SECOND


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0 ms"),
        (350 * MILLISECOND, "350 ms"),
        (42 * SECOND, "42 s"),
        (90 * SECOND, "1.5 min"),
        (4 * MINUTE, "4 min"),
        (59 * MINUTE, "59 min"),
        (3 * HOUR, "3 h"),
        (30 * HOUR, "30 h"),
        (3 * DAY, "3 d"),
        (None, "-"),
    ],
)
def test_spans(us: int | None, text: str) -> None:
    """A duration is printed in one unit."""
    assert output.format_span(us) == text


def test_relative() -> None:
    """Relative times in the future, in the past and now."""
    assert output.format_relative(4 * MINUTE) == "in 4 min"
    assert output.format_relative(-2 * HOUR) == "2 h ago"
    assert output.format_relative(10) == "now"


def test_times() -> None:
    """Times are UTC to the second, with a relative time if now is given."""
    assert output.format_time(None) == "-"
    assert output.format_time(1_763_337_600 * SECOND) == "2025-11-17 00:00:00Z"
    assert output.format_time(60 * SECOND, 0) == "1970-01-01 00:01:00Z (in 1 min)"


def test_control_characters_are_escaped() -> None:
    """Escape sequences in users' text do not reach the terminal."""
    assert output.escape_control("plain ✓") == "plain ✓"
    assert output.escape_control("a\x1b[2Jb\r") == "a\\x1b[2Jb\\x0d"


def test_times_in_tables() -> None:
    """The date is shown only if it is not today."""
    now = 1_763_337_600 * SECOND + 9 * HOUR
    assert output.format_time_short(now - HOUR, now) == "08:00Z (1 h ago)"
    assert output.format_time_short(now - 10 * HOUR, now) == "11-16 23:00Z (10 h ago)"
    assert output.format_time_short(None, now) == "-"


def test_text_helpers() -> None:
    """Plurals, first lines and messages in error details."""
    assert output.plural(1, "run") == "1 run"
    assert output.plural(2000, "run") == "2,000 runs"
    assert output.first_line("a\nb") == "a"
    assert output.first_line("x" * 100, 10) == "x" * 9 + "…"
    assert output.error_message({"message": "no"}) == "no"
    assert output.error_message({"other": 1}) == '{"other": 1}'
    assert output.error_message("plain") == "plain"
    assert output.error_message(None) == ""


@pytest.mark.parametrize(("width", "longest"), [(60, 120), (80, 160), (100, 100), (120, 120)])
def test_printed_tables_fit_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, longest: int
) -> None:
    """What is printed, gaps included, fills the terminal, or two of its lines, if texts are cut."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    row = ["run_7h2kq0v3abcd", "customer " * 9, "FAILED", "pipeline " * 9, "an error " * 9]
    output.print_table(("RUN", "CUSTOMER", "STATE", "PIPELINE", "ERROR"), [row])
    lines = click.unstyle(capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) == longest


def test_markup_in_table_data_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """Square brackets in users' text are printed as they are."""
    output.print_table(("A", "B", "EMPTY"), [("[red]x[/red]", "FAILED dead", None), (None, 3, "")])
    out = capsys.readouterr().out
    assert "EMPTY" in out
    assert "[red]x[/red]" in out
    assert "FAILED dead" in out
