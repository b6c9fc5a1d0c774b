"""Declarations of fan-outs: sources of items, keys, quorums, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import DeclarationError, Pipeline, upstream
from penstock.flows.plan import planned_of
from penstock.pipelines.declare.each import EachKind


def work(run: Any) -> None:
    """Never called."""


def declared(each: Any, *, warehouse: str | None = "w", **options: Any) -> Pipeline:
    """Declare `list_games`, then `game` with these options."""
    made = Pipeline("nba") if warehouse is None else Pipeline("nba", warehouse=warehouse)
    first = made.phase("first")
    first.processor("list_games")(work)
    made.phase("second", after=first).processor("game", each=each, **options)(work)
    return made


def games(_: Any) -> list[str]:
    """List nothing."""
    return []


@pytest.mark.parametrize(
    ("each", "kind"),
    [
        (upstream("list_games"), EachKind.UPSTREAM),
        (upstream("first.list_games", "games"), EachKind.UPSTREAM),
        ("SELECT id FROM games", EachKind.QUERY),
        (games, EachKind.FUNCTION),
    ],
)
def test_sources(each: Any, kind: EachKind) -> None:
    """The plan of a flow has the source as declared, without the function itself."""
    pipeline = declared(each, item_key="id", min_items=0.95)
    pipeline.check()
    fan_out = planned_of(pipeline.definition(), "manual").fan_outs["second", "game"]
    assert (fan_out.each.kind, fan_out.item_key, fan_out.min_items) == (kind, "id", 0.95)
    assert fan_out.each.body is None
    assert pipeline.has_flow


def test_a_declaration_without_items_keeps_its_digest() -> None:
    """New options do not change the definitions of pipelines that do not use them."""
    definition = declared(games).definition()["phases"][0]["processors"][0]
    assert not {"each", "item_key", "min_items"} & set(definition)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"each": 5}, "each must be upstream(...), a query, or a function"),
        ({"each": " "}, "takes a query"),
        ({"each": games, "min_items": 0}, "share above 0 and up to 1"),
        ({"each": games, "min_items": True}, "share above 0 and up to 1"),
        ({"each": games, "item_key": ""}, "name of a field"),
        ({"each": upstream("report")}, "names no processor of an earlier phase"),
        ({"each": upstream("game")}, "names no processor of an earlier phase"),
        ({"each": "SELECT 1", "warehouse": None}, "the pipeline has no warehouse"),
    ],
)
def test_refused(options: dict[str, Any], text: str) -> None:
    """The error names the option and the fix."""
    with pytest.raises(DeclarationError) as caught:
        declared(**options).check()
    assert text in str(caught.value)


def test_options_of_items_need_items() -> None:
    """A quorum without items is a mistake."""
    with pytest.raises(DeclarationError, match=r"declare each=\.\.\. as well"):
        Pipeline("nba").phase("only").processor("one", min_items=0.5)(work)


def test_items_of_items_are_refused() -> None:
    """A processor that fans out has many results, not one list."""
    made = declared(games)
    third = made.phase("third", after="second")
    third.processor("again", each=upstream("game"))(work)
    with pytest.raises(DeclarationError, match="fans out itself"):
        made.check()


def test_a_query_of_one_customer() -> None:
    """A query of a pipeline with a customer column must select the customer's rows."""
    made = Pipeline("nba", warehouse="w", customer_column="shop")
    made.phase("only").processor("one", each="SELECT id FROM games")(work)
    with pytest.raises(DeclarationError, match="shop = :customer"):
        made.check()
