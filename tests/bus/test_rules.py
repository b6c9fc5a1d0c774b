"""Validation of messages and subscriptions, ack ids, redelivery and dead-letter rules."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bus import ack_id, rules
from penstock.bus.cloudevents import event_attributes
from penstock.bus.message import ErrorKind, NewMessage, SubscriptionSpec, TopicSpec
from penstock.bus.redelivery import (
    DELAY_MAX,
    DeadLetterCause,
    RedeliveryPolicy,
    becomes_dead_letter,
    dead_letter_attributes,
    redelivery_backoff,
    redelivery_delay,
)
from penstock.core.clock import DAY, MINUTE, SECOND
from penstock.core.errors import InvalidInput
from penstock.core.naming import SubscriptionKey


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (NewMessage(), "message"),
        (NewMessage(data="text"), "message.data"),  # type: ignore[arg-type]
        (NewMessage(data=b"x" * (rules.MESSAGE_BYTES_MAX + 1)), "message.data"),
        (NewMessage(attributes={str(n): "" for n in range(101)}), "message.attributes"),
        (NewMessage(attributes={"": "x"}), "message.attributes key"),
        (NewMessage(attributes={"k" * 257: "x"}), "message.attributes key"),
        (NewMessage(attributes={"k": "x" * 1025}), "message.attributes.k"),
        (NewMessage(attributes={"k": "ü" * 513}), "message.attributes.k"),
        (NewMessage(attributes={"k": 1}), "message.attributes.k"),  # type: ignore[dict-item]
        (NewMessage(attributes={1: "x"}), "message.attributes key"),  # type: ignore[dict-item]
        (NewMessage(attributes={"k": "a\x00b"}), "message.attributes.k"),
        (NewMessage(attributes={"k": "\ud800"}), "message.attributes.k"),
        (NewMessage(attributes={"k\ud800": ""}), "message.attributes key"),
        (
            NewMessage(attributes={"CloudPubSubDeadLetterSourceSubscription": "x"}),
            "attributes.Cloud",
        ),
        (NewMessage(attributes={"cloudpubsubAnything": "x"}), "attributes.cloud"),
        (NewMessage(attributes={"googclient_x": "x"}), "attributes.goog"),
        (NewMessage(attributes={"penstock-replays": "0"}), "attributes.penstock"),
        (NewMessage(data=b"x", ordering_key="k" * 1025), "message.ordering_key"),
        (NewMessage(data=b"x", ordering_key="\x00"), "message.ordering_key"),
        (NewMessage(data=b"x", dedupe_id=""), "message.dedupe_id"),
        (NewMessage(data=b"x", dedupe_id="d" * 256), "message.dedupe_id"),
    ],
)
def test_invalid_messages_are_rejected(message: NewMessage, field: str) -> None:
    """A message that exceeds a limit is rejected with the name of the field."""
    with pytest.raises(InvalidInput, match=field.replace(".", r"\.")):
        rules.check_outgoing(message)


def test_values_at_the_limits_are_accepted() -> None:
    """Values exactly at their limits are valid."""
    attributes = {f"{'k' * 250}{n:03}": "v" for n in range(99)} | {"k" * 256: "x" * 1024}
    rules.check_outgoing(
        NewMessage(
            data=b"x" * rules.MESSAGE_BYTES_MAX,
            attributes=attributes,
            ordering_key="k" * 1024,
            dedupe_id="d" * 255,
        )
    )
    rules.check_outgoing(NewMessage(data=b"x", ordering_key=""))
    rules.check_outgoing(NewMessage(attributes={"only": ""}))
    rules.check_batch([NewMessage(data=b"x")] * rules.BATCH_MAX)


def test_invalid_batches_are_rejected() -> None:
    """Too many messages, too many bytes, or one invalid message, which the error names."""
    with pytest.raises(InvalidInput, match="messages: expected at most 1000"):
        rules.check_batch([NewMessage(data=b"x")] * 1001)
    with pytest.raises(InvalidInput, match="bytes per batch"):
        rules.check_batch([NewMessage(data=b"x" * 5_000_001)] * 2)
    with pytest.raises(InvalidInput, match="messages: expected at least one"):
        rules.check_batch([])
    with pytest.raises(InvalidInput, match=r"messages\[1\]: expected data or"):
        rules.check_batch([NewMessage(data=b"x"), NewMessage()])


@pytest.mark.parametrize(
    "name",
    ["", "ab", "1abc", "-abc", "a b", "a/b", "abc\n", "goog-topic", "GOOGtopic", "a" * 256, "é" * 5,
     "_deleted_1", None, 7],
)  # fmt: skip
def test_invalid_names_are_rejected(name: object) -> None:
    """Names follow Google's rule: a letter first, then allowed characters, 3 to 255 in all."""
    with pytest.raises(InvalidInput, match=r"^topic: "):
        rules.check_name(name, "topic")


