"""How things look: times with relative hints, tables for people, records for programs.

Programs get ISO times in UTC, public ids and the API's field names; people get tables. rich is
loaded when the first table is printed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from penstock.core.clock import DAY, HOUR, MINUTE, SECOND, format_duration, iso, to_datetime
from penstock.core.ids import encode
from penstock.core.model import shown_key

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.core.model import Config, Run

TABLE_WIDTH = 5_000
COLOURS = {
    "COMPLETED": "green", "FAILED": "red", "TIMEOUT": "red", "CANCELLED": "yellow",
    "RUNNING": "cyan", "CLAIMED": "cyan", "HIGH": "red", "CRITICAL": "red", "MEDIUM": "yellow",
    "OK": "green", "WARN": "yellow", "FAIL": "red", "open": "red", "dead": "red", "off": "yellow",
}  # fmt: skip
WAITING = {0: "ready", 1: "later", 2: "paused", 3: "blocked"}


def when(us: int | None, now: int | None = None) -> str:
    """A time as people read it: UTC to the second, and how far away it is."""
    if us is None:
        return "-"
    text = to_datetime(us).strftime("%Y-%m-%d %H:%M:%SZ")
    return text if now is None else f"{text} ({relative(us - now)})"


def brief(us: int | None, now: int) -> str:
    """A time in a table: the hour when it is today's, the date too when it is not."""
    if us is None:
        return "-"
    form = "%H:%MZ" if us // DAY == now // DAY else "%m-%d %H:%MZ"
    return f"{to_datetime(us).strftime(form)} ({relative(us - now)})"


def relative(us: int) -> str:
    """A difference in words: `in 4 min`, `2 h ago`."""
    if abs(us) < SECOND:
        return "now"
    text = span(abs(us))
    return f"in {text}" if us > 0 else f"{text} ago"


def span(us: int | None) -> str:
    """A duration in one unit: `350 ms`, `42 s`, `4 min`, `3 h`, `2 d`."""
    if us is None:
        return "-"
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s")):
        if us >= 2 * unit or (us >= unit and unit != DAY):
            return f"{us / unit:.0f} {name}" if us >= 10 * unit else f"{us / unit:.2g} {name}"
    return f"{us / 1000:.0f} ms"


def iso_or_none(us: int | None) -> str | None:
    """ISO text of a time that may be absent."""
    return None if us is None else iso(us)


def coloured(word: str) -> str:
    """A word in its colour, as rich markup."""
    colour = COLOURS.get(word)
    return f"[{colour}]{word}[/{colour}]" if colour else word


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "") -> None:
    """Print a table: one line per row whatever the terminal's width, empty columns left out."""
    # rich costs 100 ms: only commands that print a table load it.
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold", title=title or None,
                 title_justify="left", title_style="bold")  # fmt: skip
    cells = [[_cell(value) for value in row] for row in rows]
    kept = [n for n, _ in enumerate(columns) if any(row[n] != "-" for row in cells)]
    for place in kept:
        made.add_column(columns[place], no_wrap=True)
    for row in cells:
        made.add_row(*[row[place] for place in kept])
    wide = console(TABLE_WIDTH)
    with wide.capture() as drawn:
        wide.print(made)
    click.echo("\n".join(line.rstrip() for line in drawn.get().splitlines()))


def facts(pairs: Sequence[tuple[str, object]]) -> None:
    """Print name and value, one pair a line, names aligned; empty values are left out."""
    shown = [(name, _plain(value)) for name, value in pairs if value not in (None, "", "-")]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"  {name:<{width}}  {value}")


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return printable(json.dumps(value) if isinstance(value, dict | list) else str(value))


def printable(text: str) -> str:
    """A text that cannot steer the terminal: control characters are spelled out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def console(width: int | None = None) -> Console:
    """A console on standard output."""
    # As above: rich is loaded only when something is drawn.
    from rich.console import Console

    return Console(width=width, highlight=False, soft_wrap=False)


def plural(n: int, word: str, many: str | None = None) -> str:
    """`1 run`, `2,000 runs`."""
    return f"{n:,} {word if n == 1 else many or word + 's'}"


def first_line(text: str | None, limit: int = 80) -> str:
    """The first line of a text, cut."""
    line = (text or "").strip().splitlines()[0] if (text or "").strip() else ""
    return line if len(line) <= limit else line[: limit - 1] + "…"


def error_message(details: str | None) -> str:
    """The sentence inside stored error details."""
    if not details:
        return ""
    try:
        found = json.loads(details)
    except ValueError:
        return details
    return str(found.get("message", details)) if isinstance(found, dict) else details


def run_state(run: Run) -> str:
    """A run's state as people read it: why it waits, whether it is dead."""
    if run.state == "PENDING" and run.admission is not None:
        return f"PENDING {WAITING.get(run.admission, '')}".rstrip()
    return f"{run.state} dead" if run.is_dead else run.state


