"""Tables in terminals: what may be cut and omitted, and what stays whole."""

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli import output
from penstock.cli.layout.fitting import EMPTY, GAP, TEXT_MIN, fit_table, least_length

WHOLE = [
    "2026-11-20 05:00:00Z", "11-20 05:00Z", "2026-01-01T05:00:00Z/2026-01-02T05:00:00Z",
    "2026-01-01", "COMPLETED", "DEGRADED (superseded)", "FAILED dead",
    "ACCOUNT_CREDENTIALS_INVALID", "PENDING_ADMISSION_WAITING", "1,234,567,890,123,456,789",
    "-224 %", "run_7h2kq0v3",
    "123e4567-e89b-12d3-a456-426614174000", "*/15 0-6,20 * JAN-MAR MON#2 America/New_York",
    "0 2 * * * Australia/Sydney", "penstock flows show flow_8hg1zgny --json", "acme_sports",
    "every 1h30m", "short of any kind",
]  # fmt: skip
TEXTS = [
    "none of the 20 picks has a line, so nothing was sent",
    "CODE_ERROR, KeyError: 'cents' in the third line of the file",
    "nba/analytics/player_game_summary",
]
CELLS = st.sampled_from([*WHOLE, *TEXTS, EMPTY]) | st.text("abc 12", min_size=1, max_size=60)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str]]]:
    count = draw(st.integers(1, 9))
    columns = [f"COLUMN {n}" for n in range(count)]
    row = st.lists(CELLS, min_size=count, max_size=count)
    return columns, draw(st.lists(row, min_size=1, max_size=5))


@given(tables(), st.integers(20, 250))
def test_protected_values_are_whole(table: tuple[list[str], list[list[str]]], width: int) -> None:
    """Only long texts are cut, and only columns without values are omitted, at any width."""
    columns, rows = table
    shown = fit_table(columns, rows, width)
    kept = [n for n, name in enumerate(columns) if name in shown.columns]
    for n in set(range(len(columns))) - set(kept):
        assert {row[n] for row in rows} == {EMPTY}
    for before, after in zip(rows, shown.rows, strict=True):
        for text, cell in zip([before[n] for n in kept], after, strict=True):
            if text in WHOLE or len(text) <= TEXT_MIN:
                assert cell == text
            elif cell != text:
                assert len(cell) >= TEXT_MIN
                assert text.startswith(cell.removesuffix("…"))


@given(tables(), st.integers(20, 250))
def test_a_row_takes_as_few_lines_as_possible(
    table: tuple[list[str], list[list[str]]], width: int
) -> None:
    """A row is longer than a line only if no cut would make it fit."""
    shown = fit_table(*table, width)
    cells = [shown.columns, *shown.rows]
    widths = [max(len(row[n]) for row in cells) for n in range(len(shown.columns))]
    length = sum(widths) + shown.gap * (len(widths) - 1)
    if length > width:
        least = [
            max(least_length(row[n]) if row in shown.rows else len(row[n]) for row in cells)
            for n in range(len(widths))
        ]
        assert sum(least) + shown.gap * (len(least) - 1) > width
        assert shown.gap == GAP


def test_hints_after_times_are_omitted_first() -> None:
    """The time itself stays, and so does every other text."""
    columns = ["RUN", "STARTED", "REASON"]
    rows = [["run_7h2kq0v3", "05:00Z (in 4 h)", "a reason (2 h ago) of some length"]]
    assert fit_table(columns, rows, 64).rows == rows
    assert fit_table(columns, rows, 63).rows == [[rows[0][0], "05:00Z", rows[0][2]]]


def test_empty_columns_are_omitted_before_texts_are_cut() -> None:
    columns = ["RUN", "ERROR", "REASON"]
    rows = [["run_7h2kq0v3", EMPTY, "a reason of a certain length"]]
    assert fit_table(columns, rows, 51) == (columns, rows, 2)
    assert fit_table(["NOTE", "NOTE"], [["x" * 9, EMPTY]], 9).columns == ["NOTE"]
    assert fit_table(columns, [], 9).columns == columns
    assert fit_table(columns, rows, 42) == (["RUN", "REASON"], [[rows[0][0], rows[0][2]]], 2)


def test_an_error_is_cut_after_its_type() -> None:
    rows = [
        ["run_7h2kq0v3", "ACCOUNT_CREDENTIALS_INVALID, HTTP 401: the credentials were rejected"]
    ]
    cut = fit_table(["RUN", "ERROR"], rows, 43).rows[0][1]
    assert cut == "ACCOUNT_CREDENTIALS_INVALID,…"


def test_a_single_space_separates_columns_if_that_suffices() -> None:
    rows = [["run_7h2kq0v3", "COMPLETED", "2026-01-01"]]
    assert fit_table(["RUN", "STATE", "PARTITION"], rows, 34).gap == 1
    assert fit_table(["RUN", "STATE", "PARTITION"], rows, 35).gap == 2


def test_secondary_columns_are_omitted_only_if_the_table_fits_without_them() -> None:
    columns, rows = ["FLOW", "MODE", "PARTITION"], [["flow_8hg1zgny", "same_day", "2025-12-31"]]
    assert fit_table(columns, rows, 35, ["MODE"]).columns == columns
    assert fit_table(columns, rows, 30, ["MODE"]).columns == ["FLOW", "PARTITION"]
    assert fit_table(columns, rows, 20, ["MODE"]).columns == columns


def test_output_that_is_no_terminal_is_unchanged(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    row = ["05:00Z (in 4 h)", "", "a long reason " * 9]
    output.print_table(("AT", "NOTE", "REASON"), [row])
    lines = click.unstyle(capsys.readouterr().out).splitlines()
    assert lines[1] == f"{row[0]}  -     {row[2]}".rstrip()
