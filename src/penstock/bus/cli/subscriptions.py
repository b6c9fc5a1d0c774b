"""`penstock subscriptions`: create and inspect subscriptions; pull, ack, seek and pause them."""

from __future__ import annotations

import json
from typing import Any

import click

from penstock.bus.cli.changes import describe_changes
from penstock.bus.cli.declared import apply, diff
from penstock.bus.cli.topics import LIMIT, OWNER_OPTION, content
from penstock.bus.message import ErrorKind, Nack
from penstock.bus.records import StoredSubscription, Subscription, SubscriptionDetail
from penstock.cli import output
from penstock.cli.app import App, Group, dry_run_option
from penstock.cli.arguments import JSON, confirm, parse_when
from penstock.cli.rows import collect
from penstock.client import UseCaseGroups
from penstock.core.clock import SECOND, parse_duration, to_datetime
from penstock.core.errors import Forbidden, InvalidInput, NotFound
from penstock.core.records.record import to_json_value
from penstock.core.records.validation import convert_input
from penstock.egress.policy import parse_target


@click.group(cls=Group)
def subscriptions() -> None:
    """Create, inspect, pull, seek and pause subscriptions."""


subscriptions.add_command(diff)
subscriptions.add_command(apply)


@subscriptions.command("list")
@OWNER_OPTION
@click.option("--topic", metavar="NAME", help="Only subscriptions of this topic.")
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="Maximum number of rows.")
@click.pass_obj
def list_(app: App, customer: str | None, topic: str | None, limit: int) -> None:
    """List subscriptions by name."""
    with app.connect() as client:
        page = collect(
            lambda n, cursor: client.subscriptions.list(
                customer=customer, topic=topic, has_backlog=True, limit=n, cursor=cursor
            ),
            limit,
        )
        now = client.now()
    app.emit_page(
        page,
        {
            "SUBSCRIPTION": lambda one: one.name,
            "TOPIC": lambda one: one.topic,
            "KIND": lambda one: one.kind,
            "DEADLINE": lambda one: output.format_span(one.ack_deadline),
            "DEAD LETTERS": lambda one: one.dead_letter_topic or "none",
            "WAITING": _waiting,
            "OLDEST": lambda one: _oldest(one, now),
            "STATE": lambda one: "paused" if one.is_paused else "",
        },
        empty="No subscriptions. Create one: penstock subscriptions create NAME --topic TOPIC",
    )


@subscriptions.command("show")
@click.argument("name")
@OWNER_OPTION
@click.pass_obj
def show(app: App, name: str, customer: str | None) -> None:
    """Show a subscription with its settings, its backlog and its totals."""
    with app.connect() as client:
        found = client.subscriptions.get(name, customer=customer)
        now = client.now()
    app.emit(found, lambda: _show(found, now))


@subscriptions.command("create")
@click.argument("name")
@click.option("--topic", required=True, metavar="NAME", help="Topic to subscribe to.")
@OWNER_OPTION
@click.option("--ack-deadline", default="60s", show_default=True, metavar="DURATION",
              help="Time to ack before a message is redelivered.")  # fmt: skip
@click.option("--min-backoff", default="10s", show_default=True, metavar="DURATION",
              help="Delay after the first failure; doubles with each further one.")  # fmt: skip
@click.option("--max-backoff", default="10m", show_default=True, metavar="DURATION",
              help="Longest delay between attempts.")  # fmt: skip
@click.option("--max-attempts", type=click.IntRange(1, 100), default=5, show_default=True,
              help="Delivery attempts before a message becomes a dead letter.")  # fmt: skip
@click.option("--no-dead-letters", is_flag=True, help="Retry until the messages expire.")
@click.option(
    "--dead-letter-topic", metavar="NAME", help="Topic for dead letters. Defaults to NAME.dlq."
)
@click.option("--filter", "filter_", metavar="EXPR",
              help='Deliver only matching messages, e.g. attributes.league = "nba".')  # fmt: skip
