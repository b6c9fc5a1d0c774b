"""One push attempt: builds the signed request, and settles the delivery according to the response.

Settling is one transaction: the ack or nack, the pause of a subscription whose endpoint is gone,
and the alert about it commit together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from penstock.access.secrets import Secrets
from penstock.audit.rows import NewAlert
from penstock.audit.store.alerts import alert_open, alert_resolve
from penstock.bus.message import CORRELATION, Delivery, ErrorKind
from penstock.bus.push import webhook
from penstock.bus.push.push_config import (
    PushRequest,
    PushResponse,
    PushVerdict,
    TokenSigner,
    auth_headers,
    build_request,
    parse_stored_push,
)
from penstock.bus.store.alert_commands import subscription_command
from penstock.bus.store.deliveries import DeliveryNack, LeasedDelivery, delivery_ack, delivery_nack
from penstock.bus.store.push_targets import PushReady
from penstock.bus.store.topics import SYSTEM, SubscriptionRow, subscription_pause
from penstock.core.clock import Micros
from penstock.core.errors import PenstockError
from penstock.core.naming import SubscriptionKey
from penstock.core.tracing.trace_context import (
    TRACEPARENT,
    TraceContext,
    baggage,
    is_sampled,
    message_context,
    span_of,
)
from penstock.db.store import Tx

ACTOR: Final = "pusher"
GONE: Final = "push_gone"
MISCONFIGURED: Final = "push_misconfigured"
FAILING: Final = "push_failing"
CONFIGURATION: Final = frozenset({"refused", "configuration"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PushAttempt:
    """A leased delivery being pushed; `leased_at` is the monotonic time of the lease."""

    ready: PushReady
    leased: LeasedDelivery
    leased_at: float
    share: float = 1.0
    """Fraction of traces that are exported."""

    @property
    def trace(self) -> tuple[str, str | None]:
        """The trace of the message, and the span that published it."""
        return message_context(self.leased.attributes, str(self.leased.message_id))

    @property
    def context(self) -> TraceContext:
        """The trace context of the request."""
        trace_id, leased = self.trace[0], self.leased
        span_id = span_of("push", self.subscription_key, leased.message_id, leased.attempt)
        return TraceContext(trace_id, span_id, is_sampled(trace_id, self.share))

    @property
    def subscription_key(self) -> SubscriptionKey:
        """Database key of the subscription that the delivery belongs to."""
        return self.ready.subscription.subscription_key


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRequest:
    """A signed request whose timeout is not set yet."""

    post: PushRequest

    def with_timeout(self, seconds: float) -> PushRequest:
        """Return the request with its timeout in seconds."""
        return replace(self.post, timeout_s=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Result of settling a delivery (ack, nack, gone or stale), and the channels to wake."""

    outcome: str
    wake: frozenset[str] = frozenset()


def sign_request(
    attempt: PushAttempt, *, bearer: TokenSigner, secrets: Secrets, now: Micros
) -> SignedRequest | PushResponse:
    """Build a delivery's signed request; return a failed response if it cannot be built."""
    sub, leased = attempt.ready.subscription, attempt.leased
    delivery = Delivery(
        ack_id="",
        message_id=str(leased.message_id),
        subscription=sub.name,
        topic=sub.topic_name,
        data=leased.data,
        attributes=leased.attributes,
        ordering_key=leased.ordering_key,
        publish_time=leased.published_at,
        attempt=leased.attempt,
        deadline=leased.until_at,
    )
    try:
        spec = parse_stored_push(sub.push or "null")
        keys = [
            webhook.parse_secret(secrets.get(name, attempt.ready.customer_id), f"secret {name}")
            for name in spec.signing_secrets
        ]
        token = (
            None
            if spec.oidc is None
            else bearer(spec.audience, spec.oidc.email, attempt.ready.customer_id)
        )
    except PenstockError as error:
        return PushResponse(failure="configuration", error=error.message)
    made = build_request(
        spec, delivery, subscription=sub.name, has_policy=sub.policy.has_dead_letters
    )
    correlation = leased.attributes.get(CORRELATION)
    headers = {
        **made.headers,
        TRACEPARENT: attempt.context.header,
        **({"baggage": baggage(correlation)} if correlation else {}),
        **auth_headers(keys, token, delivery, made.body, now),
    }
    return SignedRequest(
        post=PushRequest(
            url=spec.endpoint,
            headers=headers,
            body=made.body,
            timeout_s=0.0,
            owner=attempt.ready.customer_id,
        )
    )


def settle_push(
    tx: Tx,
    attempt: PushAttempt,
    response: PushResponse,
    *,
    verdict: PushVerdict,
    delay_us: Micros | None,
    jitter: Callable[[], float],
    is_clean: bool,
    is_failing: bool,
) -> Settled:
    """Ack or nack a delivery.

    `is_clean`: no alert about the endpoint can be open. `is_failing`: open the alert now.
    """
    sub, leased = attempt.ready.subscription, attempt.leased
    ticket = (leased.message_id, leased.epoch)
    if verdict is PushVerdict.ACK:
        is_done = ticket in delivery_ack(tx, sub, [ticket])
        if not is_clean:
            for rule in (MISCONFIGURED, FAILING, GONE):
                alert_resolve(tx, _key(rule, sub), ACTOR)
        return Settled(outcome="ack" if is_done else "stale")
    kind = ErrorKind.TRANSIENT
    if response.failure in CONFIGURATION:
        kind = ErrorKind.CONFIGURATION
        _open_alert(tx, sub, MISCONFIGURED, "CRITICAL", response.error)
    elif is_failing:
        _open_alert(tx, sub, FAILING, "HIGH", f"its endpoint keeps failing: {_why(response)}")
    nack = DeliveryNack(
        *ticket,
        kind,
        response.failure.upper() or f"HTTP_{response.status}",
        response.error or f"the endpoint responded {response.status}",
        delay_us,
    )
    refused = delivery_nack(tx, sub, [nack], jitter)
    if verdict is PushVerdict.GONE:
        subscription_pause(tx, sub.name, sub.customer_key, is_paused=True, actor=ACTOR)
        reason = "its endpoint responded 410 Gone; the subscription is paused until it is resumed"
        _open_alert(tx, sub, GONE, "HIGH", reason)
    outcome = verdict.value if ticket in refused.tickets else "stale"
    return Settled(outcome=outcome, wake=frozenset(refused.wake))


def _open_alert(tx: Tx, sub: SubscriptionRow, rule: str, severity: str, reason: str) -> None:
    alert_open(
        tx,
        NewAlert(
            rule=rule,
            dedupe_key=_key(rule, sub),
            severity=severity,
            subject_kind="subscription",
            subject=sub.subscription_key,
            message=f"push subscription {sub.name}: {reason}"[:1_000],
            customer_key=None if sub.customer_key == SYSTEM else sub.customer_key,
            detail={"subscription": sub.name, "fix": subscription_command(tx, "resume", sub)},
        ),
    )


def _key(rule: str, sub: SubscriptionRow) -> str:
    return f"{rule}:{sub.subscription_key}"


def _why(response: PushResponse) -> str:
    return response.error or f"it responds {response.status}"
