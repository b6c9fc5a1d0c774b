"""Attribute filters of subscriptions: a strict parser of Google Pub/Sub's filter grammar.

    attributes:region                      the attribute exists
    attributes.region = "eu"               it has this value; != also matches if it does not exist
    hasPrefix(attributes.region, "eu-")
    NOT x · x AND y · x OR y · parentheses

Mixing AND and OR requires parentheses; NOT binds tightest ("-" means NOT). A parse error names the
position. `parse` returns a pure function from attributes to bool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from penstock.core.errors import InvalidInput

FILTER_MAX: Final = 256
DEPTH_MAX: Final = 20

Attributes: TypeAlias = Mapping[str, str]
Filter: TypeAlias = Callable[[Attributes], bool]

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>"(?:[^"\\]|\\.)*")
      | (?P<word>[A-Za-z0-9_][A-Za-z0-9_-]*)
      | (?P<sign>!=|=|:|\.|,|\(|\)|-)
    )""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_OPERATORS = frozenset({"AND", "OR", "NOT"})


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


@lru_cache(maxsize=1024)
def parse(text: str, field: str = "filter") -> Filter:
    """Parse a filter into a function; InvalidInput names the position of a syntax error."""
    if not text.strip():
        raise InvalidInput(field, "a filter", text, "Omit the filter to receive every message.")
    if len(text.encode("utf-8", "replace")) > FILTER_MAX:
        raise InvalidInput(field, f"at most {FILTER_MAX} bytes", text)
    parser = _Parser(text, field)
    matches = parser.expression(0)
    parser.end()
    return matches


def _tokens(text: str, field: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            start = at + len(text[at:]) - len(text[at:].lstrip())
            raise _error(field, "a filter", text, start, text[start])
        kind = match.lastgroup or ""
        found.append(_Token(kind, match.group(kind), match.start(kind)))
        at = match.end()
    return found


def _error(field: str, expected: str, text: str, at: int, got: str) -> InvalidInput:
    fix = f"At position {at + 1} of {text[:80]!r}."
    return InvalidInput(field, expected, got, fix)


class _Parser:
    """A recursive-descent parser; every method advances the position past its text."""

    def __init__(self, text: str, field: str) -> None:
        self._text = text
        self._field = field
        self._tokens = _tokens(text, field)
        self._position = 0

    def expression(self, depth: int) -> Filter:
        """Parse terms joined by AND or by OR, but not by both."""
        if depth > DEPTH_MAX:
            raise self._unexpected(f"at most {DEPTH_MAX} levels of parentheses")
        terms = [self._term(depth)]
        joined = ""
        while (word := self._peek()).text in ("AND", "OR") and word.kind == "word":
            if joined and word.text != joined:
                raise self._unexpected("parentheses where AND and OR are combined")
            joined = word.text
            self._position += 1
            terms.append(self._term(depth))
        if len(terms) == 1:
            return terms[0]
        combine = all if joined == "AND" else any
        return lambda attributes: combine(term(attributes) for term in terms)

    def end(self) -> None:
        """Check that no input is left."""
        if self._peek().kind:
            raise self._unexpected("AND, OR or the end")

    def _term(self, depth: int) -> Filter:
        token = self._peek()
        if (token.kind, token.text) in (("word", "NOT"), ("sign", "-")):
            self._position += 1
            negated = self._simple(depth)
            return lambda attributes: not negated(attributes)
        return self._simple(depth)

    def _simple(self, depth: int) -> Filter:
        token = self._peek()
        if token.text == "(" and token.kind == "sign":
            self._position += 1
            inner = self.expression(depth + 1)
            self._take("sign", ")", '")"')
            return inner
        if token.kind == "word" and token.text == "hasPrefix":
            return self._prefix()
        if token.kind == "word" and token.text == "attributes":
            return self._comparison()
        raise self._unexpected("attributes, hasPrefix, NOT or a parenthesis")

    def _comparison(self) -> Filter:
        self._position += 1
        sign = self._peek()
        if sign.text == ":" and sign.kind == "sign":
            self._position += 1
            wanted = self._key()
            return lambda attributes: wanted in attributes
        key = self._member()
        sign = self._peek()
        if sign.kind != "sign" or sign.text not in ("=", "!="):
            raise self._unexpected('"=" or "!="')
        self._position += 1
        value = self._value()
        if sign.text == "=":
            return lambda attributes: attributes.get(key) == value
        return lambda attributes: attributes.get(key) != value

    def _prefix(self) -> Filter:
        self._position += 1
        self._take("sign", "(", '"("')
        self._take("word", "attributes", "attributes")
        key = self._member()
        self._take("sign", ",", '","')
        value = self._value()
        self._take("sign", ")", '")"')
        return lambda attributes: key in attributes and attributes[key].startswith(value)

    def _member(self) -> str:
        self._take("sign", ".", '"." or ":" after attributes')
        return self._key()

    def _key(self) -> str:
        token = self._peek()
        if token.kind == "text":
            return self._value()
        if token.kind != "word" or token.text in _OPERATORS:
            raise self._unexpected("an attribute's name")
        self._position += 1
        return token.text

    def _value(self) -> str:
        token = self._peek()
        if token.kind != "text":
            raise self._unexpected('a value in double quotes, such as "eu"')
        self._position += 1
        return _ESCAPE.sub(r"\1", token.text[1:-1])

    def _take(self, kind: str, text: str, expected: str) -> None:
        token = self._peek()
        if (token.kind, token.text) != (kind, text):
            raise self._unexpected(expected)
        self._position += 1

    def _peek(self) -> _Token:
        if self._position < len(self._tokens):
            return self._tokens[self._position]
        return _Token("", "the end", len(self._text))

    def _unexpected(self, expected: str) -> InvalidInput:
        token = self._peek()
        return _error(self._field, expected, self._text, token.at, token.text)
