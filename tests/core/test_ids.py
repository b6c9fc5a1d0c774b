"""Public ids: the encoding never changes, and malformed ids are rejected."""

from __future__ import annotations

from itertools import pairwise

import pytest

from penstock.core import ids
from penstock.core.errors import InvalidInput


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "run_d1mpdnjw"),
        (1, "run_8ycpqxn9"),
        (2, "run_9g4cmxrm"),
        (2**40 - 1, "run_535kd1g0"),
        (2**40, "run_8tazfdy4vkw7w"),
        (2**63 - 1, "run_6hsc9zdmk3tgf"),
    ],
)
def test_the_encoding_never_changes(n: int, text: str) -> None:
    """Ids appear in logs and bookmarks, which a change of the constants would break."""
    assert ids.encode("run", n) == text
    assert ids.decode("run", text) == ids.decode("run", text.upper()) == n


def test_kinds_have_different_encodings() -> None:
    """Run 1 and config 1 look unrelated."""
    assert len({ids.encode(kind, 1).partition("_")[2] for kind in ids.KINDS}) == len(ids.KINDS)


GOOD = ids.encode("run", 12345)


@pytest.mark.parametrize(
    "text",
    [
        "", "run_", "run", "12345", GOOD[:-1], GOOD + "0", GOOD.replace("run", "cfg"),
        "run_iiiiiiii", "run_oooooooo", " " + GOOD, GOOD + "\n", "run_zzzzzzzzzzzzz",
        "run_0000000000000", "run_" + "0" * 60, None, 12345, "run_٣٣٣٣٣٣٣٣", "run__1234567",
        "'; drop table runs; --",
    ],
)  # fmt: skip
def test_malformed_ids_are_rejected(text: object) -> None:
    """Only the canonical form of an id is accepted."""
    with pytest.raises(InvalidInput, match="run_id: expected an id such as"):
        ids.decode("run", text)


def test_another_kind_is_named() -> None:
    """The error names the kind if the id of a config is given for a run."""
    with pytest.raises(InvalidInput, match=r"another kind of resource \(cfg\)"):
        ids.decode("run", ids.encode("cfg", 1))


def test_neighbours_look_unrelated() -> None:
    """Consecutive ids share their first character about as often as random ones (1 in 32)."""
    spelled = [ids.encode("run", n)[4:] for n in range(4000)]
    pairs = list(pairwise(spelled))
    for length, most in ((1, 200), (2, 15), (4, 0)):
        assert sum(a[:length] == b[:length] for a, b in pairs) <= most
    assert len({text[:3] for text in spelled[:100]}) > 90


def test_random_ids_have_128_bits_from_the_given_source() -> None:
    """The source of randomness can be replaced, and the default does not repeat."""
    assert ids.new_correlation_id(lambda n: b"\0" * n) == "0" * 26
    assert ids.new_boot_id(lambda n: b"\xff" * n) == "7" + "z" * 25
    assert len({ids.new_correlation_id() for _ in range(100)}) == 100
    assert ids.new_boot_id() != ids.new_boot_id()


def test_stable_fraction_is_stable_and_even() -> None:
    """A key always gives the same fraction, and fractions are evenly distributed."""
    assert ids.stable_fraction("config-1") == 0.32254844647309944
    assert ids.stable_fraction(1) != ids.stable_fraction("1")
    values = [ids.stable_fraction(n) for n in range(10_000)]
    assert all(0 <= value < 1 for value in values)
    assert all(850 < sum(low <= v * 10 < low + 1 for v in values) < 1150 for low in range(10))
