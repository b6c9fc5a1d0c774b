"""Security of pages: response headers, tokens that prove the origin of a form, local addresses.

Tokens are HMACs with a secret that all servers of an installation share, so that each of them
accepts the forms of the others.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
PREVIEW_SECONDS: Final = 600


def form_token(secret: bytes, session: str) -> str:
    """Return the token that every form of a session contains."""
    return sign(secret, "form", session)


def is_form_token(secret: bytes, session: str, token: str) -> bool:
    """Return whether a token belongs to the session."""
    return hmac.compare_digest(form_token(secret, session).encode(), token.encode())


def preview_token(
    secret: bytes,
    session: str,
    action: str,
    fixed: Mapping[str, str],
    count: int | None,
    until: int,
) -> str:
    """Return a token that binds an action to its preview, until a time in seconds."""
    shown = "" if count is None else str(count)
    return f"{until}.{shown}.{sign(secret, *_bound(session, action, fixed, shown, until))}"


def previewed(
    secret: bytes, session: str, action: str, fixed: Mapping[str, str], token: str
) -> tuple[int, int | None] | None:
    """Return when a preview expires and how many items it showed; None for an invalid token."""
    parts = token.split(".")
    if len(parts) != 3 or not parts[0].isdecimal() or len(parts[0]) > 12:
        return None
    until, shown = int(parts[0]), parts[1]
    wanted = sign(secret, *_bound(session, action, fixed, shown, until))
    if not hmac.compare_digest(wanted.encode(), parts[2].encode()):
        return None
    return until, int(shown) if shown else None


def _bound(
    session: str, action: str, fixed: Mapping[str, str], shown: str, until: int
) -> list[str]:
    pairs = [part for name in sorted(fixed) for part in (name, fixed[name])]
    return ["preview", session, action, shown, str(until), *pairs]


def sign(secret: bytes, *parts: str) -> str:
    """Return the signature of these texts, which only servers of this installation can create."""
    # The length before each part distinguishes ("ab", "c") from ("a", "bc").
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()[:40]


def local_path(wanted: str) -> str:
    """Return a path of this server; the overview for anything else."""
    is_path = wanted.startswith("/") and not wanted.startswith(("//", "/\\"))
    return wanted if is_path and wanted.isprintable() and "\\" not in wanted else "/"