@pytest.mark.parametrize("name", ["abc", "etl.raw.complete", "A-b_c.d~e+f%g", "a" * 255])
def test_valid_names(name: str) -> None:
    """Names of built-in topics are valid."""
    assert rules.check_name(name, "topic") == name


SPEC = SubscriptionSpec(name="sub", topic="top")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"ack_deadline_us": 10 * SECOND - 1}, "ack_deadline"),
        ({"ack_deadline_us": 600 * SECOND + 1}, "ack_deadline"),
        ({"min_backoff_us": -1}, "min_backoff"),
        ({"max_backoff_us": 9 * SECOND}, "max_backoff"),
        ({"max_backoff_us": 601 * SECOND}, "max_backoff"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 101}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"retention_us": 9 * MINUTE}, "retention"),
        ({"retention_us": 32 * DAY}, "retention"),
        ({"dead_letter_topic": "top"}, "dead_letter_topic"),
        ({"dead_letter_topic": "x"}, "dead_letter_topic"),
        ({"filter": "attributes"}, "filter"),
        ({"name": "s"}, "subscription"),
        ({"topic": "t"}, "topic"),
    ],
)
def test_invalid_subscriptions_are_rejected(changes: dict[str, object], field: str) -> None:
    """Each limit of a subscription is checked, and the error names the field."""
    with pytest.raises(InvalidInput, match=f"^{field}: "):
        rules.check_subscription(replace(SPEC, **changes))  # type: ignore[arg-type]


def test_valid_declarations() -> None:
    """Defaults and values at the limits are valid."""
    rules.check_subscription(SPEC)
    rules.check_subscription(
        replace(SPEC, ack_deadline_us=600 * SECOND, max_attempts=100, retention_us=31 * DAY)
    )
    rules.check_subscription(
        replace(SPEC, max_attempts=1, min_backoff_us=0, max_backoff_us=0, retention_us=10 * MINUTE)
    )
    rules.check_topic(TopicSpec(name="top", retention_us=10 * MINUTE))
    with pytest.raises(InvalidInput, match="retention"):
        rules.check_topic(TopicSpec(name="top", retention_us=MINUTE))


@pytest.mark.parametrize("seconds", [-1, 601, True, 1.5, "5", None])
def test_invalid_extensions_are_rejected(seconds: object) -> None:
    """A deadline extension is a whole number of seconds from 0 to 600."""
    with pytest.raises(InvalidInput, match="seconds"):
        rules.check_extension(seconds)
    assert [rules.check_extension(n) for n in (0, 1, 600)] == [0, 1, 600]


def test_body_hash() -> None:
    """The hash ignores the order of attributes and changes with any other difference."""
    one = NewMessage(data=b"ab", attributes={"k": "v", "l": "w"})
    assert rules.body_hash(one) == rules.body_hash(
        NewMessage(data=b"ab", attributes={"l": "w", "k": "v"}, dedupe_id="x")
    )
    others = [
        NewMessage(data=b"abk", attributes={"": "v", "l": "w"}),
        NewMessage(data=b"ab", attributes={"kv": "", "l": "w"}),
        NewMessage(data=b"ab", attributes={"k": "v"}),
        NewMessage(data=b"ab", attributes={"k": "v", "l": "w"}, ordering_key="o"),
        NewMessage(data=b"", attributes={"k": "v", "l": "w"}, ordering_key="ab"),
    ]
    hashes = {rules.body_hash(message) for message in (one, *others)}
    assert len(hashes) == len(others) + 1


numbers = st.integers(0, 2**63 - 1)


@given(numbers, numbers, st.integers(0, 2**31 - 1))
def test_ack_ids_round_trip(subscription: int, message_id: int, epoch: int) -> None:
    """An ack id has 32 characters and decodes to its parts."""
    text = ack_id.encode(SubscriptionKey(subscription), message_id, epoch)
    assert len(text) == 32
    assert ack_id.decode(text) == (subscription, message_id, epoch)


@given(st.one_of(st.text(max_size=40), st.binary(min_size=24, max_size=24).map(
    lambda raw: base64.urlsafe_b64encode(raw).decode())))  # fmt: skip
def test_other_text_is_not_an_ack_id(text: str) -> None:
    """Any text is either a canonical ack id or rejected."""
    try:
        ticket = ack_id.decode(text)
    except InvalidInput:
        return
    assert ack_id.encode(*ticket) == text


@pytest.mark.parametrize("value", [None, 5, b"A" * 32, "A" * 32, "é" * 32, "!" * 32, "", "=" * 32])
def test_malformed_ack_ids(value: object) -> None:
    """Wrong types, characters and checksums are rejected."""
    with pytest.raises(InvalidInput, match=r"ack_ids\[3\]"):
        ack_id.decode(value, "ack_ids[3]")


