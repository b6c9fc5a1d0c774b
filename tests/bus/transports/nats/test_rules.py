"""The pure parts of the NATS transport: URL, names, ack ids, headers, policy, leases."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bus.message import NewMessage, SubscriptionSpec
from penstock.bus.transports.nats import headers, naming, policy
from penstock.bus.transports.nats.leases import Leases
from penstock.bus.transports.nats.options import parse_nats_url
from penstock.core.clock import SECOND
from penstock.core.errors import InvalidInput, SettingsError

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=40)
REPLY = "$JS.ACK.penstock_orders.work.3.17.40.1794912531645422712.2"
LONG_REPLY = "$JS.ACK.hub.ACCOUNT.penstock_orders.work.3.17.40.1794912531645422712.2.random"


@given(st.dictionaries(TEXT.filter(bool), TEXT, max_size=8), st.none() | TEXT)
def test_headers_keep_every_attribute(attributes: dict[str, str], key: str | None) -> None:
    """Whatever attributes and ordering key contain comes back, in headers that NATS accepts."""
    message = NewMessage(data=b"x", attributes=attributes, ordering_key=key)
    made = headers.headers_of(message, "id")
    for name, value in made.items():
        assert name.isascii()
        assert value.isascii()
        assert value == value.strip()
        assert not set("\r\n:") & set(name)
    assert headers.read_headers(made) == (attributes, key)


def test_foreign_headers_are_attributes() -> None:
    """Headers of other clients are attributes; those of the protocol are not."""
    made = {"Nats-Msg-Id": "1", "Nats-Expected-Stream": "s", "region": "eu", "X-Trace": "a b"}
    assert headers.read_headers(made).attributes == {"region": "eu", "X-Trace": "a b"}
    for broken in ("%%%", "bm90IGpzb24=", "WzFd"):
        with pytest.raises(ValueError, match=r"."):
            headers.read_headers({headers.OTHER_ATTRIBUTES: broken})


@pytest.mark.parametrize("reply", [REPLY, LONG_REPLY])
def test_ack_ids(reply: str) -> None:
    """An ack id says which delivery of which message it settles; a changed one is refused."""
    ack_id = naming.encode_ack_id(naming.Ticket("work", reply))
    ticket = naming.decode_ack_id(ack_id, "ack_id")
    assert (ticket.subscription, ticket.reply) == ("work", reply)
    assert ticket.place == ("penstock_orders", 17)
    assert (ticket.attempt, ticket.published_ns) == (3, 1794912531645422712)
    for broken in ("", "x", ack_id[:-4], ack_id.swapcase(), f"{ack_id}AAAA", 7):
        with pytest.raises(InvalidInput, match="ack_id"):
            naming.decode_ack_id(broken, "ack_id")


@given(st.from_regex(r"[A-Za-z][A-Za-z0-9_.~+%-]{2,30}", fullmatch=True))
def test_names_are_one_word(name: str) -> None:
    """A name becomes one word of a subject and back, so two names never share a stream."""
    assert not set(naming.token(name)) & set(".*> @")
    assert naming.name_of(naming.token(name)) == name
    assert naming.subscription_of(naming.consumer_of(name, "3")) == name
    assert naming.subscription_of(naming.consumer_of(name, naming.ANY)) == name


def test_policy_shows_what_was_changed_on_the_server() -> None:
    """What the server enforces wins over the metadata, so that a change is seen as drift."""
    spec = SubscriptionSpec(name="work", topic="orders", dead_letter_topic="orders.dlq")
    metadata = policy.consumer_metadata(spec)
    wait = policy.ack_wait_us(spec)
    assert policy.spec_of_consumer("work", metadata, wait_us=wait, max_deliver=-1) == spec
    assert policy.spec_of_consumer(
        "work", metadata, wait_us=wait + 5 * SECOND, max_deliver=3
    ) == replace(spec, ack_deadline_us=65 * SECOND, max_attempts=3)
    assert policy.spec_of_consumer("work", {}, wait_us=wait, max_deliver=-1) is None


def test_urls() -> None:
    """A URL names servers and options; what it may not contain is refused by name."""
    found = parse_nats_url("nats://u:p@one:4222,two:4222?replicas=3&prefix=shop&partitions=4")
    assert found.servers == ("nats://u:p@one:4222", "nats://u:p@two:4222")
    assert (found.replicas, found.prefix, found.partitions) == (3, "shop", 4)
    for url, field in (
        ("http://one", "transport"),
        ("nats:", "transport"),
        ("nats://one?replicas=9", r"transport\.replicas"),
        ("nats://one?prefix=a.b", r"transport\.prefix"),
        ("nats://one?color=red", "transport"),
    ):
        with pytest.raises(SettingsError, match=field):
            parse_nats_url(url)


def test_leases() -> None:
    """An ack id is stale after its deadline, once settled, and after a newer delivery."""
    leases = Leases()
    first = naming.Ticket("work", REPLY)
    second = naming.Ticket("work", REPLY.replace(".3.17.40.", ".4.17.41."))
    leases.add(first, now=0.0, until=10.0)
    assert leases.extend(first, now=5.0, until=20.0)
    assert leases.take(first, 15.0)
    assert not leases.take(first, 15.0)
    leases.give_back(first)
    assert leases.take(first, 15.0)
    leases.give_back(first)
    leases.add(second, now=16.0, until=30.0)
    assert not leases.take(first, 16.0)
    assert not leases.extend(second, now=31.0, until=40.0)
    assert leases.take(naming.Ticket("work", LONG_REPLY), 0.0), "another process holds it"
