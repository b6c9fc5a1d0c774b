"""Push subscriptions: their configuration, the HTTP request, and the meaning of the response.

Pure. `PushConfig` is the push configuration of a subscription; its JSON uses the field names of
Google's push config. `build_request` builds the request for one delivery; `verdict_of` and
`retry_after` interpret the response.
"""

from __future__ import annotations

import email.utils
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from enum import StrEnum
from typing import Any, Final, TypeAlias

from penstock.bus.envelope import HEADER_PREFIX, PushedMessage, encode
from penstock.bus.message import CAUSATION, CORRELATION, Delivery
from penstock.bus.push import webhook
from penstock.core import json_profile
from penstock.core.clock import MINUTE, SECOND, Micros, from_datetime, iso
from penstock.core.errors import InvalidInput
from penstock.core.redact import check_reference, is_reference
from penstock.egress.policy import PERMISSIVE, STRICT, EgressRules, parse_target

ACKS: Final = frozenset({102, 200, 201, 202, 204})
GONE: Final = 410
OVERLOADED: Final = frozenset({408, 429})
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
_TRACE_HEADERS: Final = {"ce-correlationid": CORRELATION, "ce-causationid": CAUSATION}
_CAUSE_ID: Final = re.compile(r"[!#-$&-~]{1,500}")
"""Printable ASCII without spaces, quotes or percent signs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRequest:
    """A request that is ready to send; `timeout_s` is its total timeout."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    timeout_s: float
    owner: str = ""
    """Customer of the subscription."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushResponse:
    """Result of a request: a status, or the reason why there is none. The body is not kept."""

    status: int | None = None
    """HTTP status of the response; None if there was no response."""
    retry_after: str | None = None
    """Value of the Retry-After header."""
    failure: str = ""
    """Short code of the failure; `refused` if the egress rules blocked the request."""
    error: str = ""
    """Description of the failure."""


PushSender: TypeAlias = Callable[[PushRequest], PushResponse]
TokenSigner: TypeAlias = Callable[[str, str, str], str]
"""Function that returns a signed token for an audience, an e-mail address and a customer ("" for
the system).
"""


class PushVerdict(StrEnum):
    """What a response means for the message."""

    ACK = "ack"
    NACK = "nack"
    GONE = "gone"
    """The endpoint no longer exists: the subscription is paused until an operator resumes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcToken:
    """Settings of the OIDC token sent with each request. The default audience is the endpoint."""

    email: str
    audience: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConfig:
    """Push configuration of a subscription."""

    endpoint: str
    oidc: OidcToken | None = None
    signing_secrets: tuple[str, ...] = ()
    """Names of secrets (`whsec_…`), newest first. Requests are signed with each of them."""
    is_wrapped: bool = True
    """Whether the message is sent in a JSON envelope; otherwise the body is the message's data."""
    writes_metadata: bool = False
    """Whether the fields of the envelope are sent as headers. Only for unwrapped messages."""

    @property
    def audience(self) -> str:
        """Audience of the OIDC token: as configured, or the endpoint."""
        given = None if self.oidc is None else self.oidc.audience
        return given or self.endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsignedRequest:
    """Headers and body of a request, without the authentication headers (see `auth_headers`)."""

    headers: Mapping[str, str]
    body: bytes


def parse_push(value: object, rules: EgressRules = STRICT, field: str = "push") -> PushConfig:
    """Parse the push configuration of a request. Raise InvalidInput, naming the field."""
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
    return PushConfig(
        endpoint=str(endpoint),
        oidc=oidc,
        signing_secrets=secrets,
        is_wrapped=wrapper is None,
        writes_metadata=writes,
    )


def parse_stored_push(text: str) -> PushConfig:
    """Parse a stored push configuration. The egress rules are checked again for each request."""
    return parse_push(json_profile.parse_json(text.encode(), "push"), PERMISSIVE)


