"""API keys on both engines: created, found by id, rotated with overlap, revoked permanently."""

import threading
from datetime import timedelta

import pytest

from penstock.access.api_keys import KeyState, Principal, Role, format_key, parse
from penstock.access.records import IssuedKey
from penstock.access.store.keys import key_get, key_touch, secret_ensure
from penstock.audit.store.journal import journal_for
from penstock.client import Client
from penstock.core.clock import DAY, HOUR, MINUTE, to_datetime
from penstock.core.errors import Conflict, InvalidInput, NotFound
from penstock.core.ids import decode, encode, new_secret
from penstock.core.records.record import encode_record
from penstock.db.store import Store
from penstock.testing.clock import VirtualClock
from tests.conftest import OpenStore
from tests.kits.dump import columns_holding


@pytest.fixture
def client(store: Store) -> Client:
    """A client on the engine under test."""
    return Client(store, actor="tester")


def number_of(key: IssuedKey) -> int:
    """Return the number of a key in the database."""
    return decode("key", key.info.key_id)


def secret_of(key: IssuedKey) -> str:
    """Return the secret part of a key."""
    parsed = parse(key.key)
    assert parsed is not None
    return parsed.secret


def test_create_and_use(client: Client) -> None:
    """A new key identifies its bearer, role, customer and rate."""
    made = client.keys.create("ci", Role.WORKER, customer="acme", rate=2.5)
    assert made.info.state is KeyState.ACTIVE
    assert client.keys.authenticate(made.key) == Principal(
        key_id=number_of(made), name="ci", role=Role.WORKER, customer_id="acme", rate=2.5
    )
    plain = client.keys.create("ops", "operator")
    principal = client.keys.authenticate(plain.key)
    assert principal is not None
    assert principal.customer_id is None
    assert principal.actor == "key:ops"


def test_secret_is_shown_once(client: Client) -> None:
    """No later response has the key, and the key is nowhere in the database."""
    made = client.keys.create("ci", Role.ADMIN)
    again = client.keys.rotate(made.info.key_id)
    for shown in (client.keys.get(made.info.key_id), client.keys.list()):
        assert secret_of(again).encode() not in encode_record(shown)
    for key in (made, again):
        assert columns_holding(client.store, secret_of(key)) == []


@pytest.mark.parametrize("text", ["", "pnk_x", "Bearer", None, 5])
def test_no_key(client: Client, text: object) -> None:
    """A malformed key authenticates no principal."""
    assert client.keys.authenticate(text) is None


def test_wrong_secret_and_unknown_id(client: Client) -> None:
    """A well-formed key with another secret or another id authenticates no principal."""
    made = client.keys.create("ci", Role.ADMIN)
    other = client.keys.create("cd", Role.ADMIN)
    assert client.keys.authenticate(format_key(number_of(made), new_secret())) is None
    assert client.keys.authenticate(format_key(999, secret_of(made))) is None
    assert client.keys.authenticate(format_key(number_of(other), secret_of(made))) is None


def test_expiry(client: Client, clock: VirtualClock) -> None:
    """A key is valid until its expiry, and neither rotates nor revives after it."""
    made = client.keys.create("ci", Role.VIEWER, expires="1h")
    clock.advance(HOUR - 1)
    assert client.keys.authenticate(made.key) is not None
    clock.advance(1)
    assert client.keys.authenticate(made.key) is None
    assert client.keys.get(made.info.key_id).state is KeyState.EXPIRED
    with pytest.raises(Conflict, match="expired"):
        client.keys.rotate(made.info.key_id)


def test_rotation_with_overlap(client: Client, clock: VirtualClock) -> None:
    """Both secrets are valid for the overlap, then only the new one; a third ends the first."""
    first = client.keys.create("ci", Role.VIEWER)
    second = client.keys.rotate(first.info.key_id)
    assert second.info.state is KeyState.ROTATING
    assert second.info.rotating_until == to_datetime(clock.now() + DAY)
    assert client.keys.authenticate(first.key) is not None
    assert client.keys.authenticate(second.key) is not None
    third = client.keys.rotate(first.info.key_id, overlap=timedelta(hours=1))
    assert client.keys.authenticate(first.key) is None
    clock.advance(HOUR)
    assert client.keys.authenticate(second.key) is None
    assert client.keys.authenticate(third.key) is not None
    assert client.keys.get(first.info.key_id).state is KeyState.ACTIVE


def test_rotation_at_once(client: Client) -> None:
    """Without an overlap, the old secret ends with the call."""
    first = client.keys.create("ci", Role.VIEWER)
    second = client.keys.rotate(first.info.key_id, overlap="0s")
    assert client.keys.authenticate(first.key) is None
    assert client.keys.authenticate(second.key) is not None


def test_revocation(client: Client) -> None:
    """A revoked key authenticates no principal, with either secret, and stays revoked."""
    first = client.keys.create("ci", Role.VIEWER)
    second = client.keys.rotate(first.info.key_id)
    assert client.keys.revoke(first.info.key_id, reason="lost").is_changed
    assert not client.keys.revoke(first.info.key_id).is_changed
    assert client.keys.authenticate(first.key) is None
    assert client.keys.authenticate(second.key) is None
    assert client.keys.list().items == []
    (shown,) = client.keys.list(with_revoked=True).items
    assert (shown.state, shown.revoked_by) == (KeyState.REVOKED, "tester")
    with pytest.raises(Conflict, match="revoked"):
        client.keys.rotate(first.info.key_id)


