"""Push subscriptions: where a message is posted, how it looks, and what the answer means.

Pure. `PushSpec` is what a subscription says (`push` of `SubscriptionSpec`, as canonical JSON, named
as Google's push config is). `compose` makes the request of one delivery; `verdict_of` and
`retry_after` read the answer.
"""

from __future__ import annotations

import email.utils
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from enum import StrEnum
from typing import Any, Final, TypeAlias

from penstock.bus.envelope import HEADER, Pushed, encode
from penstock.bus.message import Delivery
from penstock.bus.push import webhook
from penstock.core import json_profile
from penstock.core.clock import MINUTE, SECOND, Micros, from_datetime, iso
from penstock.core.errors import InvalidInput
from penstock.core.redact import REFERENCE, check_reference, is_reference
from penstock.egress.policy import ANYWHERE, STRICT, EgressRules, parse_target

ACKS: Final = frozenset({102, 200, 201, 202, 204})
GONE: Final = 410
RETRY_AFTER_MAX_US: Final = 10 * MINUTE
USER_AGENT: Final = "Penstock-Push"

_EMAIL = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,190}")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")
_NAMES: Final = frozenset({"push_endpoint", "oidc_token", "signing_secrets", "no_wrapper"})
_OURS: Final = frozenset(
    {
        "accept", "accept-encoding", "authorization", "connection", "content-encoding",
        "content-length", "content-type", "cookie", "date", "expect", "forwarded", "from", "host",
        "keep-alive", "origin", "proxy-authorization", "proxy-connection", "referer", "te",
        "trailer", "transfer-encoding", "upgrade", "user-agent", "via",
    }
)  # fmt: skip
_OUR_STARTS: Final = ("x-goog-", "x-forwarded-", "webhook-", "sec-", "proxy-", "penstock-omitted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """A request that is ready to be sent; `seconds` is all the time it has."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What came of a request: a status, or why there was none. Never anything of its body."""

    status: int | None = None
    retry_after: str | None = None
    failure: str = ""
    """A short kind of failure; `refused` when the rules did not let the request out."""
    error: str = ""


Poster: TypeAlias = Callable[[Post], Answered]
Bearer: TypeAlias = Callable[[str, str], str]
"""(audience, e-mail) → a signed token."""


class Verdict(StrEnum):
    """What an answer means for the message."""

    ACK = "ack"
    NACK = "nack"
    GONE = "gone"
    """The endpoint is no more: the subscription is paused until somebody says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcToken:
    """A token of ours goes along, signed for an audience (the endpoint unless said)."""

    email: str
    audience: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSpec:
    """Where and how a subscription's messages are posted."""

    endpoint: str
    oidc: OidcToken | None = None
    signing_secrets: tuple[str, ...] = ()
    """Names of secrets (`whsec_…`), the newest first; every one of them signs."""
    is_wrapped: bool = True
    writes_metadata: bool = False
    """Unwrapped only: what the envelope would say goes into headers."""

    @property
    def audience(self) -> str:
        """For whom a token is."""
        given = None if self.oidc is None else self.oidc.audience
        return given or self.endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Posting:
    """A request, but for what proves who sends it."""

    headers: Mapping[str, str]
    body: bytes


def parse_push(value: object, rules: EgressRules = STRICT, field: str = "push") -> PushSpec:
    """What somebody asks for, checked; InvalidInput names the field."""
    given = _object(value, field, _NAMES)
    endpoint = given.get("push_endpoint")
    parse_target(endpoint, rules, f"{field}.push_endpoint")
    secrets = _secrets(given.get("signing_secrets", []), f"{field}.signing_secrets")
    oidc = None
    if given.get("oidc_token") is not None:
        oidc = _oidc(given["oidc_token"], f"{field}.oidc_token")
    wrapper = given.get("no_wrapper")
    writes = False
    if wrapper is not None:
        writes = _object(wrapper, f"{field}.no_wrapper", {"write_metadata"}).get(
            "write_metadata", False
        )
        if not isinstance(writes, bool):
            raise InvalidInput(f"{field}.no_wrapper.write_metadata", "true or false", writes)
    return PushSpec(
        endpoint=str(endpoint),
        oidc=oidc,
        signing_secrets=secrets,
        is_wrapped=wrapper is None,
        writes_metadata=writes,
    )


def shown_push(spec: PushSpec) -> dict[str, Any]:
    """The spec as it is asked for; secrets are names, never values."""
    shown: dict[str, Any] = {"push_endpoint": spec.endpoint}
    if spec.oidc is not None:
        shown["oidc_token"] = {"service_account_email": spec.oidc.email}
        if spec.oidc.audience is not None:
            shown["oidc_token"]["audience"] = spec.oidc.audience
    if spec.signing_secrets:
        shown["signing_secrets"] = [{REFERENCE: name} for name in spec.signing_secrets]
    if not spec.is_wrapped:
        shown["no_wrapper"] = {"write_metadata": spec.writes_metadata}
    return shown


def dump_push(spec: PushSpec) -> str:
    """The spec as it is stored."""
    return json.dumps(shown_push(spec), sort_keys=True, separators=(",", ":"))


def load_push(text: str) -> PushSpec:
    """The stored spec; where it may point is judged again when it is used."""
    return parse_push(json_profile.parse(text.encode(), "push"), ANYWHERE)


def compose(spec: PushSpec, delivery: Delivery, *, subscription: str, has_policy: bool) -> Posting:
    """The request of a delivery; the attempt is told when there is a dead-letter policy."""
    attempt = delivery.attempt if has_policy else None
    if spec.is_wrapped:
        pushed = Pushed(
            message_id=delivery.message_id,
            data=delivery.data,
            attributes=delivery.attributes,
            ordering_key=delivery.ordering_key,
            publish_time=delivery.publish_time,
            subscription=subscription,
            attempt=attempt,
        )
        headers = {"Content-Type": "application/json", "User-Agent": USER_AGENT}
        return Posting(headers=headers, body=encode(pushed))
    headers = {"Content-Type": "application/octet-stream", "User-Agent": USER_AGENT}
    if spec.writes_metadata:
        headers |= _metadata(delivery, subscription, attempt)
    return Posting(headers=headers, body=delivery.data)


def proof(
    keys: Sequence[bytes], token: str | None, delivery: Delivery, body: bytes, now: Micros
) -> dict[str, str]:
    """The headers that prove who sends a request: a bearer token, signatures, both or none."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return headers | (webhook.sign(keys, delivery.message_id, body, now) if keys else {})


def verdict_of(status: int) -> Verdict:
    """What a status means, as Google reads it."""
    if status in ACKS:
        return Verdict.ACK
    return Verdict.GONE if status == GONE else Verdict.NACK


def retry_after(header: str | None, now: Micros) -> Micros | None:
    """How long an endpoint asks to be left alone, at most ten minutes; None when it does not."""
    text = (header or "").strip()
    if not text or len(text) > 64:
        return None
    if text.isascii() and text.isdigit():
        wanted = int(text[:12]) * SECOND
    else:
        try:
            when = email.utils.parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError):
            return None
        wanted = from_datetime(when if when.tzinfo is not None else when.replace(tzinfo=UTC)) - now
    return min(max(0, wanted), RETRY_AFTER_MAX_US)


def _metadata(delivery: Delivery, subscription: str, attempt: int | None) -> dict[str, str]:
    """What the envelope would say, as headers; attributes that cannot be headers are counted."""
    headers = {
        f"{HEADER}subscription-name": subscription,
        f"{HEADER}message-id": delivery.message_id,
        f"{HEADER}publish-time": iso(delivery.publish_time),
    }
    if delivery.ordering_key and _is_value(delivery.ordering_key):
        headers[f"{HEADER}ordering-key"] = delivery.ordering_key
    if attempt is not None:
        headers[f"{HEADER}delivery-attempt"] = str(attempt)
    omitted = 0
    seen: set[str] = set()
    for name, value in delivery.attributes.items():
        small = name.lower()
        if _is_free(small) and small not in seen and _is_value(value):
            seen.add(small)
            headers["Content-Type" if small == "content-type" else name] = value
        else:
            omitted += 1
    return headers | ({"penstock-omitted-attributes": str(omitted)} if omitted else {})


def _is_free(name: str) -> bool:
    """Whether an attribute may be a header: a proper name that means nothing to HTTP."""
    if name == "content-type":
        return True
    return (
        _TOKEN.fullmatch(name) is not None
        and name not in _OURS
        and not name.startswith(_OUR_STARTS)
    )


def _is_value(text: str) -> bool:
    return text.isascii() and text.isprintable() and text == text.strip()


def _object(value: object, field: str, names: frozenset[str] | set[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput(field, "an object", value)
    for name in value:
        if name not in names:
            raise InvalidInput(field, f"only {', '.join(sorted(names))}", name)
    return value


def _oidc(value: object, field: str) -> OidcToken:
    given = _object(value, field, {"service_account_email", "audience"})
    address, audience = given.get("service_account_email"), given.get("audience")
    if not isinstance(address, str) or not _EMAIL.fullmatch(address):
        raise InvalidInput(f"{field}.service_account_email", "an e-mail address", address)
    if audience is not None and (
        not isinstance(audience, str) or not 1 <= len(audience) <= 2_048 or not _is_value(audience)
    ):
        raise InvalidInput(f"{field}.audience", "1 to 2,048 printable characters", audience)
    return OidcToken(email=address, audience=audience)


def _secrets(value: object, field: str) -> tuple[str, ...]:
    # What is given may be a secret itself: it is never quoted.
    if not isinstance(value, list | tuple) or len(value) > webhook.SECRETS_MAX:
        got = type(value).__name__
        raise InvalidInput(field, f"a list of at most {webhook.SECRETS_MAX} references", got)
    if not all(is_reference(part) for part in value):
        fix = "Keep the secret where the pusher finds it, and name it here."
        raise InvalidInput(field, 'references {"$secret": "name"}', "another value", fix)
    return tuple(check_reference(part, f"{field}[{i}]") for i, part in enumerate(value))
