"""`penstock subscriptions`: who takes messages; what waits; pull, ack, seek, pause."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli import shapes
from penstock.cli.app import App, Group
from penstock.cli.given import JSON, moment
from penstock.cli.topics import LIMIT, WHOSE, content
from penstock.cli.usecases import Shape
from penstock.core.clock import SECOND, iso, parse_duration


@click.group(cls=Group)
def subscriptions() -> None:
    """Who takes messages: create, look, pull, seek, pause."""


@subscriptions.command("list")
@WHOSE
@click.option("--topic", metavar="NAME", help="Only of this topic.")
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="At most so many.")
@click.pass_obj
def list_(app: App, customer: str | None, topic: str | None, limit: int) -> None:
    """List subscriptions by name."""
    with app.use_cases() as cases:
        found = cases.bus.subscriptions(customer, topic, limit)

    def people() -> None:
        if not found:
            app.say("No subscriptions. Make one: penstock subscriptions create NAME --topic TOPIC")
            return
        shapes.table(
            ("SUBSCRIPTION", "TOPIC", "KIND", "DEADLINE", "DEAD LETTERS", ""),
            [
                (s["name"], s["topic"], s["kind"],
                 shapes.span(int(s["ack_deadline_seconds"] * SECOND)),
                 s["dead_letter_topic"] or "none", "paused" if s["is_paused"] else "")
                for s in found
            ],
        )  # fmt: skip

    app.emit({"subscriptions": found}, people)


@subscriptions.command("show")
@click.argument("name")
@WHOSE
@click.pass_obj
def show(app: App, name: str, customer: str | None) -> None:
    """Show a subscription: what waits in it, and what became of the rest."""
    with app.use_cases() as cases:
        found = cases.bus.subscription(name, customer)
        now = cases.now()
    app.emit(found, lambda: _show(found, now))


@subscriptions.command("create")
@click.argument("name")
@click.option("--topic", required=True, metavar="NAME", help="The topic it takes from.")
@WHOSE
@click.option("--ack-deadline", default="60s", show_default=True, metavar="DURATION",
              help="How long a message is held.")  # fmt: skip
@click.option("--min-backoff", default="10s", show_default=True, metavar="DURATION")
@click.option("--max-backoff", default="10m", show_default=True, metavar="DURATION")
@click.option("--max-attempts", type=click.IntRange(5, 100), default=5, show_default=True,
              help="After so many it is a dead letter.")  # fmt: skip
@click.option("--no-dead-letters", is_flag=True, help="Retry for ever; poison is then dropped.")
@click.option("--dead-letter-topic", metavar="NAME", help="NAME.dlq unless said.")
@click.option("--filter", "filter_", metavar="EXPR", help='Such as attributes.league = "nba".')
@click.option("--ordered", is_flag=True, help="One in flight per ordering key, in order.")
@click.option("--push", type=JSON, help="Where and how messages are posted, as JSON.")
@click.option("--binding", type=JSON, help='Such as {"to": "runs", "pipeline": "nba"}.')
@click.option("--replays-max", type=click.IntRange(0, 100), default=3, show_default=True)
@click.pass_obj
def create(app: App, /, name: str, **given: Any) -> None:
    """Make a subscription, or change it to what is said here."""
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
        "replays_max": given["replays_max"],
    }
    with app.use_cases() as cases:
        made = cases.bus.declare(body, given["customer"])

    def people() -> None:
        dead = made["dead_letter_topic"]
        click.echo(f"{name} takes from {made['topic']} ({made['kind']}).")
        app.say(f"Dead letters: {dead}" if dead else "No dead letters: poison will be dropped.")

    app.emit(made, people)


@subscriptions.command("delete")
@click.argument("name")
@WHOSE
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(app: App, name: str, customer: str | None, yes: bool) -> None:
    """Delete a subscription; what waits in it is purged."""
    if not yes and not app.is_json:
        click.confirm(f"Delete the subscription {name} with what waits in it?", abort=True)
    with app.use_cases() as cases:
        cases.bus.delete(name, customer)
    app.emit({"name": name, "outcome": "deleted"}, lambda: click.echo(f"{name} is deleted."))


@subscriptions.command("pause")
@click.argument("name")
@WHOSE
@click.pass_obj
def pause(app: App, name: str, customer: str | None) -> None:
    """Stop handing messages over; what is out may still be acked."""
    with app.use_cases() as cases:
        made = cases.bus.pause(name, True, customer)
    app.emit(made, lambda: click.echo(f"{name} is paused."))


@subscriptions.command("resume")
@click.argument("name")
@WHOSE
@click.pass_obj
def resume(app: App, name: str, customer: str | None) -> None:
    """Hand messages over again."""
    with app.use_cases() as cases:
        made = cases.bus.pause(name, False, customer)
    app.emit(made, lambda: click.echo(f"{name} goes on."))


@subscriptions.command("seek")
@click.argument("name")
@click.argument("when", metavar="WHEN")
@WHOSE
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def seek(app: App, name: str, when: str, customer: str | None, yes: bool) -> None:
    """Go to a time (ISO, or 2h, 3d ago): what came since comes again, what is older is purged."""
    with app.use_cases() as cases:
        to = moment(when, "when", cases.now())
        assert to is not None
        if not yes and not app.is_json:
            click.confirm(f"Deliver everything since {shapes.when(to)} again?", abort=True)
        told = cases.bus.seek(name, iso(to), customer)
    text = f"{told['delivered_again']} come again, {told['purged']} are purged."
    app.emit(told, lambda: click.echo(text))


@subscriptions.command("purge")
@click.argument("name")
@WHOSE
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def purge(app: App, name: str, customer: str | None, yes: bool) -> None:
    """Drop everything that waits; it will not be delivered."""
    if not yes and not app.is_json:
        click.confirm(f"Drop everything that waits in {name}?", abort=True)
    with app.use_cases() as cases:
        count = cases.bus.purge(name, customer)
    text = f"{shapes.plural(count, 'message')} purged."
    app.emit({"purged": count}, lambda: click.echo(text))


@subscriptions.command("pull")
@click.argument("name")
@WHOSE
@click.option("-n", "n", type=click.IntRange(1, 1_000), default=1, show_default=True)
@click.option("--wait", default="0s", metavar="DURATION", help="Wait for a message so long.")
@click.option("--ack", "is_acked", is_flag=True, help="Settle them at once.")
@click.pass_obj
def pull(app: App, name: str, customer: str | None, n: int, wait: str, is_acked: bool) -> None:
    """Take messages under lease and show them."""
    seconds = min(parse_duration(wait, "wait") / SECOND, 60)
    with app.use_cases() as cases:
        found = cases.bus.pull(name, n, seconds, customer)
        if found and is_acked:
            cases.bus.ack(name, [one["ack_id"] for one in found], customer)

    def people() -> None:
        if not found:
            app.say("Nothing waits.")
        for one in found:
            message = one["message"]
            click.echo(f"{message['message_id']} · try {one['delivery_attempt']} · "
                       f"ack id {one['ack_id']}")  # fmt: skip
            for key, value in sorted(message["attributes"].items()):
                click.echo(f"  {shapes.printable(key)} = {shapes.printable(value)}")
            click.echo(content(message["data"]))

    app.emit({"received_messages": found}, people)


@subscriptions.command("ack")
@click.argument("name")
@click.argument("ack_ids", nargs=-1, required=True, metavar="ACK_ID...")
@WHOSE
@click.pass_obj
def ack(app: App, name: str, ack_ids: tuple[str, ...], customer: str | None) -> None:
    """Settle deliveries."""
    with app.use_cases() as cases:
        told = cases.bus.ack(name, ack_ids, customer)
    app.emit({"outcomes": told}, lambda: click.echo(" ".join(told)))


@subscriptions.command("nack")
@click.argument("name")
@click.argument("ack_ids", nargs=-1, required=True, metavar="ACK_ID...")
@WHOSE
@click.option("--poison", is_flag=True, help="Straight to the dead letters.")
@click.option("--error", default="", metavar="TEXT", help="Why.")
@click.pass_obj
def nack(
    app: App, name: str, ack_ids: tuple[str, ...], customer: str | None, poison: bool, error: str
) -> None:
    """Give deliveries back."""
    kind = "poison" if poison else "transient"
    nacks = [{"ack_id": ack_id, "kind": kind, "error": error} for ack_id in ack_ids]
    with app.use_cases() as cases:
        told = cases.bus.nack(name, nacks, customer)
    app.emit({"outcomes": told}, lambda: click.echo(" ".join(told)))


def _show(found: Shape, now: int) -> None:
    sub, waits, sums = found["subscription"], found["backlog"], found["sums"]
    state = " · paused" if sub["is_paused"] else ""
    click.echo(f"{sub['name']} · takes from {sub['topic']} · {sub['kind']}{state}")
    oldest = shapes.micros(waits["oldest_publish_time"])
    shapes.facts(
        [
            ("waiting", waits["ready"]),
            ("held", waits["leased"]),
            ("retrying", waits["delayed"]),
            ("behind a key", waits["behind_ordering_key"]),
            ("oldest", None if oldest is None else shapes.brief(oldest, now)),
            ("deadline", shapes.span(int(sub["ack_deadline_seconds"] * SECOND))),
            ("attempts", sub["max_delivery_attempts"]),
            ("dead letters", sub["dead_letter_topic"] or "none"),
            ("filter", sub["filter"]),
            ("so far", ", ".join(f"{n} {word}" for word, n in sums.items() if n)),
        ]
    )
    if sums["dead_lettered"]:
        click.echo(f"Dead letters: penstock dlq list --subscription {sub['name']}")
