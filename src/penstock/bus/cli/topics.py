"""`penstock topics`: create topics, publish to them, look up a message."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from penstock.bus.cli.changes import describe_changes
from penstock.bus.message import NewMessage
from penstock.bus.records import (
    MessageDetail,
    PublishResult,
    SchemaSettings,
    StoredTopic,
    Topic,
)
from penstock.cli import output
from penstock.cli.app import App, Group, dry_run_option
from penstock.cli.arguments import confirm, read_text
from penstock.cli.rows import collect
from penstock.client import UseCaseGroups
from penstock.core.clock import parse_duration
from penstock.core.errors import InvalidInput, NotFound

LIMIT = click.IntRange(1, 10_000)
BATCH = 500
_KEPT = ("retention", "labels", "schema_settings")
OWNER_OPTION = click.option(
    "--customer", metavar="ID", help="Owner; omit it for a system resource."
)


@click.group(cls=Group)
def topics() -> None:
    """Create topics, publish messages, look up a message."""


@topics.command("list")
@OWNER_OPTION
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="Maximum number of rows.")
@click.pass_obj
def list_(app: App, customer: str | None, limit: int) -> None:
    """List topics by name, with their retention and creator."""
    with app.connect() as client:
        page = collect(
            lambda n, cursor: client.topics.list(customer=customer, limit=n, cursor=cursor), limit
        )
    app.emit_page(
        page,
        {
            "TOPIC": lambda one: one.name,
            "RETENTION": lambda one: output.format_span(one.retention),
            "CREATED BY": lambda one: one.created_by,
        },
        empty="No topics. Create one: penstock topics create NAME",
    )


@topics.command("show")
@click.argument("name")
@OWNER_OPTION
@click.pass_obj
def show(app: App, name: str, customer: str | None) -> None:
    """Show a topic with its retention and its subscriptions."""
    with app.connect() as client:
        found = client.topics.get(name, customer=customer)

    def print_text() -> None:
        click.echo(f"{found.name} · messages are kept for {output.format_span(found.retention)}")
        for sub in found.subscriptions:
            click.echo(f"  {sub}")
        if not found.subscriptions:
            app.hint(f"No subscriptions: penstock subscriptions create NAME --topic {name}")

    app.emit(found, print_text)


@topics.command("create")
@click.argument("name")
@OWNER_OPTION
@click.option("--retention", metavar="DURATION",
              help="How long messages are kept after publishing. Defaults to 7d.")  # fmt: skip
@click.option("--schema", metavar="NAME", help="Schema that messages must match, as JSON.")
@click.option("--no-schema", is_flag=True, help="Accept messages of any form.")
@dry_run_option
@click.pass_obj
def create(app: App, /, name: str, customer: str | None, **options: Any) -> None:
    """Create a topic; on an existing one, change only what the options name."""
    retention, schema, is_free = options["retention"], options["schema"], options["no_schema"]
    given: dict[str, Any] = {}
    if retention is not None:
        given["retention"] = timedelta(microseconds=parse_duration(retention, "retention"))
    if is_free and schema is not None:
        raise InvalidInput("schema", "no schema together with --no-schema", schema)
    if is_free:
        given["schema_settings"] = None
    with app.connect() as client:
        before = _before(client, name, customer)
        held = None if before is None else before.schema_settings
        if schema is not None and (held is None or held.schema != schema):
            given["schema_settings"] = SchemaSettings(schema=schema)
        kept = {} if before is None else {field: getattr(before, field) for field in _KEPT}
        made = client.topics.create(Topic(name=name, **kept | given), customer=customer)

    def print_text() -> None:
        click.echo(f"{name} {'is created' if before is None else 'exists'}.")
        if before is not None:
            app.hint(describe_changes(before, made))

    app.emit(made, print_text)


def _before(client: UseCaseGroups, name: str, customer: str | None) -> StoredTopic | None:
    """Return the existing topic; None if there is none."""
    try:
        found = client.topics.get(name, customer=customer)
    except (NotFound, InvalidInput):  # missing, or an invalid name: `create` reports the latter
        return None
    return found


@topics.command("delete")
@click.argument("name")
@OWNER_OPTION
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@dry_run_option
@click.pass_obj
def delete(app: App, name: str, customer: str | None, yes: bool) -> None:
    """Delete a topic; its subscriptions keep their backlog but receive no new messages."""
    if not (yes or app.is_json or app.is_dry_run):
        confirm(f"Delete the topic {name}?")
    with app.connect() as client:
        client.topics.delete(name, customer=customer)
    app.emit({"name": name, "outcome": "deleted"}, lambda: click.echo(f"{name} is deleted."))


@topics.command("publish")
@click.argument("name")
@click.argument("data", nargs=-1, metavar="[TEXT]...")
@OWNER_OPTION
@click.option("--file", "file", metavar="FILE", help="Read one message per line; - is stdin.")
@click.option("--attribute", "attributes", multiple=True, metavar="K=V", help="Set an attribute.")
@click.option("--ordering-key", metavar="TEXT", help="Keep messages with the same key in order.")
@click.option("--dedupe-id", metavar="TEXT", help="Publish once per id; for a single message.")
@dry_run_option
@click.pass_obj
def publish(app: App, /, name: str, data: tuple[str, ...], **given: Any) -> None:
    r"""Publish messages and print their ids; they are stored durably before the ids are printed.

    \b
    penstock topics publish rosters '{"team": "ATL"}' --attribute league=nba
    penstock topics publish rosters --file messages.jsonl
    """
    texts = list(data)
    if given["file"] is not None:
        texts += [line for line in read_text(Path(given["file"]), "file").splitlines() if line]
    if not texts:
        raise InvalidInput("TEXT", "a message, or --file FILE", None)
    if given["dedupe_id"] is not None and len(texts) > 1:
        raise InvalidInput("dedupe_id", "one message", f"{len(texts)} messages")
    attributes = dict(parse_attribute(text, "attribute") for text in given["attributes"])
    more = {name: given[name] for name in ("ordering_key", "dedupe_id") if given[name] is not None}
    messages = [NewMessage(data=text.encode(), attributes=attributes, **more) for text in texts]
    ids: list[str] = []
    receivers = 0
    with app.connect() as client:
        for start in range(0, len(messages), BATCH):
            part = messages[start : start + BATCH]
            done = client.topics.publish(name, part, customer=given["customer"])
            ids += done.message_ids
            receivers = done.subscriptions

    def print_text() -> None:
        count = output.plural(len(ids), "message")
        which = ids[0] if len(ids) == 1 else f"{ids[0]} to {ids[-1]}"
        click.echo(f"{count} published{'.' if app.is_dry_run else f': {which}.'}")
        if not receivers:
            app.hint(
                f"{output.escape_control(name)} has no subscription: no one receives "
                f"{'it' if len(ids) == 1 else 'them'}. To receive later ones: "
                f"penstock subscriptions create NAME --topic {output.escape_control(name)}"
            )

    if app.is_dry_run:  # the ids belong to no message
        app.emit({"messages": len(ids), "subscriptions": receivers}, print_text)
        return
    app.emit(PublishResult(message_ids=ids, subscriptions=receivers), print_text)


@topics.command("message")
@click.argument("message_id", metavar="ID")
@click.pass_obj
def message(app: App, message_id: str) -> None:
    """Show a message: its content, and its delivery state in each subscription."""
    with app.connect() as client:
        found = client.topics.message(message_id)
        now = client.now()
    app.emit(found, lambda: _show_message(found, now))


def _show_message(found: MessageDetail, now: int) -> None:
    published = output.format_time(found.publish_time, now)
    click.echo(f"{found.message_id} · {found.topic} · published {published}")
    for name, value in sorted(found.attributes.items()):
        click.echo(f"  {output.escape_control(name)} = {output.escape_control(value)}")
    click.echo(content(found.data))
    output.print_table(
        ("SUBSCRIPTION", "GENERATION", "STATE", "ATTEMPTS", "SINCE", "LAST ERROR"),
        [
            (
                one.subscription,
                one.generation,
                one.state,
                one.attempts,
                output.format_time_short(one.at, now),
                output.first_line(one.last_error, 60),
            )
            for one in found.deliveries
        ],
    )


def content(data: bytes, most: int = 2_000) -> str:
    """Return a message's content as printable text, truncated to `most` characters."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"  {len(data)} bytes, not text (see --json)"
    return output.escape_control(text[:most]) + ("…" if len(text) > most else "")


def parse_attribute(text: str, field: str) -> tuple[str, str]:
    """Return the name and the value in K=V."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InvalidInput(field, "key=value", text)
    return key, value