@click.option("--ordered", is_flag=True, help="Deliver messages of an ordering key in order.")
@click.option("--push", type=JSON, help="Endpoint and options for push delivery.")
@click.option("--binding", type=JSON,
              help='Start runs or flows, such as {"to": "runs", "pipeline": "nba"}.')  # fmt: skip
@click.option("--auto-replay", metavar="URL",
              help="Replay dead letters while this health check returns 2xx.")  # fmt: skip
@click.option("--auto-replay-after", metavar="DURATION",
              help="Minimum age of dead letters to replay. Defaults to 10m.")  # fmt: skip
@click.option("--auto-replay-rate", type=float, metavar="NUMBER",
              help="Automatic replays per second. Defaults to 10.")  # fmt: skip
@click.option("--replays-max", type=click.IntRange(0, 100), default=3, show_default=True,
              help="Maximum number of replays of a dead letter.")  # fmt: skip
@click.pass_obj
def create(app: App, /, name: str, **given: Any) -> None:
    """Create or replace a subscription; options that are not given take their defaults."""
    kind = "push" if given["push"] else "bound" if given["binding"] else "pull"
    body = {
        "name": name,
        "topic": given["topic"],
        "kind": kind,
        "ack_deadline_seconds": parse_duration(given["ack_deadline"], "ack_deadline") // SECOND,
        "min_backoff_seconds": parse_duration(given["min_backoff"], "min_backoff") / SECOND,
        "max_backoff_seconds": parse_duration(given["max_backoff"], "max_backoff") / SECOND,
        "max_delivery_attempts": given["max_attempts"],
        "dead_letters": not given["no_dead_letters"],
        "dead_letter_topic": given["dead_letter_topic"],
        "enable_message_ordering": given["ordered"],
        "filter": given["filter_"],
        "push": given["push"],
        "binding": given["binding"],
        "auto_replay": _auto_replay(given),
        "replays_max": given["replays_max"],
    }
    wanted = convert_input(body, Subscription)
    known: set[str] = set()
    with app.connect() as client:
        before = _before(client, name, given["customer"])
        made = client.subscriptions.declare(wanted, customer=given["customer"])
        target = None if made.binding is None else made.binding.pipeline
        if target is not None:
            known = {one.pipeline for one in client.views.pipelines()}

    def print_text() -> None:
        dead = made.dead_letter_topic
        click.echo(f"{name} subscribes to {made.topic} ({made.kind}).")
        if before is not None:
            app.hint(describe_changes(before, made))
        app.hint(
            f"Dead letters: {dead}"
            if dead
            else "No dead letters: failures are retried until retention ends."
        )
        if made.push is not None:
            app.hint(_reach(app, made.push.endpoint))
        if target is not None and target not in known:
            app.hint(
                f"Pipeline {output.escape_control(target)} is not registered: until it is, every "
                "message becomes a dead letter."
            )

    app.emit(made, print_text)


def _auto_replay(given: dict[str, Any]) -> dict[str, Any] | None:
    """Return the automatic replay that the options describe; None without a health check."""
    more = {"after": given["auto_replay_after"], "rate": given["auto_replay_rate"]}
    asked = {name: value for name, value in more.items() if value is not None}
    if given["auto_replay"] is None:
        for name in asked:
            raise InvalidInput(f"auto_replay_{name}", "--auto-replay URL as well", asked[name])
        return None
    return {"health_url": given["auto_replay"], **asked}


@subscriptions.command("delete")
@click.argument("name")
@OWNER_OPTION
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@dry_run_option
@click.pass_obj
def delete(app: App, name: str, customer: str | None, yes: bool) -> None:
    """Delete a subscription together with its backlog."""
    if not (yes or app.is_json or app.is_dry_run):
        confirm(f"Delete the subscription {name} and its backlog?")
    with app.connect() as client:
        client.subscriptions.delete(name, customer=customer)
    app.emit({"name": name, "outcome": "deleted"}, lambda: click.echo(f"{name} is deleted."))


@subscriptions.command("pause")
@click.argument("name")
@OWNER_OPTION
@dry_run_option
@click.pass_obj
def pause(app: App, name: str, customer: str | None) -> None:
    """Stop delivering messages; those already delivered can still be acked."""
    with app.connect() as client:
        made = client.subscriptions.pause(name, True, customer=customer)
    app.emit(made, lambda: click.echo(f"{name} is paused."))


