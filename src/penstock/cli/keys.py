"""`penstock keys`: API keys, shown once and kept as hashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from penstock.cli import shapes
from penstock.cli.app import App, Group
from penstock.core.clock import iso, parse_duration
from penstock.core.ids import decode
from penstock.core.keys import Role

if TYPE_CHECKING:
    from penstock.client.keys import ApiKey

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
    lasts = None if expires is None else parse_duration(expires, "expires")
    with app.client() as client:
        now = client.store.read(lambda tx: tx.now())
        made = client.keys.create(
            name, role, customer=customer, rate=rate,
            expires_at=None if lasts is None else now + lasts,
        )  # fmt: skip
    _show_once(app, made)


@keys.command("list")
@click.option("--customer", metavar="ID", help="Only keys bound to this customer.")
@click.option("--all", "with_revoked", is_flag=True, help="Revoked ones too.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@click.pass_obj
def list_(app: App, customer: str | None, with_revoked: bool, limit: int) -> None:
    """List keys, oldest first; never their secrets."""
    with app.client() as client:
        found = client.keys.page(customer=customer, with_revoked=with_revoked, limit=limit)
        now = client.store.read(lambda tx: tx.now())

    def people() -> None:
        if not found:
            app.say("No keys. Create one: penstock keys create NAME --role operator")
            return
        shapes.table(
            ("key", "name", "role", "customer", "state", "last used", "expires"),
            [
                (k.public_id, k.name, k.role, k.customer_id or "everybody", _state(k, now),
                 shapes.when(k.last_used_at, now) if k.last_used_at else "never",
                 shapes.when(k.expires_at, now) if k.expires_at else "never")
                for k in found
            ],
        )  # fmt: skip
        if len(found) == limit:
            app.say(f"{len(found)} shown, there may be more: add --limit {limit * 2}")

    app.emit({"keys": [_record(key) for key in found]}, people)


@keys.command("rotate")
@click.argument("key_id", metavar="ID")
@click.option("--overlap", default="24h", show_default=True, metavar="DURATION",
              help="How long the old secret holds; 0s ends it at once.")  # fmt: skip
@click.pass_obj
def rotate(app: App, key_id: str, overlap: str) -> None:
    """Give a key a new secret and show it, this once."""
    number = decode("key", key_id)
    overlap_us = parse_duration(overlap, "overlap")
    with app.client() as client:
        made = client.keys.rotate(number, overlap_us=overlap_us)
    _show_once(app, made)


@keys.command("revoke")
@click.argument("key_id", metavar="ID")
@click.option("--reason", default="", metavar="TEXT", help="Why; written down.")
@click.pass_obj
def revoke(app: App, key_id: str, reason: str) -> None:
    """End a key for good; servers refuse it within a minute."""
    number = decode("key", key_id)
    with app.client() as client:
        changed = client.keys.revoke(number, reason=reason)
        key = client.keys.get(number)
    word = "revoked" if changed else "was revoked before"
    app.emit({"changed": changed, **_record(key)}, lambda: click.echo(f"{key.public_id} {word}"))


def _show_once(app: App, key: ApiKey) -> None:
    """The key itself on a line of its own, so that it can be piped; remarks around it."""

    def people() -> None:
        click.echo(key.text)
        app.say(f"{key.public_id} ({key.name}, {key.role}, {key.customer_id or 'all customers'})")
        if key.rotating_until is not None:
            app.say(f"The old secret holds until {iso(key.rotating_until)}.")
        app.say(ONCE)

    app.emit({"key": key.text, **_record(key)}, people)


def _state(key: ApiKey, now: int) -> str:
    if key.rotating_until is not None:
        return f"rotating, {shapes.when(key.rotating_until, now)}"
    return key.state.value


def _record(key: ApiKey) -> dict[str, Any]:
    return {
        "key_id": key.public_id, "name": key.name, "role": key.role.value,
        "state": key.state.value, "customer_id": key.customer_id, "rate": key.rate,
        "created_at": iso(key.created_at), "created_by": key.created_by,
        "expires_at": shapes.iso_or_none(key.expires_at),
        "rotating_until": shapes.iso_or_none(key.rotating_until),
        "revoked_at": shapes.iso_or_none(key.revoked_at), "revoked_by": key.revoked_by,
        "last_used_at": shapes.iso_or_none(key.last_used_at),
    }  # fmt: skip
