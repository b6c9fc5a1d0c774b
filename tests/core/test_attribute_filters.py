"""Attribute filters: tables of matches, error positions, and arbitrary text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidInput
from penstock.core.filters.attributes import DEPTH_MAX, FILTER_MAX, parse

EU = {"region": "eu-west", "kind": "order"}


@pytest.mark.parametrize(
    ("text", "attributes", "verdict"),
    [
        ("attributes:region", EU, True),
        ("attributes:other", EU, False),
        ('attributes:"region"', EU, True),
        ('attributes.region = "eu-west"', EU, True),
        ('attributes.region="eu-west"', EU, True),
        ('attributes.region = "eu"', EU, False),
        ('attributes.region = "eu"', {}, False),
        ('attributes.region != "eu"', EU, True),
        ('attributes.region != "eu-west"', EU, False),
        ('attributes.region != "eu"', {}, True),
        ('attributes."iana.org/language_tag" = "en"', {"iana.org/language_tag": "en"}, True),
        ('hasPrefix(attributes.region, "eu-")', EU, True),
        ('hasPrefix(attributes.region, "us-")', EU, False),
        ('hasPrefix(attributes.region, "")', {}, False),
        ("NOT attributes:region", EU, False),
        ("-attributes:region", {}, True),
        ("NOT attributes:other AND attributes:kind", EU, True),
        ('attributes:region AND attributes.kind = "order"', EU, True),
        ("attributes:other OR attributes:kind", EU, True),
        ("attributes:other OR attributes:third", EU, False),
        ("attributes:region AND (attributes:other OR attributes:kind)", EU, True),
        ("NOT (attributes:region OR attributes:other)", EU, False),
        (r'attributes.quoted = "say \"hi\" \\"', {"quoted": 'say "hi" \\'}, True),
        ('attributes.und = "ü"', {"und": "ü"}, True),
        ("  attributes:region  ", EU, True),
        ("attributes:NOTE", {"NOTE": ""}, True),
        ("attributes:1k", {"1k": ""}, True),
        ('attributes.007 = "x" AND NOT attributes:8-bit', {"007": "x"}, True),
        ('hasPrefix(attributes.2nd_key, "a")', {"2nd_key": "ab"}, True),
    ],
)  # fmt: skip
def test_matches(text: str, attributes: dict[str, str], verdict: bool) -> None:
    """Each form of a filter matches as expected."""
    assert parse(text)(attributes) is verdict


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("attributes", 11),
        ("attributes.", 12),
        ("attributes.a", 13),
        ("attributes.a = ", 16),
        ("attributes.a = b", 16),
        ('attributes.a == "b"', 15),
        ("attributes.a = 'b'", 16),
        ('attributes.a = "b', 16),
        ('attributes.a > "b"', 14),
        ("attributes:", 12),
        ("attributes:AND", 12),
        ("message.data", 1),
        ("AND attributes:a", 1),
        ("attributes:a AND", 17),
        ("attributes:a attributes:b", 14),
        ("attributes:a AND attributes:b OR attributes:c", 31),
        ("attributes:a OR attributes:b AND attributes:c", 30),
        ("(attributes:a", 14),
        ("attributes:a)", 13),
        ("NOT NOT attributes:a", 5),
        ("hasPrefix(attributes.a)", 23),
        ("hasPrefix attributes.a", 11),
        ('hasprefix(attributes.a, "b")', 1),
        ("attributes:a; DROP TABLE x", 13),
        ("attributes:a and attributes:b", 14),
    ],
)  # fmt: skip
def test_errors_name_the_position(text: str, position: int) -> None:
    """An invalid filter is rejected with the position of the error."""
    with pytest.raises(InvalidInput, match=rf"filter: .*position {position} "):
        parse(text)


def test_bounds() -> None:
    """Empty, overlong and deeply nested filters are rejected."""
    for text in ("", "   "):
        with pytest.raises(InvalidInput, match="Omit the filter"):
            parse(text)
    fits = 'attributes.a = "' + "x" * (FILTER_MAX - 17) + '"'
    assert parse(fits)({"a": "x" * (FILTER_MAX - 17)})
    with pytest.raises(InvalidInput, match="at most 256 bytes"):
        parse(fits + " ")
    deep = "(" * DEPTH_MAX + "attributes:a" + ")" * DEPTH_MAX
    assert parse(deep)({"a": ""})
    with pytest.raises(InvalidInput, match="levels"):
        parse("(" + deep + ")")


tokens = st.sampled_from(
    ["attributes", ":", ".", "a", "b", "=", "!=", '"v"', "(", ")", "AND", "OR", "NOT", "-", ",",
     "hasPrefix", " ", "'", "\\", "\x00", "ü"]
)  # fmt: skip


@given(st.one_of(st.text(max_size=60), st.lists(tokens, max_size=14).map(" ".join)))
def test_any_text_is_a_filter_or_rejected(text: str) -> None:
    """Any text parses or is rejected, and a filter always returns a bool."""
    try:
        matches = parse(text)
    except InvalidInput:
        return
    assert matches({"a": "v"}) in (True, False)
    assert matches({}) in (True, False)


@given(
    st.dictionaries(st.sampled_from("abc"), st.sampled_from(["x", "xy", "z"])),
    st.sampled_from("abc"),
    st.sampled_from(["x", "xy", "z"]),
)
def test_consistency(attributes: dict[str, str], key: str, value: str) -> None:
    """Negation, absence and prefix are consistent for all attributes."""
    equal = parse(f'attributes.{key} = "{value}"')(attributes)
    assert parse(f'attributes.{key} != "{value}"')(attributes) is not equal
    assert parse(f'NOT attributes.{key} = "{value}"')(attributes) is not equal
    exists = parse(f"attributes:{key}")(attributes)
    assert exists is (key in attributes)
    assert not equal or parse(f'hasPrefix(attributes.{key}, "{value}")')(attributes)
