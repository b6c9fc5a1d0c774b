"""Whose pushes are taken in: the table of subscriptions elsewhere and the topics they lead to.

Pure. The setting `incoming_push` names, for each path `/pubsub/push/{name}`, the issuer, the
audience and the service account that its tokens must carry, and the topic that its messages are
published to. What is not in the table does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.bus.rules import check_name
from penstock.core.errors import InvalidInput, SettingsError
from penstock.egress.oidc import GOOGLE, Expected, keys_url_of
from penstock.egress.policy import STRICT, EgressRules, parse_target

NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._~+-]{0,254}")
_TEXTS: Final = (
    "topic", "audience", "email", "issuer", "keys_url", "subscription", "customer",
)  # fmt: skip
_NEEDED: Final = ("topic", "audience", "email")


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingPush:
    """One subscription elsewhere whose messages are taken in."""

    name: str
    topic: str
    audience: str
    email: str
    issuer: str = GOOGLE
    keys_url: str
    subscription: str
    """What the envelope must call it: its name, or its full path."""
    customer: str | None = None
    """Whose topic it is; the house's unless said."""
    has_dead_letters: bool = False
    """The sender has a dead-letter policy, so poison is refused; else it is kept and accepted."""

    @property
    def expected(self) -> Expected:
        """What its tokens must say."""
        return Expected(issuer=self.issuer, audience=self.audience, email=self.email)


def parse_incoming(table: object, rules: EgressRules = STRICT) -> dict[str, IncomingPush]:
    """The table by name; SettingsError says what is wrong in it."""
    if not isinstance(table, Mapping):
        raise SettingsError("incoming_push", "a table by subscription", table)
    return {str(name): _one(str(name), row, rules) for name, row in table.items()}


def _one(name: str, row: Any, rules: EgressRules) -> IncomingPush:
    place = f"incoming_push.{name[:60]}"
    if not NAME.fullmatch(name):
        raise SettingsError(place, "a name of letters, digits and ._~+-", name)
    if not isinstance(row, Mapping):
        raise SettingsError(place, f"a table with {', '.join(_NEEDED)}", row)
    known = {*_TEXTS, "dead_letters"}
    for field, value in row.items():
        if field not in known:
            raise SettingsError(place, f"only {', '.join(sorted(known))}", field)
        if field in _TEXTS and (not isinstance(value, str) or not value.strip()):
            raise SettingsError(f"{place}.{field}", "a text", value)
    for field in _NEEDED:
        if field not in row:
            raise SettingsError(f"{place}.{field}", "to be given", "nothing")
    has_dead_letters = row.get("dead_letters", False)
    if not isinstance(has_dead_letters, bool):
        raise SettingsError(f"{place}.dead_letters", "true or false", has_dead_letters)
    issuer = row.get("issuer", GOOGLE)
    keys_url = row.get("keys_url", keys_url_of(issuer))
    try:
        check_name(row["topic"], f"{place}.topic")
        parse_target(keys_url, rules, f"{place}.keys_url")
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
