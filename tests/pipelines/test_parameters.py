"""Parameters: validation of schemas and of values; errors name the location."""

from typing import Any

import pytest

from penstock.core.errors import DeclarationError, InvalidInput
from penstock.pipelines.parameters import check_schema, defaults, validate

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["provider"],
    "additionalProperties": False,
    "properties": {
        "provider": {"type": "string", "enum": ["aws", "gcp"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 90, "default": 30},
        "label": {"type": ["string", "null"], "minLength": 2, "maxLength": 5},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
        "nested": {"properties": {"ratio": {"type": "number"}, "on": {"type": "boolean"}}},
    },
}


@pytest.mark.parametrize(
    ("bound", "shown"),
    [
        (1_234_567, "at least 1234567"),
        (2.5, "at least 2.5"),
        (10**400, "at least a number of more than 30 digits"),
    ],
)
def test_a_bound_is_shown_as_it_was_written(bound: float, shown: str) -> None:
    """A bound of any size is named, not rounded, and has no effect on the error's kind."""
    schema = {"type": "object", "properties": {"days": {"type": "integer", "minimum": bound}}}
    with pytest.raises(InvalidInput, match=shown):
        validate(schema, {"days": 1})


class TestValues:
    """Validation of values that callers send."""

    def test_defaults_are_filled_in_without_changing_the_input(self) -> None:
        given = {"provider": "aws"}
        assert validate(SCHEMA, given) == {"provider": "aws", "days": 30}
        assert given == {"provider": "aws"}
        assert defaults(SCHEMA) == {"days": 30}
        assert defaults(None) == {}

    def test_valid_values(self) -> None:
        value = {
            "provider": "gcp",
            "days": 2.0,
            "label": None,
            "tags": ["a", "b"],
            "nested": {"ratio": 0.5, "on": True, "extra": [1]},
        }
        assert validate(SCHEMA, value) == value

    def test_without_a_schema_any_object_is_accepted(self) -> None:
        assert validate(None, {"a": [1, {"b": None}]}) == {"a": [1, {"b": None}]}
        with pytest.raises(InvalidInput, match="an object"):
            validate(None, [1])

    @pytest.mark.parametrize(
        ("change", "field", "expected"),
        [
            ({"provider": "azure"}, "parameters.provider", "one of"),
            ({"provider": None}, "parameters.provider", "a string"),
            ({"days": 0}, "parameters.days", "at least 1"),
            ({"days": 91}, "parameters.days", "at most 90"),
            ({"days": 1.5}, "parameters.days", "a whole number"),
            ({"days": True}, "parameters.days", "a whole number"),
            ({"days": float("nan")}, "parameters.days", "a whole number"),
            ({"label": "x"}, "parameters.label", "at least 2 characters"),
            ({"label": "xxxxxx"}, "parameters.label", "at most 5 characters"),
            ({"tags": []}, "parameters.tags", "at least 1 items"),
            ({"tags": ["a", 1]}, "parameters.tags[1]", "a string"),
            ({"nested": {"on": 1}}, "parameters.nested.on", "a boolean"),
            ({"nested": {"ratio": float("inf")}}, "parameters.nested.ratio", "a number"),
            ({"dyas": 3}, "parameters.dyas", "a known parameter"),
            ({1: 3}, "parameters", "string names"),
        ],
    )
    def test_errors_name_the_location(
        self, change: dict[Any, Any], field: str, expected: str
    ) -> None:
        with pytest.raises(InvalidInput) as caught:
            validate(SCHEMA, {"provider": "aws", **change})
        assert caught.value.field == field
        assert expected in caught.value.expected

    def test_a_required_value_is_missing(self) -> None:
        with pytest.raises(InvalidInput, match=r"parameters\.provider: .*required"):
            validate(SCHEMA, {})

    def test_deep_values_are_rejected(self) -> None:
        value: Any = []
        for _ in range(100):
            value = [value]
        with pytest.raises(InvalidInput, match="levels"):
            validate({"type": "object", "properties": {"a": {}}}, {"a": value})


class TestSchemas:
    """Validation of schemas that pipelines declare."""

    def test_the_sample_is_accepted(self) -> None:
        check_schema(SCHEMA)

    @pytest.mark.parametrize(
        ("schema", "text"),
        [
            ("string", "expected a schema"),
            ({"type": "strnig"}, "'strnig' is not a type"),
            ({"type": "string", "pattern": "x"}, "'pattern' is not supported for type string"),
            ({"type": "integer", "minimum": "1"}, "minimum: expected a number"),
            ({"type": "integer", "minimum": 2, "maximum": 1}, "minimum is greater than maximum"),
            ({"properties": []}, "properties: expected an object"),
            ({"properties": {"a": 1}}, "parameters.a: expected a schema"),
            ({"required": ["a"], "properties": {}}, "'a' is not among the properties"),
            ({"required": "a", "properties": {}}, "expected a list of names"),
            ({"properties": {"a": {"type": "integer", "default": "x"}}}, "the default of"),
            ({"type": "object", "additionalProperties": {}}, "expected true or false"),
            ({"enum": "abc"}, "expected a list"),
        ],
    )
    def test_invalid_schemas(self, schema: Any, text: str) -> None:
        with pytest.raises(DeclarationError, match=text):
            check_schema(schema)
