"""Every suggested command names the operation of the API that does the same."""

from __future__ import annotations

import inspect
import json
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.root import cli
from penstock.flows.explain import commands
from penstock.flows.explain.records import Suggestion

OPENAPI = Path(__file__).parents[3] / "docs/reference/openapi.json"
FACT: Any = SimpleNamespace(
    flow_id="flow_1", pipeline="nba", partition="2025-12-30", customer="acme", mode="same_day",
    config="cfg_1", newer_generation=2, generation=1, intervention_id="int_1", run_id="run_1",
    processor="box", scope="customer", subject="acme", phase="raw", table="raw.box",
)  # fmt: skip
SUGGESTED = [
    one
    for _, one in inspect.getmembers(commands, inspect.isfunction)
    if one.__module__ == commands.__name__
    and one.__annotations__.get("return") == "Suggestion"
    and one is not commands.suggestion
]
WITHOUT = {"scheduler", "worker"}
"""Commands that no operation of the API replaces."""


def suggested(function: Any) -> Suggestion:
    """Return the suggestion of a function, for made-up facts."""
    given = {
        name: name if "str" in str(parameter.annotation) else FACT
        for name, parameter in inspect.signature(function).parameters.items()
    }
    made = function(**given)
    assert isinstance(made, Suggestion)
    return made


@pytest.fixture(scope="module")
def operations() -> dict[str, set[str]]:
    """The arguments of each operation: of its path, its query and its body."""
    document = json.loads(OPENAPI.read_text("utf-8"))
    found: dict[str, set[str]] = {}
    for methods in document["paths"].values():
        for one in methods.values():
            names = {parameter["name"] for parameter in one.get("parameters", ())}
            body = one.get("requestBody", {}).get("content", {}).get("application/json", {})
            found[one["operationId"]] = names | _fields(document, body.get("schema", {}))
    return found


def _fields(document: Any, schema: Any) -> set[str]:
    name = schema.get("$ref", "").rpartition("/")[2]
    known = document["components"]["schemas"][name] if name else schema
    return set(known.get("properties", ()))


@pytest.mark.parametrize("function", SUGGESTED, ids=lambda one: one.__name__)
def test_a_suggestion_names_a_declared_operation_and_its_arguments(
    function: Any, operations: dict[str, set[str]]
) -> None:
    made = suggested(function)
    if function.__name__ in WITHOUT:
        assert (made.action, made.arguments) == (None, {})
        return
    assert made.action in operations
    assert set(made.arguments) <= operations[made.action]
    assert made.arguments


@pytest.mark.parametrize("function", SUGGESTED, ids=lambda one: one.__name__)
def test_a_suggested_command_exists_and_says_what_the_arguments_say(function: Any) -> None:
    made = suggested(function)
    words = shlex.split(made.command)
    command: Any = cli
    rest = words[1:]
    while hasattr(command, "get_command"):
        command = command.get_command(None, rest[0])
        assert command is not None, words
        rest = rest[1:]
    known = {option for one in command.params for option in one.opts}
    assert {word for word in rest if word.startswith("--")} <= known, words
    for name, value in made.arguments.items():
        texts = value if isinstance(value, list) else [value]
        if name not in ("flow_id", "is_active"):  # narrower than the command, or its name
            assert all(text in words for text in texts), (name, words)


def test_a_new_generation_of_a_failed_phase_can_be_a_replay() -> None:
    made = commands.replay_from(FACT, "raw")
    assert made.command == (
        "penstock replay nba 2025-12-30 --from raw --mode same_day --config-id cfg_1 "
        "--customer acme"
    )
    assert made.action == "recovery.replay"
    assert made.arguments["from_phase"] == "raw"
