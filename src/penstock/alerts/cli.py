"""`penstock alerts`: list, acknowledge, silence and resolve alerts; rules, channels and notices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from penstock.alerts.records import AlertSelection, NewSilence, StoredAlert
from penstock.alerts.severity import SEVERITIES
from penstock.cli import output
from penstock.cli.app import App, Group, dry_run_option
from penstock.cli.arguments import confirm, parse_when
from penstock.cli.rows import collect
from penstock.core.clock import SystemClock, to_datetime
from penstock.core.errors import InvalidInput
from penstock.core.records.record import Page, minutes

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.alerts.records import AlertState, ChangedAlerts, Notice

LIMIT = click.IntRange(1, 10_000)
STATES = ["open", "acknowledged", "silenced", "resolved", "all"]
TEST_TRIES = 40
TEST_PAUSE_S = 0.5


def _filters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select alerts."""
    for option in (
        click.option("--severity", type=click.Choice(SEVERITIES), help="Only this severity."),
        click.option("--rule", metavar="NAME", help="Only alerts of this rule."),
        click.option("--pipeline", metavar="NAME", help="Only alerts about this pipeline."),
        click.option("--customer", metavar="ID", help="Only alerts of this customer."),
    ):
        function = option(function)
    return function


@click.group(cls=Group)
def alerts() -> None:
    """List, acknowledge, silence and resolve alerts; show rules and channels."""


@alerts.command("list")
@_filters
@click.option("--state", type=click.Choice(STATES), default="open", show_default=True,
              help="Filter by state.")  # fmt: skip
@click.option("--since", metavar="TIME", help="Only alerts opened at or after this time.")
@click.option("--sort", type=click.Choice(("newest", "severity")), default="newest",
              show_default=True, help="Newest or most severe first.")  # fmt: skip
@click.option("--limit", type=LIMIT, default=50, show_default=True,
              help="Maximum number of alerts.")  # fmt: skip
@click.pass_obj
def list_(app: App, /, *, state: str, since: str | None, limit: int, **given: Any) -> None:
    """List alerts with their suggested fixes."""
    chosen = cast("AlertState | None", None if state == "all" else state)
    with app.connect() as client:
        now = client.now()
        from_us = parse_when(since, "since", now)
        start = None if from_us is None else to_datetime(from_us)
        page = collect(
            lambda n, cursor: client.alerts.list(
                state=chosen, since=start, limit=n, cursor=cursor, **given
            ),
            limit,
        )

    def print_text() -> None:
        if not page.items:
            app.hint("No open alerts." if state == "open" else "No alerts.")
            return
        for a in page.items:
            _print_row(a, now)
        app.hint_more(page)

    app.emit(page, print_text)


@alerts.command("show")
@click.argument("alert_id", metavar="ALERT")
@click.pass_obj
def show(app: App, alert_id: str) -> None:
    """Show an alert: its values, threshold and command, and the notices about it."""
    with app.connect() as client:
        found = client.alerts.get(alert_id)
        now = client.now()
    app.emit(found, lambda: _print_alert(found, now))


@alerts.command("ack")
@click.argument("alert_ids", metavar="[ALERT]...", nargs=-1)
@_filters
@click.option("--note", metavar="TEXT", help="Note for others, such as who is handling it.")
@click.option("--yes", is_flag=True, help="Skip the confirmation of a selection by filter.")
@dry_run_option
@click.pass_obj
def ack(
    app: App, /, *, alert_ids: tuple[str, ...], note: str | None, yes: bool, **given: Any
) -> None:
    """Acknowledge alerts, by id or by filter, to show that you are handling them.

    No more notices are sent about acknowledged alerts until they are resolved.
    """
    selection = _selection(alert_ids, given)
    _ask(app, "Acknowledge", alert_ids, yes=yes)
    with app.connect() as client:
        done = client.alerts.acknowledge_many(selection, note=note)
    _report(app, done, "acknowledged")


