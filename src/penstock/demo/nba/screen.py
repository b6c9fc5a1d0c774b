"""Output of the nba demo: a live screen with phases, feed and answers, or plain lines."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.cli import output
from penstock.demo.nba.answers import PhaseStatus, local_time

if TYPE_CHECKING:
    from penstock.demo.nba.play import ScreenState

FEED: Final = 10
ALERTS: Final = 2
FRAME: Final = 2
"""Rows of the border of a panel."""
HEADLINE: Final = 1
COLOURS: Final = {
    "waiting": "yellow", "blocked": "red", "running": "cyan", "complete": "green",
    "degraded": "magenta", "failed": "red", "not triggered": "dim", "skipped": "dim",
}  # fmt: skip


@contextlib.contextmanager
def screen(*, is_live: bool, is_silent: bool) -> Iterator[Callable[[ScreenState], None]]:
    """Yield the function that shows a state: on a live screen, as lines, or not at all."""
    if is_silent:
        yield lambda _: None
        return
    if not is_live:
        yield Lines(click.echo)
        return
    # Imported here because only the live screen needs rich.
    from rich.live import Live

    with Live(console=output.console(), refresh_per_second=8, transient=True) as live:
        yield lambda glance: live.update(render(glance))


class Lines:
    """Plain output: every feed line and every answer."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._printed = 0

    def __call__(self, glance: ScreenState) -> None:
        """Print new feed lines, and a new answer if there is one."""
        for at, text in glance.feed[self._printed :]:
            self._write(f"{local_time(at)}  {text}")
        self._printed = len(glance.feed)
        if glance.is_answer_new:
            for line in glance.answers[-1].lines():
                self._write(f"  {line}")


def render(glance: ScreenState) -> Any:
    """Return the whole screen as a rich renderable."""
    # Imported here because only the live screen needs rich.
    from rich import console, panel, text

    alerts = [f"{a.severity}  {a.message}" for a in glance.alerts()][:ALERTS] or ["none"]
    boards = glance.boards()
    taken = sum(len(lines) + FRAME for _, lines in boards) + len(alerts) + FRAME
    height = feed_height(shutil.get_terminal_size().lines, taken)
    feed = "\n".join(f"{local_time(at)}  {line}" for at, line in glance.feed[-height:])
    parts: list[Any] = [_headline(glance)]
    if glance.answers:
        # An answer includes the phases of its flow; the boards would not fit on a small screen.
        answer = "\n".join(glance.answers[-1].lines())
        parts.append(panel.Panel(text.Text(answer), title="the operator asks"))
    else:
        parts += [panel.Panel(_board(lines), title=title) for title, lines in boards]
        shown = text.Text(feed, no_wrap=True, overflow="ellipsis")
        parts.append(panel.Panel(shown, title="events", height=height + FRAME))
    warned = text.Text("\n".join(alerts), no_wrap=True, overflow="ellipsis")
    parts.append(panel.Panel(warned, title="open alerts"))
    return console.Group(*parts)


def feed_height(rows: int, others: int) -> int:
    """Return how many events fit on a terminal of this many rows next to the other panels."""
    return max(1, min(FEED, rows - HEADLINE - others - FRAME - 1))


def _headline(glance: ScreenState) -> str:
    done = int(40 * glance.fraction)
    bar = f"[green]{'━' * done}[/green][dim]{'━' * (40 - done)}[/dim]"
    return f"[bold]Penstock demo[/bold]  {local_time(glance.now)} in New York  {bar}"


def _board(lines: list[PhaseStatus]) -> Any:
    # Imported here because only the live screen needs rich.
    from rich import table

    made = table.Table(box=None, show_header=False, padding=(0, 1))
    for line in lines:
        colour = COLOURS.get(line.word, "white")
        note = line.note.replace("[", r"\[")
        made.add_row(line.phase, f"[{colour}]{line.word}[/{colour}]", line.count, note)
    return made