def test_ack_ids_with_one_character_changed_are_rejected() -> None:
    """The checksum detects a change of any single character."""
    text = ack_id.encode(SubscriptionKey(3), 12345, 2)
    for index in range(len(text)):
        changed = text[:index] + ("A" if text[index] != "A" else "B") + text[index + 1 :]
        with pytest.raises(InvalidInput):
            ack_id.decode(changed)


POLICY = RedeliveryPolicy(
    min_backoff_us=10 * SECOND, max_backoff_us=600 * SECOND, max_attempts=5, has_dead_letters=True
)


def test_backoff_table() -> None:
    """The backoff doubles from the minimum to the maximum; values without jitter are exact."""
    seconds = [redelivery_backoff(POLICY, n, 0.0) // SECOND for n in range(1, 9)]
    assert seconds == [10, 20, 40, 80, 160, 320, 600, 600]
    assert redelivery_backoff(POLICY, 10**6, 0.0) == 600 * SECOND
    assert redelivery_backoff(POLICY, 0, 0.0) == 10 * SECOND
    assert redelivery_backoff(replace(POLICY, min_backoff_us=0), 9, 0.9) == 0


@given(
    st.integers(1, 600 * SECOND),
    st.integers(0, 600 * SECOND),
    st.integers(1, 200),
    st.floats(-1, 2),
    st.one_of(st.none(), st.integers(0, 2 * DELAY_MAX)),
)
def test_backoff_properties(
    least: int, more: int, attempt: int, jitter: float, requested: int | None
) -> None:
    """The backoff is at least the minimum, grows with attempts and jitter, and is bounded."""
    policy = replace(POLICY, min_backoff_us=least, max_backoff_us=least + more)
    wait = redelivery_backoff(policy, attempt, jitter)
    assert wait >= redelivery_backoff(policy, attempt, 0.0) >= least > 0
    assert wait <= least + more, "jitter included"
    assert redelivery_backoff(policy, attempt + 1, 0.0) >= redelivery_backoff(policy, attempt, 0.0)
    assert redelivery_delay(policy, attempt, jitter, requested) >= wait
    assert redelivery_delay(policy, attempt, jitter, requested) >= min(requested or 0, DELAY_MAX)
    assert redelivery_delay(policy, attempt, jitter, requested) <= max(wait, DELAY_MAX)


@pytest.mark.parametrize(
    ("kind", "attempt", "with_policy", "without"),
    [
        (ErrorKind.TRANSIENT, 1, False, False),
        (ErrorKind.TRANSIENT, 4, False, False),
        (ErrorKind.TRANSIENT, 5, True, False),
        (ErrorKind.TRANSIENT, 6, True, False),
        (ErrorKind.CONFIGURATION, 4, False, False),
        (ErrorKind.CONFIGURATION, 5, True, False),
        (ErrorKind.POISON, 1, True, False),
        (ErrorKind.POISON, 5, True, False),
    ],
)
def test_when_a_delivery_is_dead(
    kind: ErrorKind, attempt: int, with_policy: bool, without: bool
) -> None:
    """Poison is dead at once, other errors after all attempts, nothing without a policy."""
    assert becomes_dead_letter(POLICY, attempt, kind) is with_policy
    assert becomes_dead_letter(replace(POLICY, has_dead_letters=False), attempt, kind) is without


def test_dead_letter_attributes() -> None:
    """Google's four attributes and our own are set; the error text is truncated."""
    death = DeadLetterCause(
        message_id=7, subscription="sub", attempts=5, replays=1, published_at=1_763_337_600_000_000,
        kind=ErrorKind.POISON, error_type="ValueError", error="x" * 5_000,
    )  # fmt: skip
    assert dead_letter_attributes(death) == {
        "CloudPubSubDeadLetterSourceDeliveryCount": "5",
        "CloudPubSubDeadLetterSourceSubscription": "sub",
        "CloudPubSubDeadLetterSourceSubscriptionProject": "penstock",
        "CloudPubSubDeadLetterSourceTopicPublishTime": "2025-11-17T00:00:00Z",
        "penstock-origin-message-id": "7",
        "penstock-replays": "1",
        "penstock-error-kind": "poison",
        "penstock-error-type": "ValueError",
        "penstock-error": "x" * 1_000,
    }


def test_event_attributes() -> None:
    """CloudEvents 1.0 attributes, and short payload fields for filters."""
    payload = {
        "pipeline": "etl",
        "customer": 7,
        "status": None,
        "mode": True,
        "partition": "é" * 600,
    }
    assert event_attributes("etl.raw.complete", 12, 1_763_337_600_000_000, payload) == {
        "pipeline": "etl",
        "customer": "7",
        "ce-specversion": "1.0",
        "ce-id": "12",
        "ce-source": "penstock",
        "ce-type": "etl.raw.complete",
        "ce-time": "2025-11-17T00:00:00Z",
        "content-type": "application/json",
    }
