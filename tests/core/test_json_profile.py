"""The JSON profile: accepted documents round-trip, and others raise InvalidInput."""

import json
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core.errors import InvalidInput
from penstock.core.json_profile import DEPTH_MAX, INT_MAX, INT_MIN, parse_json

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(INT_MIN, INT_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(TEXTS, inner, max_size=4).filter(
            lambda one: len({normalize("NFC", name) for name in one}) == len(one)
        )
    ),
    max_leaves=20,
)


class TestProperties:
    """Properties of all documents."""

    @given(VALUES, st.booleans())
    def test_valid_values_are_parsed_unchanged(self, value: Any, is_ascii: bool) -> None:
        """A value within the profile is parsed unchanged, escaped or not."""
        assert parse_json(json.dumps(value, ensure_ascii=is_ascii).encode()) == value

    @given(st.binary(max_size=200))
    @example(b"\xff\xfe\x00")
    @example(b'"\xed\xa0\x80"')
    @example(b"1" * 200)
    def test_any_bytes(self, body: bytes) -> None:
        """Any bytes give a value or InvalidInput; accepted values round-trip."""
        try:
            value = parse_json(body)
        except InvalidInput:
            return
        again = json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
        assert parse_json(again) == value
        assert b"\\u0000" not in again

    @given(st.text(st.characters(), max_size=30))
    def test_texts(self, text: str) -> None:
        """Texts with NUL or lone surrogates are rejected, all others accepted."""
        body = json.dumps(text).encode()
        is_bad = "\x00" in text or any(0xD800 <= ord(c) < 0xE000 for c in text)
        if is_bad:
            with pytest.raises(InvalidInput):
                parse_json(body)
        else:
            assert parse_json(body) == text

    @given(st.integers(1, 200), st.sampled_from(["[", '{"a":']))
    def test_depth(self, levels: int, opened: str) -> None:
        """Nesting is accepted up to the maximum depth."""
        closed = {"[": "]", '{"a":': "}"}[opened]
        inner = "" if opened == "[" else "1"
        body = (opened * levels + inner + closed * levels).encode()
        if levels <= DEPTH_MAX:
            parse_json(body)
        else:
            with pytest.raises(InvalidInput, match="levels"):
                parse_json(body)

    @given(st.integers(-(10**45), 10**45))
    @example(INT_MAX)
    @example(INT_MAX + 1)
    @example(INT_MIN - 1)
    def test_whole_numbers(self, number: int) -> None:
        """Integers are accepted if they fit into 64 bits."""
        if INT_MIN <= number <= INT_MAX:
            assert parse_json(str(number).encode()) == number
        else:
            with pytest.raises(InvalidInput, match="64 bits"):
                parse_json(str(number).encode())


@pytest.mark.parametrize(
    "body",
    [
        b"NaN", b"-Infinity", b"1e999", b'{"a":1,"a":2}', '{"é":1,"e\u0301":2}'.encode(),
        b"\xef\xbb\xbf1", b"[1,]", b"{'a':1}", b"1 2", b"", b"\x00", b'"\x01"', b"01", b"+1",
        b".5", b"1.", b'"\\x41"', b"nul", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5_000,
    ],
)  # fmt: skip
def test_rejected(body: bytes) -> None:
    """Documents that parsers interpret differently, or reject, are rejected."""
    with pytest.raises(InvalidInput):
        parse_json(body)


def test_names() -> None:
    """The number of names is bounded; a caller may set the bound."""
    body = b"{" + b",".join(b'"%d":1' % n for n in range(11)) + b"}"
    assert len(parse_json(body, names_max=11)) == 11
    with pytest.raises(InvalidInput, match="at most 10 names"):
        parse_json(body, names_max=10)


def test_errors_quote_no_value() -> None:
    """The error has the location and never the value."""
    with pytest.raises(InvalidInput) as caught:
        parse_json(b'{"a": {"b": ["secret\\u0000"]}}')
    assert caught.value.field == "body.a.b[0]"
    assert "secret" not in str(caught.value)


class TestManyBrackets:
    """Objects and lists are counted before they are built, except inside strings."""

    def test_too_many(self) -> None:
        """One more than the maximum is rejected."""
        assert parse_json(b"[" + b"[]," * 98 + b"[]]", names_max=100) == [[]] * 99
        with pytest.raises(InvalidInput, match="100 objects and lists"):
            parse_json(b"[" + b"{}," * 99 + b"{}]", names_max=100)

    @pytest.mark.parametrize(
        "inside", ["[" * 200, '\\"' + "[{" * 200, "\\\\", '\\\\\\"' + "{" * 99]
    )
    def test_inside_texts(self, inside: str) -> None:
        """Brackets inside a string, after any escapes, are not counted."""
        body = f'["{inside}", {"[" * 60}{"]" * 60}, "{inside}"]'.encode()
        assert parse_json(body, names_max=61)[0] == json.loads(f'"{inside}"')

    @pytest.mark.parametrize("ending", ['"' + '\\"' * 10_000, '"' + "\\" * 10_001, '"abc[{'])
    def test_unterminated_strings(self, ending: str) -> None:
        """An unterminated string is skipped in one step and rejected by the parser."""
        with pytest.raises(InvalidInput):
            parse_json(("[" * 40 + "[]," * 40 + ending).encode())
