"""Live terminal views: frames that refresh, single keys, and restoring the terminal."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

from penstock.cli import output
from penstock.core.errors import ApiUnavailable, StoreError

Frame = Callable[[], Any]
"""Function that returns the current frame as a rich renderable."""


def is_interactive() -> bool:
    """Return whether input and output are terminals."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def watch(frame: Frame, on_key: Callable[[str], bool], interval: float) -> None:
    """Show frames until `on_key` returns False. The error of a failing frame is shown.

    Without a terminal, prints one frame and exits.
    """
    console = output.console()
    if not is_interactive():
        console.print(frame())
        return
    # Imported here because importing rich takes 100 ms.
    from rich.live import Live

    with _keys() as next_key, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_shown(frame), refresh=True)
            key = next_key(interval)
            if key in ("q", "Q", "\x03", "\x1b") or (key and not on_key(key)):
                return


def _shown(frame: Frame) -> Any:
    """Return a frame; an outage is shown instead of ending the view."""
    from rich.text import Text  # as above

    try:
        return frame()
    except (StoreError, ApiUnavailable) as error:
        return Text(f"{error}\nTrying again; q quits.", style="yellow")


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Read single keys without echo; the terminal is restored afterwards."""
    try:
        # Imported here because Windows has no termios.
        import termios
        import tty  # as above
    except ImportError:
        raise click.UsageError("A live view needs a POSIX terminal; omit --watch.") from None
    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)

    def next_key(seconds: float) -> str:
        ready, _, _ = select.select([handle], [], [], seconds)
        return os.read(handle, 1).decode("utf-8", "replace") if ready else ""

    try:
        tty.setcbreak(handle)
        yield next_key
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)
