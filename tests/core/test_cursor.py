"""Cursors: read back for the same question, refused in the same words for anything else."""

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.core.cursor import CURSOR_MAX, seal, unseal
from penstock.core.errors import InvalidInput

SECRET = b"0123456789abcdef"
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=10)
PLACES = st.lists(SCALARS, min_size=1, max_size=4)
QUESTIONS = st.dictionaries(st.text(max_size=8), SCALARS, max_size=4)


@given(QUESTIONS, PLACES)
def test_read_back(question: dict[str, Any], place: list[Any]) -> None:
    """A cursor gives its place back, whatever the order the question was asked in."""
    made = seal(SECRET, question, place)
    assert unseal(SECRET, dict(reversed(question.items())), made) == place
    assert made.isascii()
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


@given(QUESTIONS, QUESTIONS, PLACES)
def test_another_question(one: dict[str, Any], two: dict[str, Any], place: list[Any]) -> None:
    """Another list, filter or customer does not read it."""
    assume(json.dumps(one, sort_keys=True) != json.dumps(two, sort_keys=True))
    with pytest.raises(InvalidInput, match="something else"):
        unseal(SECRET, two, seal(SECRET, one, place))


@given(PLACES, st.integers(0, 10_000), st.characters())
def test_bent(place: list[Any], at: int, char: str) -> None:
    """One changed character is enough to be refused, also one that decodes to the same bytes."""
    made = seal(SECRET, {"list": "runs"}, place)
    bent = made[: at % len(made)] + char + made[at % len(made) + 1 :]
    assume(bent != made)
    with pytest.raises(InvalidInput, match="something else"):
        unseal(SECRET, {"list": "runs"}, bent)


@given(st.text(max_size=100) | st.binary(max_size=50) | st.none() | st.integers())
def test_forged(text: object) -> None:
    """Nothing that was not sealed is read."""
    with pytest.raises(InvalidInput, match="something else"):
        unseal(SECRET, {}, text)


@pytest.mark.parametrize("tail", ["=", "==", "A", " ", "\n", "\x00"])
def test_tails(tail: str) -> None:
    """Padding and white space are not ours."""
    with pytest.raises(InvalidInput):
        unseal(SECRET, {}, seal(SECRET, {}, [1]) + tail)


def test_another_secret() -> None:
    """Another installation's cursor is refused."""
    with pytest.raises(InvalidInput):
        unseal(b"other", {}, seal(SECRET, {}, [1]))


def test_size() -> None:
    """What is too long is not even decoded."""
    with pytest.raises(InvalidInput):
        unseal(SECRET, {}, "A" * (CURSOR_MAX + 1))
