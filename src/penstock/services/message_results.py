"""Nacks and origins of messages that the binder handles."""

from __future__ import annotations

import logging

from penstock.bus.message import ErrorKind
from penstock.bus.store.deliveries import DeliveryNack, LeasedDelivery
from penstock.bus.store.topics import SubscriptionRow
from penstock.core.error_classification import classify
from penstock.core.errors import DeclarationError, InvalidInput, NotFound, PenstockError
from penstock.core.redact import redact_text
from penstock.core.tracing.trace_context import TRACEPARENT, message_correlation
from penstock.runs.rows import MessageOrigin

ACTOR = "binder"
CUSTOMER_ATTRIBUTE = "customer_id"
PERMANENT_ERRORS = (
    TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip
"""Programming errors, which the same message raises on every attempt."""

log = logging.getLogger(__name__)


def nack_of(one: LeasedDelivery, error: Exception) -> DeliveryNack:
    """Return the nack of a message for any error.

    A message that can never succeed is poison. Any other error, such as one of the store, is
    transient: the message is delivered again and becomes a dead letter after its last attempt.
    """
    if isinstance(error, PenstockError):
        error_type, text = error.code, error.message
    else:
        error_type, text = classify(error), f"{type(error).__name__}: {error}"
        log.error("message %s failed", one.message_id, exc_info=error)
    kind = ErrorKind.POISON if is_poison(error) else ErrorKind.TRANSIENT
    return DeliveryNack(one.message_id, one.epoch, kind, error_type, redact_text(text))


def is_poison(error: Exception) -> bool:
    """Return whether an error would occur on every attempt."""
    if isinstance(error, PenstockError):
        return isinstance(error, InvalidInput | NotFound | DeclarationError)
    return isinstance(error, PERMANENT_ERRORS)


def correlation_of(one: LeasedDelivery) -> str:
    """Return the correlation id that a message passes on: its own, that of its trace, or its id.

    A handler that publishes with `Message.follow_up` uses the same.
    """
    own = message_correlation(one.attributes.get("correlation_id"), one.attributes.get(TRACEPARENT))
    return own or str(one.message_id)


def origin_of(sub: SubscriptionRow, one: LeasedDelivery) -> MessageOrigin:
    """Return the origin of runs and flows that a message starts."""
    return MessageOrigin(message_id=str(one.message_id), subscription=sub.name)