def test_changes_are_journaled(client: Client) -> None:
    """Creation, rotation and revocation are journaled with actor and reason, without secrets."""
    made = client.as_actor("ann").keys.create("ci", Role.VIEWER, customer="acme")
    client.as_actor("bob").keys.rotate(made.info.key_id)
    client.as_actor("cid").keys.revoke(made.info.key_id, reason="lost")
    row = client.store.read(lambda tx: key_get(tx, number_of(made)))
    assert row is not None
    entries = client.store.read(lambda tx: journal_for(tx, "key", number_of(made)))
    assert [(entry.action, entry.actor, entry.why) for entry in entries] == [
        ("created", "ann", None), ("rotated", "bob", None), ("revoked", "cid", "lost"),
    ]  # fmt: skip
    assert {entry.customer_key for entry in entries} == {row.customer_key}
    assert not any(hash in str(entries) for hash in (row.hash, row.previous_hash or "none"))


def test_last_use_is_written_once_a_minute(client: Client, clock: VirtualClock) -> None:
    """The last use is recorded, at most once a minute."""
    made = client.keys.create("ci", Role.VIEWER)
    assert client.keys.get(made.info.key_id).last_used_at is None
    start = clock.now()
    client.keys.authenticate(made.key)
    clock.advance(MINUTE)
    client.keys.authenticate(made.key)
    assert client.keys.get(made.info.key_id).last_used_at == to_datetime(start)
    assert not client.store.write(lambda tx: key_touch(tx, number_of(made)))
    clock.advance(1)
    client.keys.authenticate(made.key)
    assert client.keys.get(made.info.key_id).last_used_at == to_datetime(start + MINUTE + 1)


def test_a_refused_key_does_not_count_as_used(client: Client) -> None:
    """A wrong secret does not count as a use."""
    made = client.keys.create("ci", Role.VIEWER)
    client.keys.authenticate(format_key(number_of(made), new_secret()))
    assert client.keys.get(made.info.key_id).last_used_at is None


def test_pages(client: Client) -> None:
    """Keys are listed in id order, of all customers or of one; a cursor fits its filters only."""
    ids = [client.keys.create(f"k{n}", "viewer", customer=c).info.key_id
           for n, c in enumerate(["acme", None, "bravo", "acme"])]  # fmt: skip
    first = client.keys.list(limit=3)
    assert [key.key_id for key in first.items] == ids[:3]
    rest = client.keys.list(limit=3, cursor=first.next_cursor)
    assert [key.key_id for key in rest.items] == ids[3:]
    assert rest.next_cursor is None
    assert [key.key_id for key in client.keys.list(customer="acme").items] == [ids[0], ids[3]]
    with pytest.raises(InvalidInput, match="cursor"):
        client.keys.list(customer="acme", cursor=first.next_cursor)
    with pytest.raises(NotFound):
        client.keys.list(customer="unknown")


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("name", {"name": ""}), ("name", {"name": "a\nb"}), ("role", {"role": "root"}),
        ("customer_id", {"customer": "no spaces"}), ("rate", {"rate": 0}),
        ("rate", {"rate": float("nan")}), ("rate", {"rate": True}),
        ("expires", {"expires": "0s"}), ("expires", {"expires": "soon"}),
    ],
)  # fmt: skip
def test_bad_input(client: Client, field: str, given: dict[str, object]) -> None:
    """An invalid field is refused by its name, and no key is created."""
    wanted = {"name": "ci", "role": "viewer", **given}
    with pytest.raises(InvalidInput) as caught:
        client.keys.create(**wanted)  # type: ignore[arg-type]
    assert caught.value.field == field
    assert client.keys.list().items == []


def test_bad_overlaps_and_ids(client: Client) -> None:
    """An overlap has bounds; an unknown key is not found."""
    made = client.keys.create("ci", Role.VIEWER)
    for overlap in (-1, "31d", True):
        with pytest.raises(InvalidInput, match="overlap"):
            client.keys.rotate(made.info.key_id, overlap=overlap)
    for key_id in (encode("key", number_of(made) + 1), "key_", "run_5m7t0c2d", ""):
        for call in (client.keys.get, client.keys.rotate, client.keys.revoke):
            with pytest.raises(NotFound, match="key"):
                call(key_id)


def test_the_secret_is_not_logged(client: Client) -> None:
    """The text form of a record has no secret, so a log of it has none."""
    made = client.keys.create("ci", Role.VIEWER)
    assert secret_of(made) not in repr(made)
    assert made.info.key_id in str(made)


def test_server_secrets(open_store: OpenStore) -> None:
    """Servers that start at the same time agree on a secret; each name has its own."""
    stores = [open_store() for _ in range(4)]
    found: list[str] = []

    def ask(store: Store) -> None:
        found.append(Client(store).keys.server_secret("cursors"))

    threads = [threading.Thread(target=ask, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert Client(stores[0]).keys.server_secret("other") != found[0]
    assert stores[0].write(lambda tx: secret_ensure(tx, "cursors", "mine")) == found[0]