def run_record(run: Run) -> dict[str, Any]:
    """A run for programs."""
    return {
        "run_id": encode("run", run.run_id),
        "customer_id": run.customer_id,
        "config_id": _id("cfg", run.config_id),
        "pipeline": run.pipeline,
        "phase": run.phase,
        "processor": run.processor,
        "partition": run.partition,
        "mode": run.mode,
        "slot": iso(run.slot),
        "scheduled_time": iso(run.scheduled_time),
        "priority": run.priority,
        "state": run.state,
        "waits": WAITING.get(run.admission) if run.admission is not None else None,
        "status": run.status,
        "claimed_by": run.claimed_by,
        "claimed_at": iso_or_none(run.claimed_at),
        "started_at": iso_or_none(run.started_at),
        "finished_at": iso_or_none(run.finished_at),
        "attempt_number": run.attempt,
        "parent_run_id": _id("run", run.parent_run_id),
        "root_run_id": _id("run", run.root_run_id),
        "error_type": run.error_type,
        "error_details": parsed(run.error_details),
        "result_summary": parsed(run.result),
        "records_processed": run.records,
        "sla_met": run.sla_met,
        "is_dead": run.is_dead,
        "cancel_requested_at": iso_or_none(run.cancel_requested_at),
        "correlation_id": run.correlation_id,
        "ordering_key": shown_key(run.ordering_key),
        "trigger_source": run.trigger_source,
        "parameters": parsed(run.parameters),
        "created_at": iso(run.created_at),
    }


def config_record(config: Config) -> dict[str, Any]:
    """A config for programs."""
    return {
        "config_id": encode("cfg", config.config_id),
        "customer_id": config.customer_id,
        "pipeline_template": config.pipeline,
        "provider": config.provider,
        "domain": config.domain,
        "schedule_type": config.schedule_type,
        "schedule_cron": config.schedule_cron,
        "schedule_interval_minutes": config.interval_us / MINUTE if config.interval_us else None,
        "timezone": config.timezone,
        "event_topic": config.event_topic,
        "event_filter": config.event_filter,
        "parameters": parsed(config.parameters),
        "retry_config": parsed(config.retry),
        "priority": config.priority,
        "max_execution_duration_minutes": config.max_execution_us / MINUTE,
        "sla_breach_threshold_minutes": config.sla_us / MINUTE,
        "catch_up": config.catch_up,
        "catch_up_window_minutes": config.catch_up_window_us / MINUTE,
        "overlap": config.overlap,
        "jitter_seconds": config.jitter_us / SECOND,
        "is_active": config.is_active,
        "inactive_reason": config.inactive_reason,
        "is_paused": bool(config.is_paused),
        "version": config.version,
        "next_run_time": iso_or_none(config.next_run_time),
        "last_run_time": iso_or_none(config.last_run_time),
        "last_run_status": config.last_run_status,
        "consecutive_failures": config.consecutive_failures,
        "created_at": iso(config.created_at),
        "created_by": config.created_by,
        "updated_at": iso(config.updated_at),
    }


def schedule_words(config: Config) -> str:
    """When a config fires, in a few words."""
    if config.schedule_cron:
        return f"{config.schedule_cron} {config.timezone}"
    if config.interval_us:
        return f"every {format_duration(config.interval_us)}"
    return f"on {config.event_topic}"


def _cell(value: object) -> str:
    # rich reads square brackets as markup: text from users is escaped, our colours are added here.
    from rich.markup import escape  # as above: loaded with the first table

    text = "-" if value is None or value == "" else printable(str(value))
    return coloured(text) if text in COLOURS else _first_word(text, escape(text))


def _first_word(text: str, escaped: str) -> str:
    """Colour a leading state such as `FAILED dead`."""
    word = text.split(" ")[0]
    colour = COLOURS.get(word) if word.isupper() else None
    return f"[{colour}]{escaped}[/{colour}]" if colour else escaped


def _id(kind: str, n: int | None) -> str | None:
    return None if n is None else encode(kind, n)


def parsed(text: str | None) -> Any:
    """Stored JSON, or the text itself when it is none."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text
