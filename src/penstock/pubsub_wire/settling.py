"""Acks and deadlines, shared by unary calls and streams.

With exactly-once delivery the response lists ack ids that are no longer valid; otherwise a stale
ack has no effect and is not reported, as in Google's service.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from google.protobuf import empty_pb2

from penstock.bus import ack_id as ackid
from penstock.bus import rules
from penstock.bus.message import SettleResult
from penstock.bus.store.topics import SubscriptionRow
from penstock.core.errors import Conflict, InvalidInput
from penstock.pubsub_wire.calls import WireCaller
from penstock.pubsub_wire.errors import STALE_ACK_ID, TRY_AGAIN, Code, WireError
from penstock.pubsub_wire.handlers import FrontEnd
from penstock.pubsub_wire.names import parse_name

IDS_MAX: Final = 10_000
"""Maximum number of ack ids in one request."""


class SettledIds(NamedTuple):
    """Which ack ids of a request took effect, and which were not valid."""

    done: list[str]
    stale: list[str]
    is_exactly_once: bool


def check_pullable(sub: SubscriptionRow) -> None:
    """Raise Conflict unless the subscription can be pulled."""
    if sub.detached_at is not None:
        raise Conflict(f"Subscription {sub.name} is detached from its topic.")
    if sub.kind != "pull":
        what = "its messages are pushed" if sub.kind == "push" else "Penstock handles its messages"
        raise Conflict(f"Subscription {sub.name} cannot be pulled: {what}.")


def ack_now(caller: WireCaller, project: str, name: str, ack_ids: Sequence[str]) -> SettledIds:
    """Ack deliveries. Malformed ack ids are not valid, like stale ones."""
    bus = caller.bus(project)
    return _in_parts(ack_ids, lambda part: bus.ack_once(name, part, accepts_repeats=True))


def extend_now(
    caller: WireCaller, project: str, name: str, ack_ids: Sequence[str], seconds: int
) -> SettledIds:
    """Move deadlines; 0 seconds nacks."""
    rules.check_extension(seconds)
    bus = caller.bus(project)
    return _in_parts(ack_ids, lambda part: bus.extend_of(name, part, seconds))


def _in_parts(ack_ids: Sequence[str], settle: Any) -> SettledIds:
    """Settle in transactions of a bounded size."""
    if not 1 <= len(ack_ids) <= IDS_MAX:
        raise InvalidInput("ack_ids", f"1 to {IDS_MAX} ack ids", len(ack_ids))
    done: list[str] = []
    stale: list[str] = []
    valid: list[str] = []
    for one in dict.fromkeys(ack_ids):
        (valid if _is_ack_id(one) else stale).append(one)
    is_exactly_once = False
    # The first part is settled even if it is empty: a missing subscription is an error.
    for start in range(0, max(len(valid), 1), rules.BATCH_MAX):
        part = valid[start : start + rules.BATCH_MAX]
        sub, results = settle(part)
        is_exactly_once = sub.is_exactly_once
        for one, result in zip(part, results, strict=True):
            (done if result is SettleResult.DONE else stale).append(one)
    return SettledIds(done, stale, is_exactly_once)


def _is_ack_id(text: str) -> bool:
    try:
        ackid.decode(text)
    except InvalidInput:
        return False
    return True


def _report(found: SettledIds) -> Any:
    """Return the empty response, or raise an error that names the invalid ack ids."""
    if found.stale and found.is_exactly_once:
        details = dict.fromkeys(found.stale, STALE_ACK_ID) | dict.fromkeys(found.done, TRY_AGAIN)
        text = "Some acknowledgement ids in the request were invalid: they expired or were settled."
        raise WireError(Code.FAILED_PRECONDITION, text, details)
    return empty_pb2.Empty()


async def acknowledge(front: FrontEnd, caller: WireCaller, pb: Any, _: Any) -> Any:
    """Ack deliveries."""
    project, name = parse_name(pb.subscription, "subscriptions", "subscription")
    found = await front.run(lambda: ack_now(caller, project, name, pb.ack_ids))
    front.outstanding.settled(pb.ack_ids)
    return _report(found)


async def modify_ack_deadline(front: FrontEnd, caller: WireCaller, pb: Any, _: Any) -> Any:
    """Move the deadlines of deliveries; 0 seconds nacks them."""
    project, name = parse_name(pb.subscription, "subscriptions", "subscription")
    seconds = pb.ack_deadline_seconds
    found = await front.run(lambda: extend_now(caller, project, name, pb.ack_ids, seconds))
    note_extended(front, pb.ack_ids, seconds)
    return _report(found)


def note_extended(front: FrontEnd, ack_ids: Sequence[str], seconds: int) -> None:
    """Pass new deadlines to the flow control of streams."""
    if seconds == 0:
        front.outstanding.settled(ack_ids)
    else:
        front.outstanding.extended(ack_ids, front.clock.monotonic() + seconds)
