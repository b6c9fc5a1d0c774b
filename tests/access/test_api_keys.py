"""API keys: format, checksum, hashes, states and the permissions of roles."""

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.access import api_keys
from penstock.access.api_keys import KeyState, ParsedKey, Permission, Role
from penstock.core.errors import InvalidInput
from penstock.core.ids import ID_MAX, encode, new_secret

SECRETS = st.binary(min_size=25, max_size=25).map(lambda raw: new_secret(lambda _n: raw))
KEY = api_keys.format_key(7, new_secret(lambda n: bytes(range(n))))


@given(key_id=st.integers(0, ID_MAX), secret=SECRETS)
def test_round_trip(key_id: int, secret: str) -> None:
    """A key parses to its parts, and its middle part is its public id."""
    text = api_keys.format_key(key_id, secret)
    assert api_keys.parse(text) == ParsedKey(key_id, secret)
    assert encode("key", key_id) == f"key_{text.split('_')[1]}"
    assert len(secret) * 5 >= 192


@given(index=st.integers(0, len(KEY) - 1), char=st.sampled_from(string.printable))
def test_one_wrong_character(index: int, char: str) -> None:
    """A key with one wrong character is rejected without a database query."""
    typo = KEY[:index] + char + KEY[index + 1 :]
    assert (api_keys.parse(typo) is None) == (typo != KEY)


@given(text=st.text(max_size=100))
def test_any_text(text: str) -> None:
    """Parsing never raises."""
    assert api_keys.parse(text) is None


@pytest.mark.parametrize(
    "text",
    [None, 5, b"pnk_", "", "pnk_", KEY[:-1], KEY + "0", f" {KEY}", f"{KEY}\n", KEY.upper(),
     KEY.replace("pnk_", "pnx_"), KEY * 10],
)  # fmt: skip
def test_malformed_keys(text: Any) -> None:
    """Truncated, padded, uppercase and other malformed keys are rejected."""
    assert api_keys.parse(text) is None


def test_secrets_are_not_shown() -> None:
    """A parsed key does not print its secret, and a hash does not contain it."""
    parsed = api_keys.parse(KEY)
    assert parsed is not None
    assert parsed.secret not in repr(parsed)
    assert parsed.secret not in api_keys.hash_secret(parsed.secret)


def test_comparing() -> None:
    """A secret matches only its own hash, and nothing matches a missing hash."""
    assert api_keys.matches_hash("a", api_keys.hash_secret("a"))
    assert not api_keys.matches_hash("a", api_keys.hash_secret("b"))
    assert not api_keys.matches_hash("a", None)


@pytest.mark.parametrize(
    ("role", "powers"),
    [
        (Role.VIEWER, {Permission.READ_RUNS, Permission.READ}),
        (Role.WORKER, {Permission.READ_RUNS, Permission.WORK}),
        (
            Role.OPERATOR,
            {Permission.READ_RUNS, Permission.READ, Permission.WORK, Permission.OPERATE},
        ),
        (Role.ADMIN, set(Permission)),
    ],
)
def test_roles(role: Role, powers: set[Permission]) -> None:
    """Each role has exactly these permissions."""
    assert {power for power in Permission if role.has_permission(power)} == powers


def test_cover() -> None:
    """A viewer and a worker do not cover each other; an operator covers both, an admin all."""
    assert not Role.WORKER.covers(Role.VIEWER)
    assert not Role.VIEWER.covers(Role.WORKER)
    assert Role.OPERATOR.covers(Role.VIEWER)
    assert Role.OPERATOR.covers(Role.WORKER)
    assert not Role.OPERATOR.covers(Role.ADMIN)
    assert all(Role.ADMIN.covers(role) for role in Role)


@pytest.mark.parametrize(
    ("expires_at", "revoked_at", "previous_until", "state"),
    [
        (None, None, None, KeyState.ACTIVE),
        (101, None, None, KeyState.ACTIVE),
        (100, None, None, KeyState.EXPIRED),
        (None, 5, None, KeyState.REVOKED),
        (50, 5, 200, KeyState.REVOKED),
        (None, None, 101, KeyState.ROTATING),
        (None, None, 100, KeyState.ACTIVE),
        (100, None, 200, KeyState.EXPIRED),
    ],
)
def test_states(
    expires_at: int | None, revoked_at: int | None, previous_until: int | None, state: KeyState
) -> None:
    """Revoked takes precedence over expired, and expired over rotating; limits are inclusive."""
    assert state is api_keys.key_state(
        100, expires_at=expires_at, revoked_at=revoked_at, previous_until=previous_until
    )


@pytest.mark.parametrize("value", ["root", "", None, "Admin", 5])
def test_unknown_roles(value: Any) -> None:
    """An unknown role is rejected with the list of roles."""
    with pytest.raises(InvalidInput, match="role: expected one of admin, operator, worker, viewer"):
        api_keys.check_role(value)
