"""Output of the saas demo: a live screen on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import output
from penstock.core.clock import Clock, Micros, SystemClock, to_datetime

if TYPE_CHECKING:
    from penstock.demo.saas.play import ScreenState

LINE_SECONDS = 5.0
FEED = 9
BAR = 24
Show = Callable[["ScreenState"], None]


@contextlib.contextmanager
def screen(*, is_live: bool, is_silent: bool = False) -> Iterator[Show]:
    """Yield the function that shows a ScreenState: on a live screen, as lines, or not at all."""
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
    """Plain output: every feed line immediately, and a status line every LINE_SECONDS."""

    def __init__(self, write: Callable[[str], None], clock: Clock | None = None) -> None:
        self._write = write
        self._clock = clock or SystemClock()
        self._printed = 0
        self._at = float("-inf")

    def __call__(self, glance: ScreenState) -> None:
        """Print new feed lines, and the status line if it is due."""
        for at, text in glance.feed[self._printed :]:
            self._write(f"  {clock_text(at)}  {text}")
        self._printed = len(glance.feed)
        if self._clock.monotonic() - self._at < LINE_SECONDS and glance.phase != "done":
            return
        self._at = self._clock.monotonic()
        o, c = glance.overview, glance.counts
        self._write(
            f"{glance.fraction:4.0%} {clock_text(glance.now)}  ready {o.ready_runs:,} · running "
            f"{o.running_runs:,} · completed {c['COMPLETED']:,} · retried {c['retried']:,} · "
            f"dead {c['dead']:,} · {glance.rate:,.0f} runs/s"
        )


def clock_text(at: Micros) -> str:
    """Format the simulated time as weekday and time of day."""
    return to_datetime(at).strftime("%a %H:%M")


def render(glance: ScreenState) -> Any:
    """Return the whole screen as a rich renderable."""
    # Imported here because only the live screen needs rich.
    from rich import columns, console, panel

    feed = "\n".join(f"[dim]{clock_text(at)}[/dim]  {text}" for at, text in glance.feed[-FEED:])
    alerts = "\n".join(
        f"[{output.COLOURS.get(a.severity, 'white')}]{a.severity}[/]  {a.message}"
        for a in glance.alerts
    )
    return console.Group(
        _headline(glance),
        columns.Columns(
            [panel.Panel(_queue(glance), title="queue"), panel.Panel(_sums(glance), title="totals")]
        ),
        panel.Panel(feed or "…", title="events", height=FEED + 2),
        panel.Panel(_flood(glance), title="fairness"),
        panel.Panel(alerts or "[dim]none[/dim]", title="open alerts", height=8),
    )


def _headline(glance: ScreenState) -> str:
    done = int(40 * glance.fraction)
    bar = f"[green]{'━' * done}[/green][dim]{'━' * (40 - done)}[/dim]"
    return f"[bold]Penstock demo[/bold]  {clock_text(glance.now)} UTC  {bar}  {glance.phase}"


def _queue(glance: ScreenState) -> str:
    o = glance.overview
    rows = (
        ("ready", o.ready_runs, "yellow"),
        ("later", o.later_runs, "blue"),
        ("blocked", o.blocked_runs, "magenta"),
        ("running", o.running_runs + o.claimed_runs, "cyan"),
    )
    return "\n".join(
        f"{name:<8}{n:>7,}  [{colour}]{'█' * _length(n)}[/{colour}]" for name, n, colour in rows
    )


def _length(n: int) -> int:
    """Return a bar length on a square-root scale: 5,000 fills the bar, 50 is still visible."""
    return min(BAR, int(BAR * (n / 5_000) ** 0.5 + 0.999))


def _sums(glance: ScreenState) -> str:
    c = glance.counts
    return (
        f"completed {c['COMPLETED']:>8,}   {glance.rate:,.0f} runs/s\n"
        f"retried   {c['retried']:>8,}   recovered {c['rescued']:,}\n"
        f"dead      {c['dead']:>8,}   refused {c['refused']:,}\n"
        f"missed    {c['missed']:>8,}   workers {glance.workers}"
    )


def _flood(glance: ScreenState) -> str:
    if not glance.flood_size:
        return "[dim]no flood yet[/dim]"
    waits = glance.waits
    left = glance.flood_size - waits.flood_started
    return (
        f"{glance.flooder}: {max(0, left):,} of {glance.flood_size:,} runs still waiting.  "
        f"Others: {len(waits.others_us):,} runs of {len(waits.seen):,} customers started since, "
        f"median wait {output.format_span(waits.median_us())}; "
        f"{output.plural(len(waits.delayed), 'customer')} waited over 5 min."
    )
