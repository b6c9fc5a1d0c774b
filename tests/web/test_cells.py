"""Cells that code writes: every value is escaped, whatever the kind of the cell."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from markupsafe import Markup

from penstock.web import cells
from penstock.web.parts import Cell, Empty, Segment, TableColumn, TablePanel

NOW = datetime(2025, 11, 17, 9, 30, tzinfo=UTC)
HOSTILE = "<b>\"'&\u202e\x00"
SAFE = "&lt;b&gt;&#34;&#39;&amp;"
SHOWN = f"{SAFE}\\u202e␀"
KINDS: dict[str, Any] = {
    "text": {"text": HOSTILE},
    "mono": {"text": HOSTILE, "is_mono": True},
    "link": {"text": HOSTILE, "href": f"/{HOSTILE}"},
    "state": {"text": HOSTILE, "state": HOSTILE},
    "state with link": {"text": HOSTILE, "state": "failed", "href": f"/{HOSTILE}"},
    "tag": {"tag": HOSTILE},
    "spark": {"text": HOSTILE, "spark": HOSTILE, "fill": HOSTILE},
    "share": {"share": 0.5, "fill": HOSTILE},
    "pipe": {"pipe": [Segment(name=HOSTILE, state=HOSTILE, word=HOSTILE)]},
    "small": {"text": "a", "small": HOSTILE},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_value_is_escaped_in_every_kind_of_cell(kind: str) -> None:
    made = cells.cell_html(Cell(**KINDS[kind]), NOW)
    assert isinstance(made, Markup)
    assert SAFE in made
    assert "<b>" not in made


def test_untrusted_text_shows_control_characters() -> None:
    assert cells.cell_html(Cell(text=HOSTILE), NOW) == SHOWN
    assert cells.cell_html(Cell(text="a", small=HOSTILE), NOW) == f"a<small>{SHOWN}</small>"


def test_rows_of_a_table_escape_titles_and_styles() -> None:
    panel = TablePanel(
        title="rows",
        columns=[TableColumn(title="first"), TableColumn(title=HOSTILE, css=HOSTILE)],
        rows=[[Cell(text="a"), Cell(text="b", css=HOSTILE)], [Cell(), Cell(text="–")]],
        empty=Empty(title="none", text="none"),
        chosen=1,
    )
    assert cells.table_rows(panel, NOW).splitlines() == [
        '<tr data-row><td class=" ">a</td>'
        f'<td class="{_raw(HOSTILE)} {_raw(HOSTILE)}" data-l="{_raw(HOSTILE)}">b</td></tr>',
        '<tr data-row aria-selected="true"><td class="  none"></td>'
        f'<td class="{_raw(HOSTILE)}  none" data-l="{_raw(HOSTILE)}">–</td></tr>',
    ]


def test_a_time_has_its_full_form_as_title() -> None:
    at = NOW - timedelta(days=1, seconds=5)
    assert cells.time_tag(at, NOW) == (
        '<time datetime="2025-11-16T09:29:55Z" title="Sun 16 Nov 2025 09:29:55 UTC">'
        "16 Nov 09:29Z</time>"
    )


def test_many_slots_are_a_bar() -> None:
    assert cells.slots_tag((1, 1, 1)).count("<rect") == 3
    drawn = cells.slots_tag((10, 20, 10), "tall")
    assert 'class="slots tall"' in drawn
    assert "10 held, 20 free, 10 removed by quota errors" in drawn
    assert '<rect class="hat" x="75.00%" width="25.00%" height="100%"/>' in drawn


def test_outcomes_are_counted_for_screen_readers() -> None:
    drawn = cells.outcomes_tag("ccfrx")
    assert "last 5 runs, oldest first: 2 well, 1 failed, 1 running" in drawn
    assert drawn.count("<rect") == 5


def test_a_share_above_zero_is_visible() -> None:
    assert 'width="1.50%"' in cells.cell_html(Cell(share=0.001), NOW)
    assert 'width="0.00%"' in cells.cell_html(Cell(share=0.0, fill="dead"), NOW)
    assert 'aria-label="29 percent"' in cells.cell_html(Cell(share=0.299), NOW)


def _raw(value: str) -> str:
    """Return a value as attributes have it: escaped, with its control characters."""
    return str(Markup.escape(value))