@alerts.command("resolve")
@click.argument("alert_ids", metavar="[ALERT]...", nargs=-1)
@_filters
@click.option("--note", metavar="TEXT", help="Note for others, such as what was repaired.")
@click.option("--yes", is_flag=True, help="Skip the confirmation of a selection by filter.")
@dry_run_option
@click.pass_obj
def resolve(
    app: App, /, *, alert_ids: tuple[str, ...], note: str | None, yes: bool, **given: Any
) -> None:
    """Resolve alerts, by id or by filter.

    A rule whose condition still holds opens its alert again.
    """
    selection = _selection(alert_ids, given)
    _ask(app, "Resolve", alert_ids, yes=yes)
    with app.connect() as client:
        done = client.alerts.resolve_many(selection, note=note)
    _report(app, done, "resolved")


@alerts.command("silence")
@click.argument("alert_id", metavar="[ALERT]", required=False)
@_filters
@click.option("--all", "is_for_all", is_flag=True, help="Silence every alert.")
@click.option("--for", "duration", metavar="DURATION", help="Duration of the silence, such as 2h.")
@click.option("--from", "starts_at", metavar="TIME", help="Start, for planned maintenance.")
@click.option("--until", "ends_at", metavar="TIME", help="End, instead of --for.")
@click.option("--reason", required=True, metavar="TEXT", help="Reason, shown with the silence.")
@dry_run_option
@click.pass_obj
def silence(
    app: App, /, *, alert_id: str | None, is_for_all: bool, duration: str | None,
    starts_at: str | None, ends_at: str | None, reason: str, **given: Any,
) -> None:  # fmt: skip
    """Suppress notices about an alert, or about all that match, for a time.

    Silenced alerts stay listed. Those that still fire when the silence ends are reported then.
    """
    # Imported here because help does not need it.
    from penstock.core.clock import parse_duration

    with app.connect() as client:
        now = client.now()
        start, end = parse_when(starts_at, "from", now), parse_when(ends_at, "until", now)
        made = client.alerts.silence(
            NewSilence(
                alert_id=alert_id,
                is_for_all=is_for_all,
                reason=reason,
                starts_at=None if start is None else to_datetime(start),
                ends_at=None if end is None else to_datetime(end),
                duration=None if duration is None else minutes(parse_duration(duration, "for")),
                **given,
            )
        )

    def print_text() -> None:
        until = output.format_time_short(made.ends_at, now)
        count = output.plural(made.alerts, "open alert")
        click.echo(f"{made.silence_id} silences {_matches(made)} until {until}: {count}.")
        app.hint(f"End it: penstock alerts unsilence {made.silence_id}")

    app.emit(made, print_text)


@alerts.command("unsilence")
@click.argument("silence_id", metavar="SILENCE")
@dry_run_option
@click.pass_obj
def unsilence(app: App, silence_id: str) -> None:
    """End a silence now; notices about alerts that still fire are sent."""
    with app.connect() as client:
        ended = client.alerts.end_silence(silence_id)
    app.emit(ended, lambda: click.echo(f"{silence_id} has ended."))


@alerts.command("silences")
@click.option("--all", "with_ended", is_flag=True, help="Include silences that have ended.")
@click.option("--customer", metavar="ID", help="Only silences for this customer.")
@click.option("--limit", type=LIMIT, default=50, show_default=True,
              help="Maximum number of silences.")  # fmt: skip
@click.pass_obj
def silences(app: App, with_ended: bool, customer: str | None, limit: int) -> None:
    """List silences, newest first."""
    with app.connect() as client:
        page = collect(
            lambda n, cursor: client.alerts.silences(
                with_ended=with_ended, customer=customer, limit=n, cursor=cursor
            ),
            limit,
        )
        now = client.now()
    app.emit_page(
        page,
        {
            "SILENCE": lambda one: one.silence_id,
            "MATCHES": _matches,
            "FROM": lambda one: output.format_time_short(one.starts_at, now),
            "UNTIL": lambda one: output.format_time_short(one.ends_at, now),
            "ALERTS": lambda one: one.alerts,
            "BY": lambda one: one.created_by,
            "REASON": lambda one: one.reason,
        },
        empty="No silences: penstock alerts silence ALERT --for 2h --reason TEXT adds one.",
    )


