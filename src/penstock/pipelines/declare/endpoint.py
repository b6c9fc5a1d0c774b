"""Declaration of an HTTP processor: its URL, the signatures of requests, and the response timeout.

    @scoring.http("https://score.example.com/run", signing_secrets=["score_hook"])
    def score(run): ...

The function gives the processor its name and has no body. Pure: the rules for outgoing requests
that depend on settings (plain http, private addresses) are checked when a process starts and again
for every request.
"""

from __future__ import annotations

import dis
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from penstock.core.clock import HOUR, SECOND, Duration, Micros, parse_duration
from penstock.core.errors import DeclarationError, InvalidInput, short_repr
from penstock.core.redact import REFERENCE_NAME
from penstock.egress.policy import PERMISSIVE, parse_target

REPLY_WITHIN_US: Final = 30 * SECOND
REPLY_WITHIN_MAX_US: Final = HOUR
SECRETS_MAX: Final = 4

_EMAIL = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,190}")
_EMPTY_STEPS: Final = frozenset({"RESUME", "NOP", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST"})


class EndpointOptions(TypedDict, total=False):
    """Options of an HTTP processor's requests."""

    signing_secrets: Iterable[str]
    """Names of secrets (`whsec_…`), newest first; requests are signed with each of them."""
    oidc: str | Mapping[str, str]
    """Service account of the OIDC token sent with each request: an e-mail address, or a mapping
    with `email` and `audience`. The default audience is the URL."""
    reply_within: Duration
    """Time within which the endpoint must reply, at most an hour; default 30 seconds. An endpoint
    that needs longer replies 202 and reports the result later.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpEndpoint:
    """URL, authentication and timeout of an HTTP processor."""

    url: str
    signing_secrets: tuple[str, ...] = ()
    oidc_email: str | None = None
    oidc_audience: str | None = None
    reply_within_us: Micros = REPLY_WITHIN_US

    @property
    def audience(self) -> str:
        """Audience of the OIDC token: as declared, or the URL."""
        return self.oidc_audience or self.url

    @property
    def is_signed(self) -> bool:
        """Whether the receiver can verify who sent a request."""
        return bool(self.signing_secrets) or self.oidc_email is not None

    @property
    def shown(self) -> str:
        """The URL without its query, which may hold a secret."""
        return shown_url(self.url)


def shown_url(url: str) -> str:
    """Return a URL without its query, which may hold a secret."""
    path, mark, _ = url.partition("?")
    return f"{path}?…" if mark else path


def parse_endpoint(url: object, options: Mapping[str, Any], where: str) -> HttpEndpoint:
    """Parse the options of `@phase.http(...)`; raise DeclarationError naming the invalid one."""
    try:
        parse_target(url, PERMISSIVE, "url")
    except InvalidInput as error:
        raise DeclarationError(f"{where}: {error.message}") from None
    email, audience = _oidc(options.get("oidc"), where)
    return HttpEndpoint(
        url=str(url),
        signing_secrets=_secrets(options.get("signing_secrets", ()), where),
        oidc_email=email,
        oidc_audience=audience,
        reply_within_us=_reply_within(options.get("reply_within"), where),
    )


def check_empty(function: Callable[..., Any], where: str) -> None:
    """Raise DeclarationError if the function of an HTTP processor has a body, which never runs."""
    code = getattr(function, "__code__", None)
    if code is None:
        raise DeclarationError(f"{where}: expected a function without a body, got {function!r:.80}")
    given = {step.opname for step in dis.get_instructions(code)}
    constants = {None, getattr(function, "__doc__", None), ...}
    if not given <= _EMPTY_STEPS or not set(code.co_consts) <= constants:
        raise DeclarationError(
            f"{where}: the function of an HTTP processor is never called, because its endpoint "
            "executes the runs; leave its body empty: def name(run): ..."
        )


def _secrets(value: Any, where: str) -> tuple[str, ...]:
    # A value may be a literal secret, so the messages never quote it.
    if isinstance(value, str) or not isinstance(value, Iterable):
        got = type(value).__name__
        raise DeclarationError(f"{where}: signing_secrets takes a list of names, got {got}.")
    found = tuple(value)
    if len(found) > SECRETS_MAX:
        raise DeclarationError(
            f"{where}: signing_secrets takes at most {SECRETS_MAX} names, got {len(found)}."
        )
    for name in found:
        if not isinstance(name, str) or not REFERENCE_NAME.fullmatch(name) or "whsec_" in name:
            raise DeclarationError(
                f"{where}: signing_secrets takes names of secrets, not their values; store the "
                "secret as PENSTOCK_SECRET_<NAME> or in secrets_dir, and give its name."
            )
    return found


def _oidc(value: Any, where: str) -> tuple[str | None, str | None]:
    if value is None:
        return None, None
    given = {"email": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping) or not set(given) <= {"email", "audience"}:
        raise DeclarationError(
            f"{where}: oidc takes an e-mail address, or a mapping with email and audience, "
            f"got {short_repr(value)}."
        )
    email, audience = given.get("email"), given.get("audience")
    if not isinstance(email, str) or not _EMAIL.fullmatch(email):
        raise DeclarationError(
            f"{where}: oidc takes the e-mail address of a service account, got {short_repr(email)}."
        )
    if audience is not None and not (
        isinstance(audience, str) and 1 <= len(audience) <= 2_048 and audience.isprintable()
    ):
        raise DeclarationError(
            f"{where}: oidc.audience takes 1 to 2,048 printable characters, "
            f"got {short_repr(audience)}."
        )
    return email, audience


def _reply_within(value: Any, where: str) -> Micros:
    if value is None:
        return REPLY_WITHIN_US
    try:
        found = parse_duration(value, "reply_within")
    except InvalidInput as error:
        raise DeclarationError(f"{where}: {error.message}") from None
    if not 0 < found <= REPLY_WITHIN_MAX_US:
        raise DeclarationError(
            f"{where}: reply_within must be longer than zero and at most an hour, got {value!r}; "
            "an endpoint that needs longer replies 202 and reports the result later."
        )
    return found