@subscriptions.command("resume")
@click.argument("name")
@OWNER_OPTION
@dry_run_option
@click.pass_obj
def resume(app: App, name: str, customer: str | None) -> None:
    """Deliver the messages of a paused subscription again.

    Messages waiting for a retry become due immediately, even if the subscription was not paused:
    use it when the system that a consumer writes to has recovered.
    """
    with app.connect() as client:
        made = client.subscriptions.pause(name, False, customer=customer)
    app.emit(made, lambda: click.echo(f"{name} is resumed."))


@subscriptions.command("seek")
@click.argument("name")
@click.argument("when", metavar="WHEN")
@OWNER_OPTION
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@dry_run_option
@click.pass_obj
def seek(app: App, name: str, when: str, customer: str | None, yes: bool) -> None:
    """Redeliver messages published since WHEN, an ISO time or an age (2h, 3d); purge older ones."""
    with app.connect() as client:
        to = parse_when(when, "when", client.now())
        assert to is not None
        if not (yes or app.is_json or app.is_dry_run):
            confirm(f"Redeliver messages since {output.format_time(to)} and purge older ones?")
        result = client.subscriptions.seek(name, to_datetime(to), customer=customer)
    text = f"{result.delivered_again} to be redelivered, {result.purged} purged."
    app.emit(result, lambda: click.echo(text))


@subscriptions.command("purge")
@click.argument("name")
@OWNER_OPTION
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@dry_run_option
@click.pass_obj
def purge(app: App, name: str, customer: str | None, yes: bool) -> None:
    """Delete the backlog; its messages will not be delivered."""
    if not (yes or app.is_json or app.is_dry_run):
        confirm(f"Purge the backlog of {name}?")
    with app.connect() as client:
        count = client.subscriptions.purge(name, customer=customer)
    text = f"{output.plural(count, 'message')} purged."
    app.emit({"purged": count}, lambda: click.echo(text))


@subscriptions.command("pull")
@click.argument("name")
@OWNER_OPTION
@click.option("--limit", "-n", "n", type=click.IntRange(1, 1_000), default=1, show_default=True,
              help="Maximum number of messages.")  # fmt: skip
@click.option("--wait", default="0s", metavar="DURATION", help="How long to wait; at most 60s.")
@click.option("--ack", "is_acked", is_flag=True, help="Ack the messages immediately.")
@click.pass_obj
def pull(app: App, name: str, customer: str | None, n: int, wait: str, is_acked: bool) -> None:
    """Lease messages and print them; without --ack they are redelivered after the deadline."""
    seconds = min(parse_duration(wait, "wait") / SECOND, 60)
    with app.connect() as client:
        found = client.subscriptions.pull(
            name, max_messages=n, wait_seconds=seconds, customer=customer
        )
        if found and is_acked:
            client.subscriptions.ack(name, [one.ack_id for one in found], customer=customer)
        why = "" if found or app.is_json else _why_nothing(client, name, customer)

    def print_text() -> None:
        if not found:
            app.hint(why)
        for one in found:
            message = one.message
            click.echo(f"{message.message_id} · attempt {one.attempt} · ack id {one.ack_id}")
            for key, value in sorted(message.attributes.items()):
                click.echo(f"  {output.escape_control(key)} = {output.escape_control(value)}")
            click.echo(content(message.data))

    app.emit({"received_messages": found}, print_text)


@subscriptions.command("ack")
@click.argument("name")
@click.argument("ack_ids", nargs=-1, required=True, metavar="ACK_ID...")
@OWNER_OPTION
@click.pass_obj
def ack(app: App, name: str, ack_ids: tuple[str, ...], customer: str | None) -> None:
    """Acknowledge deliveries by their ack ids; they are not delivered again."""
    with app.connect() as client:
        outcomes = client.subscriptions.ack(name, ack_ids, customer=customer)
    app.emit({"outcomes": outcomes}, lambda: click.echo(" ".join(outcomes)))


