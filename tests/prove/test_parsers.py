"""Every parser answers any input with a value or its declared error, and at once.

Inputs are mutations of valid ones and of corpora of hostile pieces. `make test` tries a few of
each, always the same; `make prove` as many, at random, as `PROVE_EXAMPLES` says.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.core.clock import SystemClock
from tests.prove.parsers import PARSERS, SECONDS_MAX, Parser, inventory
from tests.prove.parsers.declared import DECLARED
from tests.prove.parsers.typed import TYPED
from tests.prove.parsers.wire import WIRE

VARIABLE = "PROVE_EXAMPLES"
FEW = 25
CLOCK = SystemClock()

TEXTS = (
    "", " ", "\x00", "\t\n", "0", "-1", "9" * 400, "9" * 5_000, "1e999", "NaN", "²", "٣", "−1", "é",
    "e\u0301", "\u202e", "\u200b", "🙂", "\ufeff", "'", '"', "\\", "/", "..", "%00", "%", "_", "*",
    "?", "[", "]", "(", ")", "{", "}", "{{7*7}}", "${x}", "<script>", "=cmd|", "@", ":", "::", ";",
    ",", "#", "&", "=", "==", "-", "T", "Z", "AND", "NOT", "OR", "null", "true", "__proto__",
    "x" * 300, "[" * 300, "(" * 300, '{"a":' * 200, "[" * 5_000, '{"a":' * 5_000,
)  # fmt: skip
ARGUMENT_TEXTS = (*TEXTS, "\udcff", "\udc80\udcff")
"""Pieces of arguments of the command line, also bytes that are not UTF-8."""
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 10**400, 0.5, -0.0, 1e308,
    float("inf"), float("nan"), [], [[]], [None], {}, {"": ""}, {"a": {"b": {"c": []}}}, [1] * 500,
    {"$secret": "a"}, {"$secret": 1}, "2025-02-30", "https://127.0.0.1/", "5m",
)  # fmt: skip


def mutated(parser: Parser, chance: random.Random) -> Any:
    """Return an input near a valid one, or far from it."""
    example = chance.choice(parser.examples)
    if parser.kind == "value":
        value = copy.deepcopy(example)
        for _ in range(chance.randint(1, 3)):
            value = value_changed(value, chance)
        return value
    if parser.kind == "bytes":
        text = example.decode("latin-1")
        return text_changed(text, chance).encode("utf-8" if chance.random() < 0.7 else "utf-16")
    return text_changed(example, chance, ARGUMENT_TEXTS if parser.kind == "argument" else TEXTS)


def text_changed(text: str, chance: random.Random, pieces: Sequence[str] = TEXTS) -> str:
    """Insert, delete, repeat, replace and reorder parts of a text."""
    for _ in range(chance.randint(1, 4)):
        start = chance.randint(0, len(text))
        end = min(len(text), start + chance.randint(0, 6))
        piece = chance.choice(pieces)
        text = chance.choice(
            (
                text[:start] + piece + text[start:],
                text[:start] + piece + text[end:],
                text[:start] + text[end:],
                text[:end] + text[start:],
                text[end:] + text[:end],
                chance.choice((piece, text.upper(), text[::-1], text * 2)),
                text[:start] + chr(chance.randrange(0x20, 0x2FF)) + text[end:],
            )
        )
    return text


def value_changed(value: Any, chance: random.Random) -> Any:
    """Change one place of a value: another type, a bad text, a name more or less."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        name = chance.choice(sorted(value, key=str))
        kind = chance.random()
        if kind < 0.15:
            return {key: one for key, one in value.items() if key != name}
        if kind < 0.3:
            return {**value, text_changed(str(name), chance): value[name]}
        return {**value, name: value_changed(value[name], chance)}
    if isinstance(value, list) and value and chance.random() < 0.8:
        place = chance.randrange(len(value))
        return [*value[:place], value_changed(value[place], chance), *value[place + 1 :]]
    if isinstance(value, str) and chance.random() < 0.6:
        return text_changed(value, chance)
    return chance.choice((*VALUES, chance.choice(TEXTS)))


def examples_wanted() -> int:
    """Return how many inputs to try for each parser."""
    return int(os.environ.get(VARIABLE, FEW))


