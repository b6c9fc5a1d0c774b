"""Users of an identity provider: settings, claims, and roles. Pure.

The first rule that matches decides: the e-mail address, then groups (the strongest role), then the
domain. A person without a rule has no access.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.access.api_keys import Role
from penstock.core.clock import SECOND, Micros
from penstock.core.errors import InvalidInput
from penstock.egress.oidc import LEEWAY_US, InvalidToken, issuers_of

NAMES: Final = ("issuer", "client_id", "client_secret", "scopes", "groups_claim", "label", "roles")
GROUPS_MAX: Final = 1_000
_STRENGTH: Final = {Role.VIEWER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}


@dataclass(frozen=True, slots=True)
class Grant:
    """Permissions of a person: a role, for all customers or for one."""

    role: Role
    customer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentitySettings:
    """The identity provider and the role rules."""

    issuer: str
    client_id: str
    client_secret: str | None
    """Name of the secret; None for a public client, which PKCE protects."""
    scopes: str = "openid email profile"
    groups_claim: str = "groups"
    label: str = "your company account"
    """Label of the button on the login page, after "Log in with"."""
    roles: Mapping[str, Grant] = field(default_factory=dict)
    """Grants by e-mail address, `group:NAME` or `@domain`."""


def parse_identity(given: Mapping[str, Any]) -> IdentitySettings | None:
    """Read the table `[login.oidc]` of the settings; None if it is absent."""
    unknown = set(given) - {"oidc"}
    if unknown:
        raise InvalidInput("login", "oidc", sorted(unknown)[0])
    table = given.get("oidc")
    if table is None:
        return None
    if not isinstance(table, Mapping):
        raise InvalidInput("login.oidc", "a table", table)
    for name, value in table.items():
        if name not in NAMES:
            raise InvalidInput(f"login.oidc.{name}", f"one of {', '.join(NAMES)}", name)
        if name != "roles" and (not isinstance(value, str) or not value):
            raise InvalidInput(f"login.oidc.{name}", "a string", value)
    for name in ("issuer", "client_id"):
        if name not in table:
            raise InvalidInput(f"login.oidc.{name}", "a string", None)
    roles = table.get("roles")
    if not isinstance(roles, Mapping) or not roles:
        fix = 'Name at least one, such as "ana@example.com" = "admin".'
        raise InvalidInput("login.oidc.roles", "a table of roles", roles, fix)
    texts = {name: str(value) for name, value in table.items() if name != "roles"}
    return IdentitySettings(
        **{"client_secret": None, **texts},  # type: ignore[arg-type]
        roles={str(who).lower(): _grant(str(who), what) for who, what in roles.items()},
    )


def _grant(who: str, what: Any) -> Grant:
    path = f"login.oidc.roles.{who}"
    is_known = "@" in who or (who.startswith("group:") and len(who) > len("group:"))
    if not is_known:
        raise InvalidInput(path, "an e-mail address, @domain or group:NAME", who)
    role, _, customer = str(what).partition(" ")
    if not isinstance(what, str) or role not in [one.value for one in _STRENGTH]:
        raise InvalidInput(path, "viewer, operator or admin, then a customer or nothing", what)
    return Grant(Role(role), customer.strip() or None)


def check_identity(
    claims: Mapping[str, Any], settings: IdentitySettings, nonce: str, now: Micros
) -> str:
    """Return the e-mail address of a verified token; raise InvalidToken with the reason."""
    if claims.get("iss") not in issuers_of(settings.issuer):
        raise InvalidToken("iss: unexpected issuer")
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if settings.client_id not in audiences:
        raise InvalidToken("aud: another client")
    if len(audiences) > 1 and claims.get("azp") != settings.client_id:
        raise InvalidToken("azp: issued to another client")
    if _time(claims, "exp") <= now - LEEWAY_US:
        raise InvalidToken("exp: expired")
    if _time(claims, "iat") > now + LEEWAY_US:
        raise InvalidToken("iat: not issued yet")
    given = claims.get("nonce")
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(), nonce.encode()):
        raise InvalidToken("nonce: belongs to another login")
    email = claims.get("email")
    if not isinstance(email, str) or "@" not in email or len(email) > 200:
        raise InvalidToken("email: no address")
    if not email.isprintable() or claims.get("email_verified", True) is not True:
        raise InvalidToken("email_verified: not true")
    return email.lower()


def _time(claims: Mapping[str, Any], name: str) -> Micros:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**40:
        raise InvalidToken(f"{name}: not a time")
    return int(value * SECOND)


def grant_of(settings: IdentitySettings, email: str, claims: Mapping[str, Any]) -> Grant | None:
    """Return the permissions of a person; None if no rule names the person."""
    roles = settings.roles
    if email in roles:
        return roles[email]
    found = [roles[key] for key in _groups(claims.get(settings.groups_claim)) if key in roles]
    if found:
        return max(found, key=lambda grant: (grant.customer is None, _STRENGTH[grant.role]))
    return roles.get(email[email.rindex("@") :])


def _groups(given: Any) -> Sequence[str]:
    listed = given if isinstance(given, list) else [given]
    return [f"group:{one}".lower() for one in listed[:GROUPS_MAX] if isinstance(one, str)]