@subscriptions.command("nack")
@click.argument("name")
@click.argument("ack_ids", nargs=-1, required=True, metavar="ACK_ID...")
@OWNER_OPTION
@click.option(
    "--poison", is_flag=True, help="Make the message a dead letter without further attempts."
)
@click.option("--error", default="", metavar="TEXT", help="Error text, stored with the delivery.")
@click.pass_obj
def nack(
    app: App, name: str, ack_ids: tuple[str, ...], customer: str | None, poison: bool, error: str
) -> None:
    """Reject deliveries by their ack ids; they are retried after the backoff."""
    kind = ErrorKind.POISON if poison else ErrorKind.TRANSIENT
    nacks = [Nack(ack_id=ack_id, kind=kind, error=error) for ack_id in ack_ids]
    with app.connect() as client:
        outcomes = client.subscriptions.nack(name, nacks, customer=customer)
    app.emit({"outcomes": outcomes}, lambda: click.echo(" ".join(outcomes)))


def _before(client: UseCaseGroups, name: str, customer: str | None) -> StoredSubscription | None:
    """Return the existing subscription; None if there is none."""
    try:
        return client.subscriptions.get(name, customer=customer).subscription
    except (NotFound, InvalidInput):  # missing, or an invalid name: `declare` reports the latter
        return None


def _reach(app: App, endpoint: str) -> str:
    """Return the push endpoint, or why the settings forbid it; with a remote API, the server checks
    it.
    """
    # Imported here because help and completion need no settings, as in `App.settings`.
    from penstock.assembly.settings import egress_rules

    settings = app.settings()
    if not settings.url:
        try:
            parse_target(endpoint, egress_rules(settings), "push_endpoint")
        except InvalidInput as refused:
            return f"The settings do not allow this endpoint: {refused.message}"
    return f"Pushed to: {endpoint}"


def _why_nothing(client: UseCaseGroups, name: str, customer: str | None) -> str:
    """Explain an empty pull: the subscription is paused or empty, or its messages are not ready."""
    try:
        found = client.subscriptions.get(name, customer=customer)
    except Forbidden:  # a worker's key may pull messages but not read the subscription
        return "No messages to deliver now."
    waits = found.backlog
    if found.subscription.is_paused:
        return f"{name} is paused: penstock subscriptions resume {name}"
    counts = {"leased": waits.leased, "delayed": waits.delayed, "behind a key": waits.behind}
    kept = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"No messages to deliver now: {kept}." if kept else "The backlog is empty."


def _waiting(one: StoredSubscription) -> str:
    """Return the number of messages that no consumer holds."""
    found = one.backlog
    return "" if found is None else f"{found.ready + found.delayed + found.behind:,}"


def _oldest(one: StoredSubscription, now: int) -> str:
    at = None if one.backlog is None else one.backlog.oldest_at
    return "" if at is None else output.format_time_short(at, now)


def _show(found: SubscriptionDetail, now: int) -> None:
    sub, waits = found.subscription, found.backlog
    totals = to_json_value(found.totals)
    state = " · paused" if sub.is_paused else ""
    click.echo(f"{sub.name} · topic {sub.topic} · {sub.kind}{state}")
    oldest = waits.oldest_at
    output.print_facts(
        [
            ("ready", waits.ready),
            ("leased", waits.leased),
            ("delayed", waits.delayed),
            ("behind a key", waits.behind),
            ("oldest", None if oldest is None else output.format_time_short(oldest, now)),
            ("deadline", output.format_span(sub.ack_deadline)),
            ("attempts", sub.max_attempts),
            ("dead letters", sub.dead_letter_topic or "none"),
            ("filter", sub.filter),
            ("ordered", "by ordering key" if sub.is_ordered else None),
            ("pushed to", None if sub.push is None else sub.push.endpoint),
            (
                "bound to",
                None if sub.binding is None else json.dumps(to_json_value(sub.binding)),
            ),
            ("totals", ", ".join(f"{n} {word}" for word, n in totals.items() if n)),
        ]
    )
    if found.totals.dead_lettered:
        click.echo(f"Dead letters: penstock dlq list --subscription {sub.name}")