def many(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test on inputs; the same ones every time unless `make prove` asks for more."""
    is_proof = VARIABLE in os.environ
    return settings(
        max_examples=examples_wanted(),
        derandomize=not is_proof,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )(test)


@pytest.mark.parametrize("name", PARSERS)
def test_examples_are_valid(name: str) -> None:
    """Mutations start from input that the parser accepts."""
    for example in PARSERS[name].examples:
        PARSERS[name].call(copy.deepcopy(example))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NATS URL", "nats://[a"),
        ("NATS URL", "nats://h?replicas=" + "9" * 5_000),
        ("Pub/Sub URL", "pubsub://a]"),
        ("Pub/Sub URL", "pubsub://project?prefetch=" + "9" * 5_000),
        ("schema of parameters", {"type": 7}),
        ("schema of parameters", {"type": [[]]}),
        ("token of a preview", "².1.a"),
        ("time of day", "9" * 5_000 + ":00"),
        ("time of day", ":00"),
        ("settings file", "worker_slots = " + "9" * 5_000),
        ("file of records, TOML", "configs = " + "[" * 5_000),
    ],
)
def test_found_before(name: str, value: Any) -> None:
    """Inputs that once raised an undeclared error."""
    check(PARSERS[name], value)


DEEP = "[" * 5_000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("JSON of the command line", DEEP),
        ("content of a message on a page", DEEP.encode()),
        ("file of records, JSON", DEEP),
        ("group of dead letters", "run/\udcff/main/sync/TIMEOUT"),
        ("pairs of the command line", f"a={DEEP}"),
        ("problem of the API", DEEP.encode()),
        ("response of the API", b"<html>"),
        ("result with entities", '{"entities_changed":' + DEEP),
        ("rows of a probe", {"expected": [[10**400]], "fault": 0}),
        ("statement of penstock query", "SELECT '\udcff'"),
    ],
)
def test_reported(name: str, value: Any) -> None:
    """Input that raised an error that the parser does not declare."""
    check(PARSERS[name], value)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PARSERS)
def test_only_declared_errors(name: str, record_property: Callable[[str, int], None]) -> None:
    """A parser returns or raises its declared error, within two seconds."""
    parser = PARSERS[name]
    tried = 0

    @many
    @given(st.integers(0, 2**64))
    def one(seed: int) -> None:
        nonlocal tried
        tried += 1
        check(parser, mutated(parser, random.Random(seed)))

    one()
    record_property("inputs", tried)


def check(parser: Parser, value: Any) -> None:
    """Call a parser; any error but a declared one is raised, and so is a slow answer."""
    began = CLOCK.monotonic()
    try:
        parser.call(value)
    except parser.errors:
        pass
    except Exception as error:
        error.add_note(f"input: {value!r:.500}")
        raise
    took = CLOCK.monotonic() - began
    assert took < SECONDS_MAX, f"{took:.1f} s for {value!r:.200}"


class TestInventory:
    """The table has every function that reads foreign input."""

    def test_every_parser_is_in_the_table(self) -> None:
        known = inventory.functions_in_table() | inventory.STEPS.keys() | inventory.EXEMPT.keys()
        missing = sorted(inventory.functions_found() - known)
        assert not missing, f"{missing}: add to tests/prove/parsers or, with a reason, to EXEMPT"

    def test_exemptions_are_needed(self) -> None:
        listed = inventory.STEPS.keys() | inventory.EXEMPT.keys()
        assert listed <= inventory.functions_found()
        assert not listed & inventory.functions_in_table()
        assert not inventory.STEPS.keys() & inventory.EXEMPT.keys()
        assert set(inventory.STEPS.values()) <= PARSERS.keys()

    def test_names_are_unique(self) -> None:
        assert len(PARSERS) == len(DECLARED) + len(TYPED) + len(WIRE)

    def test_what_is_found(self, tmp_path: Path) -> None:
        """A new parser is found by its name and its parameters."""
        (tmp_path / "orders.py").write_text(
            "def parse_order(text: str) -> int: ...\n"
            "async def read_order(request: Request) -> int: ...\n"
            "def load_orders(tx: Tx, customer: str) -> int: ...\n"
            "def read_count(n: int) -> int: ...\n"
            "def reads_orders(text: str) -> bool: ...\n"
            "class Order:\n"
            "    def decode(cls, body: bytes) -> int: ...\n"
            "    def read(self, name: str) -> int: ...\n"
        )
        names = ("Order.decode", "parse_order", "read_order")
        assert inventory.functions_found(tmp_path) == {f"penstock.orders.{name}" for name in names}


def test_an_undeclared_error_is_found() -> None:
    """The check is not vacuous: a parser that only works for valid input fails it."""
    careless = Parser(lambda text: int(text.partition("-")[0]), "text", ("2025-11-17",))
    wrong = 0
    for seed in range(200):
        try:
            check(careless, mutated(careless, random.Random(seed)))
        except ValueError:
            wrong += 1
    assert wrong > 10
