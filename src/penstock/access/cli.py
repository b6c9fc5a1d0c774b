"""`penstock keys`: API keys, shown once and kept as hashes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from penstock.access.api_keys import Role
from penstock.cli import output
from penstock.cli.app import App, Group
from penstock.cli.arguments import KEY
from penstock.core.clock import parse_duration

ONCE = "This is the only time the key is shown: keep it where secrets are kept."


@click.group(cls=Group)
def keys() -> None:
    """API keys: create, list, rotate, revoke."""


@keys.command("create")
@click.argument("name")
@click.option("--role", type=click.Choice([role.value for role in Role]), required=True,
              help="viewer reads; worker claims and reports; operator: all but keys.")  # fmt: skip
@click.option("--customer", metavar="ID", help="Bind the key: it sees and touches this one only.")
@click.option(
    "--expires", metavar="DURATION", help="How long it holds, such as 90d; else for good."
)
@click.option("--rate", type=float, metavar="N", help="Requests a second it may make.")
@click.pass_obj
def create(
    app: App, name: str, role: str, customer: str | None, expires: str | None, rate: float | None
) -> None:
    """Create a key and show it, this once."""
    if expires is not None:
        parse_duration(expires, "expires")
    wanted = {"name": name, "role": role, "customer_id": customer, "expires": expires, "rate": rate}
    with app.use_cases() as cases:
        made = cases.key_create(wanted)
    _show_once(app, made)


@keys.command("list")
@click.option("--customer", metavar="ID", help="Only keys bound to this customer.")
@click.option("--all", "with_revoked", is_flag=True, help="Revoked ones too.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True,
              help="At most so many.")  # fmt: skip
@click.pass_obj
def list_(app: App, customer: str | None, with_revoked: bool, limit: int) -> None:
    """List keys, oldest first; never their secrets."""
    with app.use_cases() as cases:
        found = cases.keys(customer=customer, with_revoked=with_revoked, limit=limit)
        now = cases.now()

    def people() -> None:
        if not found:
            app.say("No keys. Create one: penstock keys create NAME --role operator")
            return
        output.table(
            ("key", "name", "role", "customer", "state", "last used", "expires"),
            [
                (k["key_id"], k["name"], k["role"], k["customer_id"] or "everybody",
                 _state(k, now), _when(k["last_used_at"], now), _when(k["expires_at"], now))
                for k in found
            ],
        )  # fmt: skip
        if len(found) == limit:
            app.say(f"{len(found)} shown, there may be more: add --limit {limit * 2}")

    app.emit({"keys": found}, people)


@keys.command("rotate")
@click.argument("key_id", type=KEY, metavar="ID")
@click.option("--overlap", default="24h", show_default=True, metavar="DURATION",
              help="How long the old secret holds; 0s ends it at once.")  # fmt: skip
@click.pass_obj
def rotate(app: App, key_id: str, overlap: str) -> None:
    """Give a key a new secret and show it, this once."""
    parse_duration(overlap, "overlap")
    with app.use_cases() as cases:
        made = cases.key_rotate(key_id, overlap)
    _show_once(app, made)


@keys.command("revoke")
@click.argument("key_id", type=KEY, metavar="ID")
@click.option("--reason", default="", metavar="TEXT", help="Why; written down.")
@click.pass_obj
def revoke(app: App, key_id: str, reason: str) -> None:
    """End a key for good; servers refuse it within a minute."""
    with app.use_cases() as cases:
        changed = cases.key_revoke(key_id, reason)
    word = "revoked" if changed else "was revoked before"
    app.emit({"key_id": key_id, "changed": changed}, lambda: click.echo(f"{key_id} {word}"))


def _show_once(app: App, made: Mapping[str, Any]) -> None:
    """The key itself on a line of its own, so that it can be piped; remarks around it."""
    info = made["info"]

    def people() -> None:
        click.echo(made["key"])
        whose = info["customer_id"] or "all customers"
        app.say(f"{info['key_id']} ({info['name']}, {info['role']}, {whose})")
        if info["rotating_until"] is not None:
            app.say(f"The old secret holds until {info['rotating_until']}.")
        app.say(ONCE)

    app.emit(made, people)


def _state(key: Mapping[str, Any], now: int) -> str:
    if key["rotating_until"] is not None:
        return f"rotating, {output.when(output.micros(key['rotating_until']), now)}"
    return str(key["state"])


def _when(text: str | None, now: int) -> str:
    return "never" if text is None else output.when(output.micros(text), now)