@alerts.command("rules")
@click.pass_obj
def rules(app: App) -> None:
    """List alert rules: conditions, severities and how often they fired."""
    with app.connect() as client:
        page = Page(items=list(client.alerts.rules()))
        now = client.now()
    app.emit_page(
        page,
        {
            "RULE": lambda one: one.rule,
            "STATE": lambda one: one.state,
            "OPEN": lambda one: one.open_alerts or None,
            "8 DAYS": lambda one: " ".join(str(n) if n else "·" for n in one.fired_per_day),
            "LAST": lambda one: (
                output.format_time_short(one.last_fired_at, now) if one.last_fired_at else None
            ),
            "OPENS WHEN": lambda one: one.condition,
        },
        empty="No rules.",
    )


@alerts.command("channels")
@click.pass_obj
def channels(app: App) -> None:
    """List notification channels and whether they work."""
    with app.connect() as client:
        page = Page(items=list(client.alerts.channels()))
        now = client.now()

    def at(value: Any) -> str | None:
        return output.format_time_short(value, now) if value else None

    app.emit_page(
        page,
        {
            "CHANNEL": lambda one: one.channel,
            "KIND": lambda one: one.kind,
            "STATE": lambda one: one.state,
            "LAST SENT": lambda one: at(one.last_sent_at),
            "WAITING": lambda one: one.waiting or None,
            "DEAD": lambda one: one.dead or None,
            "NEXT TRY": lambda one: at(one.next_try_at),
            "LAST ERROR": lambda one: one.last_error,
            "GETS": lambda one: " | ".join(one.routes),
        },
        empty="No channels: declare them in the settings, see docs/how-to/alerts.md.",
    )


@alerts.command("notices")
@click.option("--channel", metavar="NAME", help="Only notices of this channel.")
@click.option("--state", type=click.Choice(["waiting", "sent", "dead", "all"]), default="all",
              show_default=True, help="Filter by state.")  # fmt: skip
@click.option("--limit", type=LIMIT, default=50, show_default=True,
              help="Maximum number of notices.")  # fmt: skip
@click.pass_obj
def notices(app: App, channel: str | None, state: str, limit: int) -> None:
    """List notices: sent, waiting and abandoned ones, with the reason."""
    chosen = cast("Any", None if state == "all" else state)
    with app.connect() as client:
        page = collect(
            lambda n, cursor: client.alerts.notices(
                channel=channel, state=chosen, limit=n, cursor=cursor
            ),
            limit,
        )
        now = client.now()
    app.emit_page(
        page,
        {
            "NOTICE": lambda one: one.notice_id,
            "CHANNEL": lambda one: one.channel,
            "CHANGE": lambda one: one.change,
            "ALERTS": lambda one: one.alerts,
            "STATE": lambda one: one.state,
            "TRIES": lambda one: one.attempts,
            "SINCE": lambda one: output.format_time_short(one.ended_at or one.created_at, now),
            "LAST ERROR": lambda one: one.last_error,
        },
        empty="No notices.",
    )


@alerts.command("test")
@click.argument("channel")
@click.option("--no-wait", is_flag=True, help="Only queue the message; do not wait for the result.")
@click.pass_obj
def test(app: App, channel: str, no_wait: bool) -> None:
    """Send a test message through a channel and report whether it was accepted."""
    clock = SystemClock()
    with app.connect() as client:
        sent = client.alerts.test_channel(channel)
        for _ in range(0 if no_wait else TEST_TRIES):
            if sent.state != "waiting":
                break
            clock.sleep(TEST_PAUSE_S)
            sent = client.alerts.notice(sent.notice_id)
    app.emit(sent, lambda: _print_test(sent))
    if sent.state == "dead":
        raise click.exceptions.Exit(1)