def build_request(
    spec: PushConfig, delivery: Delivery, *, subscription: str, has_policy: bool
) -> UnsignedRequest:
    """Return the request for a delivery. It includes the attempt if there is a dead-letter policy.

    `has_policy`: whether the subscription has a dead-letter policy.
    """
    attempt = delivery.attempt if has_policy else None
    if spec.is_wrapped:
        pushed = PushedMessage(
            message_id=delivery.message_id,
            data=delivery.data,
            attributes=delivery.attributes,
            ordering_key=delivery.ordering_key,
            publish_time=delivery.publish_time,
            subscription=subscription,
            attempt=attempt,
        )
        headers = {"Content-Type": "application/json", "User-Agent": USER_AGENT}
        headers |= _trace_headers(delivery)
        return UnsignedRequest(headers=headers, body=encode(pushed))
    headers = {"Content-Type": "application/octet-stream", "User-Agent": USER_AGENT}
    if spec.writes_metadata:
        headers |= _metadata(delivery, subscription, attempt) | _trace_headers(delivery)
    return UnsignedRequest(headers=headers, body=delivery.data)


def _trace_headers(delivery: Delivery) -> dict[str, str]:
    """Return the correlation and cause ids as headers, as in requests to HTTP processors.

    An id that is not valid in a header is sent only in the message.
    """
    given = {name: delivery.attributes.get(key) for name, key in _TRACE_HEADERS.items()}
    return {name: text for name, text in given.items() if text and _CAUSE_ID.fullmatch(text)}


def auth_headers(
    keys: Sequence[bytes], token: str | None, delivery: Delivery, body: bytes, now: Micros
) -> dict[str, str]:
    """Return the authentication headers of a request: a bearer token, signatures, both or none."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return headers | (webhook.sign(keys, delivery.message_id, body, now) if keys else {})


def verdict_of(status: int) -> PushVerdict:
    """Return the verdict for an HTTP status, as Google Pub/Sub interprets it; 410 is GONE."""
    if status in ACKS:
        return PushVerdict.ACK
    return PushVerdict.GONE if status == GONE else PushVerdict.NACK


def slows_endpoint(status: int | None) -> bool:
    """Return whether a response, or None for no response, indicates an overloaded or failing
    endpoint. Only no response, a timeout, 429 and 5xx slow a subscription down. Any other
    status, such as 400 or 422 for a poison message, concerns that message only.
    """
    return status is None or status in OVERLOADED or status >= 500


def retry_after(
    header: str | None, now: Micros, most: Micros = RETRY_AFTER_MAX_US
) -> Micros | None:
    """Return the delay of a Retry-After header, at most `most`; None if absent or invalid."""
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
    return min(max(0, wanted), most)


def _metadata(delivery: Delivery, subscription: str, attempt: int | None) -> dict[str, str]:
    """Return the fields of the envelope as headers, with the number of omitted attributes.

    Attributes whose names or values are not valid as headers are omitted.
    """
    headers = {
        f"{HEADER_PREFIX}subscription-name": subscription,
        f"{HEADER_PREFIX}message-id": delivery.message_id,
        f"{HEADER_PREFIX}publish-time": iso(delivery.publish_time),
    }
    if delivery.ordering_key and _is_value(delivery.ordering_key):
        headers[f"{HEADER_PREFIX}ordering-key"] = delivery.ordering_key
    if attempt is not None:
        headers[f"{HEADER_PREFIX}delivery-attempt"] = str(attempt)
    omitted = 0
    seen: set[str] = set()
    for name, value in delivery.attributes.items():
        lower = name.lower()
        if _is_free(lower) and lower not in seen and _is_value(value):
            seen.add(lower)
            headers["Content-Type" if lower == "content-type" else name] = value
        else:
            omitted += 1
    return headers | ({"penstock-omitted-attributes": str(omitted)} if omitted else {})


def _is_free(name: str) -> bool:
    """Return whether an attribute may be sent as a header: valid, and not reserved."""
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
    # The value may be a literal secret, so error messages never quote it.
    if not isinstance(value, list | tuple) or len(value) > webhook.SECRETS_MAX:
        got = type(value).__name__
        raise InvalidInput(field, f"a list of at most {webhook.SECRETS_MAX} references", got)
    if not all(is_reference(part) for part in value):
        fix = "Store the secret where the pusher can read it, and give its name here."
        raise InvalidInput(field, 'references {"$secret": "name"}', "another value", fix)
    return tuple(check_reference(part, f"{field}[{i}]") for i, part in enumerate(value))
