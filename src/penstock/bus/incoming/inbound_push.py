"""Inbound push: the table of external push subscriptions that Penstock accepts messages from.

Pure. The setting `incoming_push` names, for each path `/pubsub/push/{name}`, the issuer, the
audience and the service account that its tokens must contain, and the topic that its messages are
published to. A push to a name that is not in the table is rejected like one with an invalid token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.bus.rules import check_name
from penstock.core.errors import InvalidInput, SettingsError
from penstock.egress.oidc import GOOGLE, ExpectedClaims, keys_url_of
from penstock.egress.policy import STRICT, EgressRules, parse_target

NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._~+-]{0,254}")
_TEXTS: Final = (
    "topic", "audience", "email", "issuer", "keys_url", "subscription", "customer",
)  # fmt: skip
_NEEDED: Final = ("topic", "audience", "email")


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingPush:
    """An external push subscription whose messages are published to a local topic."""

    name: str
    topic: str
    audience: str
    email: str
    issuer: str = GOOGLE
    keys_url: str
    subscription: str
    """Subscription that the envelope must name: its short name, or its full path."""
    customer: str | None = None
    """Customer that owns the topic. None for a system topic."""
    has_dead_letters: bool = False
    """Whether the sender has a dead-letter policy. If it has, poison messages are rejected;
    otherwise they are accepted and stored as dead letters here.
    """

    @property
    def expected(self) -> ExpectedClaims:
        """Claims that the sender's tokens must contain."""
        return ExpectedClaims(issuer=self.issuer, audience=self.audience, email=self.email)


def parse_incoming(table: object, rules: EgressRules = STRICT) -> dict[str, IncomingPush]:
    """Return the entries of the table by name. Raise SettingsError for an invalid entry."""
    if not isinstance(table, Mapping):
        raise SettingsError("incoming_push", "a table keyed by subscription", table)
    return {str(name): _one(str(name), row, rules) for name, row in table.items()}


def _one(name: str, row: Any, rules: EgressRules) -> IncomingPush:
    path = f"incoming_push.{name[:60]}"
    if not NAME.fullmatch(name):
        raise SettingsError(path, "a name of letters, digits and ._~+-", name)
    if not isinstance(row, Mapping):
        raise SettingsError(path, f"a table with {', '.join(_NEEDED)}", row)
    known = {*_TEXTS, "dead_letters"}
    for field, value in row.items():
        if field not in known:
            raise SettingsError(path, f"only {', '.join(sorted(known))}", field)
        if field in _TEXTS and (not isinstance(value, str) or not value.strip()):
            raise SettingsError(f"{path}.{field}", "a string", value)
    for field in _NEEDED:
        if field not in row:
            raise SettingsError(f"{path}.{field}", "a value", "nothing")
    has_dead_letters = row.get("dead_letters", False)
    if not isinstance(has_dead_letters, bool):
        raise SettingsError(f"{path}.dead_letters", "true or false", has_dead_letters)
    issuer = row.get("issuer", GOOGLE)
    keys_url = row.get("keys_url", keys_url_of(issuer))
    try:
        check_name(row["topic"], f"{path}.topic")
        parse_target(keys_url, rules, f"{path}.keys_url")
    except InvalidInput as error:
        raise SettingsError(error.field, error.expected, error.got, error.fix) from None
    return IncomingPush(
        name=name,
        topic=row["topic"],
        audience=row["audience"],
        email=row["email"],
        issuer=issuer,
        keys_url=keys_url,
        subscription=row.get("subscription", name),
        customer=row.get("customer"),
        has_dead_letters=has_dead_letters,
    )
