"""Cursors: accepted for the same query only; everything else yields the same error."""

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.core.cursor import CURSOR_MAX, sign_cursor, verify_cursor
from penstock.core.errors import InvalidInput

SECRET = b"0123456789abcdef"
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=10)
POSITIONS = st.lists(SCALARS, min_size=1, max_size=4)
QUERIES = st.dictionaries(st.text(max_size=8), SCALARS, max_size=4)


@given(QUERIES, POSITIONS)
def test_round_trip(query: dict[str, Any], position: list[Any]) -> None:
    """A cursor returns its position, independent of the order of the query's fields."""
    cursor = sign_cursor(SECRET, query, position)
    assert verify_cursor(SECRET, dict(reversed(query.items())), cursor) == position
    assert cursor.isascii()
    assert set(cursor) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


@given(QUERIES, QUERIES, POSITIONS)
def test_other_query(one: dict[str, Any], two: dict[str, Any], position: list[Any]) -> None:
    """A cursor is rejected for another list, filter or customer."""
    assume(json.dumps(one, sort_keys=True) != json.dumps(two, sort_keys=True))
    with pytest.raises(InvalidInput, match="an invalid cursor"):
        verify_cursor(SECRET, two, sign_cursor(SECRET, one, position))


@given(POSITIONS, st.integers(0, 10_000), st.characters())
def test_modified(position: list[Any], at: int, char: str) -> None:
    """A cursor with one changed character is rejected, even if it decodes to the same bytes."""
    cursor = sign_cursor(SECRET, {"list": "runs"}, position)
    modified = cursor[: at % len(cursor)] + char + cursor[at % len(cursor) + 1 :]
    assume(modified != cursor)
    with pytest.raises(InvalidInput, match="an invalid cursor"):
        verify_cursor(SECRET, {"list": "runs"}, modified)


@given(st.text(max_size=100) | st.binary(max_size=50) | st.none() | st.integers())
def test_forged(text: object) -> None:
    """Text that was not sealed is rejected."""
    with pytest.raises(InvalidInput, match="an invalid cursor"):
        verify_cursor(SECRET, {}, text)


@pytest.mark.parametrize("tail", ["=", "==", "A", " ", "\n", "\x00"])
def test_trailing_characters(tail: str) -> None:
    """Padding and trailing white space are rejected."""
    with pytest.raises(InvalidInput):
        verify_cursor(SECRET, {}, sign_cursor(SECRET, {}, [1]) + tail)


def test_other_secret() -> None:
    """A cursor of another installation is rejected."""
    with pytest.raises(InvalidInput):
        verify_cursor(b"other", {}, sign_cursor(SECRET, {}, [1]))


def test_size() -> None:
    """Overlong text is rejected before it is decoded."""
    with pytest.raises(InvalidInput):
        verify_cursor(SECRET, {}, "A" * (CURSOR_MAX + 1))
