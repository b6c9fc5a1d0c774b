"""Secrets in declarations: refused, and masked in definitions that were stored before."""

import json
from typing import Any

import pytest

from penstock import Pipeline, same_day
from penstock.core.errors import DeclarationError
from penstock.core.redact import MASK
from penstock.pipelines.shown import definition_shown, warehouse_shown

CANARY = "cnry-4d1b-Kx"
ADDRESSES = (
    f"postgresql://ann:{CANARY}@db/season",
    f"postgresql://:{CANARY}@db/season",
    f"postgresql://ann:{CANARY}/x@y@db/season",
    f"postgresql://ann@db/season?password={CANARY}&sslmode=require",
    f"host=db user=ann password={CANARY} dbname=season",
)
PLAIN = ("season", "sqlite:season.db", "postgresql://ann@db:5432/season?sslmode=require")


def definition(warehouse: str) -> dict[str, Any]:
    """Return a definition as an earlier version stored it."""
    return {
        "name": "season",
        "timezone": "UTC",
        "warehouse": warehouse,
        "parameters": {
            "properties": {
                "password": {"type": "string", "default": CANARY},
                "token": {"type": "string", "default": {"$secret": "api"}},
                "url": {"type": "string", "default": f"https://ann:{CANARY}@host/"},
                "days": {"type": "integer", "default": 3},
            }
        },
        "phases": [
            {
                "name": "load",
                "after": [],
                "processors": [{"name": "box", "needs": [{"table": "t", "warehouse": warehouse}]}],
            }
        ],
    }


@pytest.mark.parametrize("address", ADDRESSES)
def test_passwords_of_warehouses_are_refused(address: str) -> None:
    """On the pipeline and on a need; the error says what to do and does not quote the password."""
    for declare in (
        lambda: Pipeline("season", warehouse=address),
        lambda: same_day("box", warehouse=address),
    ):
        with pytest.raises(DeclarationError, match="PENSTOCK_WAREHOUSES") as refused:
            declare()
        assert CANARY not in str(refused.value)


@pytest.mark.parametrize("address", PLAIN)
def test_addresses_without_a_password(address: str) -> None:
    """They are accepted and shown as they are."""
    assert warehouse_shown(address) == address
    Pipeline("season", warehouse=address)


@pytest.mark.parametrize(
    "part", [{"password": {"default": CANARY}}, {"url": {"default": f"https://a:{CANARY}@host/"}}]
)
def test_secrets_as_defaults_are_refused(part: dict[str, Any]) -> None:
    """A default is stored and shown like the rest of the definition; a reference is allowed."""
    nested = {"properties": {"deep": {"type": "object", "properties": part}}}
    for properties in (part, nested["properties"]):
        with pytest.raises(DeclarationError, match="secret") as refused:
            Pipeline("season", parameters={"type": "object", "properties": properties})
        assert CANARY not in str(refused.value)
    given = {"password": {"default": {"$secret": "warehouse"}}, "token": {"default": None}}
    Pipeline("season", parameters={"type": "object", "properties": given})


@pytest.mark.parametrize("address", ADDRESSES)
def test_stored_definitions(address: str) -> None:
    """Secrets of earlier declarations are masked; everything else is shown."""
    stored = definition(address)
    shown = definition_shown(stored)
    assert CANARY not in json.dumps(shown)
    properties = shown["parameters"]["properties"]
    assert properties["password"] == {"type": "string", "default": MASK}
    assert properties["token"] == {"type": "string", "default": {"$secret": "api"}}
    assert properties["days"] == {"type": "integer", "default": 3}
    assert json.dumps(stored).count(CANARY) == 4, "the stored definition is unchanged"
