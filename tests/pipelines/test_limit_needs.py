"""Limits of processors: declarations, names with placeholders, and how they are shown."""

from typing import Any

import pytest

from penstock.core.errors import DeclarationError
from penstock.core.naming import LIMIT_NAME_MAX
from penstock.core.stored_json import dumps, loads
from penstock.limits.rules import check_limit_name
from penstock.pipelines.declare.limit_needs import (
    NO_VALUE,
    LimitNeed,
    limit_name_for_run,
    limit_needs_of,
)
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.declare.terms import ProcessorSettings
from penstock.pipelines.draw import draw

SCHEMA = {"type": "object", "properties": {"table": {"type": "string"}}}


def declared(**options: Any) -> Pipeline:
    """Return a pipeline with one processor."""
    made = Pipeline("loads", parameters=SCHEMA)
    made.processor("load", **options)(lambda _: None)
    made.check()
    return made


def test_every_option_becomes_a_limit() -> None:
    """All options become limits, either named or with generated names."""
    made = declared(
        limits={"bq:{table}": 2, "disk": 1}, concurrency=20, per_customer=2, per_key={"{mode}": 3}
    )
    terms = made.processors[0].terms
    own = "processor:{pipeline}/{phase}/{processor}"
    assert limit_needs_of(terms) == (
        LimitNeed(name="bq:{table}", weight=2),
        LimitNeed(name="disk"),
        LimitNeed(name=own, capacity=20),
        LimitNeed(name=own + ":customer:{customer}", capacity=2, is_per_customer=True),
        LimitNeed(name=own + ":key:{mode}", capacity=3),
    )
    assert loads(ProcessorSettings, dumps(terms)) == terms
    lines = [line.split("limit ", 1)[1] for line in draw(made.definition()) if "limit " in line]
    assert lines == [
        "bq:{table} (weight 2)",
        "disk",
        "20 at a time",
        "2 at a time per customer",
        "3 at a time per {mode}",
    ]


def test_no_limits_leave_the_definition_unchanged() -> None:
    """The definition of a processor without limits does not mention limits."""
    (processor,) = declared().definition()["phases"][0]["processors"]
    assert set(processor) == {"name", "pool", "timeout_us", "retry", "runs"}


@pytest.mark.parametrize("options", [{"limits": ["bq:{tabel}"]}, {"per_key": "{tabel}"}])
def test_an_unknown_placeholder(options: Any) -> None:
    with pytest.raises(DeclarationError, match=r"\{tabel\} in .* known: customer, .*, table\."):
        declared(**options)


@pytest.mark.parametrize(
    ("value", "filled"),
    [
        ("sales.orders", "sales.orders"),
        ("a b;c", "a_b_c"),
        (7, "7"),
        (True, "true"),
        (None, NO_VALUE),
        ("", NO_VALUE),
    ],
)
def test_placeholders_are_filled_with_valid_characters(value: Any, filled: str) -> None:
    found = limit_name_for_run("bq:{table}", {"table": value})
    assert found == f"bq:{filled}"
    assert check_limit_name(found) == found


def test_long_names_stay_distinct() -> None:
    """Two values that differ only beyond the maximum length have different limits."""
    first, second = (limit_name_for_run("bq:{t}", {"t": "x" * 300 + end}) for end in "ab")
    assert len(first) == len(second) == LIMIT_NAME_MAX
    assert first != second