@alerts.command("resend")
@click.argument("channel")
@dry_run_option
@click.pass_obj
def resend(app: App, channel: str) -> None:
    """Send the abandoned notices of a channel again."""
    with app.connect() as client:
        count = client.alerts.resend(channel)
    record = {"channel": channel, "notices": count}
    app.emit(record, lambda: click.echo(f"{output.plural(count, 'notice')} will be sent again."))


def _selection(alert_ids: tuple[str, ...], given: dict[str, Any]) -> AlertSelection:
    if not alert_ids and not any(given.values()):
        raise InvalidInput(
            "ALERT", "ids of alerts, or a filter", None, "For example --rule config_failing."
        )
    return AlertSelection(alert_ids=list(alert_ids) or None, **given)


def _ask(app: App, verb: str, alert_ids: tuple[str, ...], *, yes: bool) -> None:
    if not (alert_ids or yes or app.is_json or app.is_dry_run):
        confirm(f"{verb} all alerts that match?")


def _report(app: App, done: ChangedAlerts, verb: str) -> None:
    def print_text() -> None:
        click.echo(f"{output.plural(done.changed, 'alert')} {verb}.")
        for one in done.alerts[:20]:
            click.echo(f"  {one.alert_id}  {one.severity:<8}  {output.escape_control(one.message)}")

    app.emit(done, print_text)


def _print_row(a: StoredAlert, now: int) -> None:
    severity = click.style(f"{a.severity:<8}", fg=output.COLOURS.get(a.severity))
    closed = "" if a.state == "open" else f"  [{a.state}]"
    since = output.format_time_short(a.opened_at, now)
    text = a.message if a.customer is None else f"{a.customer}: {a.message}"
    click.echo(f"{severity}  {since:<24}  {output.escape_control(text)}{closed}")
    if a.state != "resolved":
        fix = f"  → {output.escape_control(a.command)}" if a.command else ""
        click.echo(f"{'':<36}{a.alert_id}{fix}")


def _print_alert(a: StoredAlert, now: int) -> None:
    click.echo(f"{a.alert_id} · {a.severity} · {a.state} · {output.escape_control(a.message)}")
    values = ", ".join(f"{name} {value}" for name, value in a.values.items())
    by = f"by {a.acknowledged_by}" if a.acknowledged_by else None
    output.print_facts(
        [
            ("rule", a.rule),
            ("customer", a.customer),
            ("pipeline", a.pipeline),
            ("about", f"{a.subject_kind} {a.subject}"),
            ("opened", output.format_time_short(a.opened_at, now)),
            ("recurred", a.times if a.times > 1 else None),
            ("values", values or None),
            ("threshold", a.threshold),
            ("acknowledged", by),
            ("note", a.note),
            ("silence", a.silence_id),
            ("resolved", f"by {a.closed_by}" if a.closed_by else None),
            ("command", a.command),
            ("runbook", a.runbook),
        ]
    )
    if a.notified:
        output.print_table(
            ("CHANNEL", "CHANGE", "STATE", "AT"),
            [
                (one.channel, one.change, one.state, output.format_time_short(one.at, now))
                for one in a.notified
            ],
        )


def _print_test(sent: Notice) -> None:
    words = {
        "sent": "was accepted",
        "dead": f"was not accepted: {sent.last_error}",
        "waiting": "is waiting: no running process has sent it yet (penstock alerts channels)",
    }
    click.echo(f"The test message of {sent.channel} {words[sent.state]}.")


def _matches(one: Any) -> str:
    """Describe the alerts that a silence matches."""
    pairs = (
        ("rule", one.rule), ("severity", one.severity), ("customer", one.customer),
        ("pipeline", one.pipeline), ("alert", one.dedupe_key),
    )  # fmt: skip
    return ", ".join(f"{name} {value}" for name, value in pairs if value) or "every alert"
