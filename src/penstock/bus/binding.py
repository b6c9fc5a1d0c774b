"""Bindings: a bound subscription's messages start configs, create runs or report completions.

Pure: parses and validates bindings, and reads message data as a JSON object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from penstock.core import json_profile
from penstock.core.errors import InvalidInput

CONFIGS_SUFFIX: Final = ".configs"
"""Suffix of the subscription that starts a topic's configs: `<topic>.configs`."""


class BindingKind(StrEnum):
    """The effect of a bound subscription's messages."""

    CONFIGS = "configs"
    RUNS = "runs"
    COMPLETIONS = "completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The binding of a subscription.

    `pipeline` is required except for configs. `processor` is optional, and for runs only.
    """

    kind: BindingKind
    pipeline: str | None = None
    processor: str | None = None

    def to_json(self) -> str:
        """Return the binding as the JSON text stored with the subscription."""
        fields = {"to": self.kind.value, "pipeline": self.pipeline, "processor": self.processor}
        return json.dumps({k: v for k, v in fields.items() if v is not None}, sort_keys=True)


CONFIGS_BINDING: Final = Binding(kind=BindingKind.CONFIGS)


def parse_binding(value: object, field: str = "binding") -> Binding:
    """Validate a binding such as {"to": "runs", "pipeline": "nba", "processor": "raw.box"}."""
    if not isinstance(value, Mapping):
        raise InvalidInput(field, 'an object such as {"to": "runs", "pipeline": "nba"}', value)
    unknown = sorted(set(value) - {"to", "pipeline", "processor"})
    if unknown:
        raise InvalidInput(f"{field}.{unknown[0]}", "to, pipeline or processor", unknown[0])
    try:
        bound = BindingKind(str(value.get("to")))
    except ValueError:
        expected = ", ".join(BindingKind)
        raise InvalidInput(f"{field}.to", f"one of {expected}", value.get("to")) from None
    pipeline, processor = value.get("pipeline"), value.get("processor")
    for name, given in (("pipeline", pipeline), ("processor", processor)):
        if given is not None and (not isinstance(given, str) or not given):
            raise InvalidInput(f"{field}.{name}", "a name", given)
    if bound is BindingKind.CONFIGS and (pipeline or processor):
        fix = "Each config names the topic that starts it."
        expected = "no pipeline or processor for configs"
        raise InvalidInput(f"{field}.pipeline", expected, pipeline, fix)
    if bound is not BindingKind.CONFIGS and pipeline is None:
        raise InvalidInput(f"{field}.pipeline", "the name of a pipeline", None)
    if bound is BindingKind.COMPLETIONS and processor is not None:
        fix = "Each message names its processor (processor_name)."
        raise InvalidInput(f"{field}.processor", "no processor for completions", processor, fix)
    return Binding(kind=bound, pipeline=pipeline, processor=processor)


def parse_message_object(data: bytes) -> dict[str, Any]:
    """Parse a message's data, which must be a JSON object; empty data is an empty object."""
    if not data.strip():
        return {}
    found = json_profile.parse_json(data)
    if not isinstance(found, dict):
        raise InvalidInput("data", "a JSON object", type(found).__name__)
    return found
