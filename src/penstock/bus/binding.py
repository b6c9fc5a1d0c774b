"""What a bound subscription's messages do: start configs, become runs, or report completions.

Pure: reading and checking what a subscription says, and a message as what it is bound to.
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
"""How the subscription is called that lets a topic start configs."""


class Bound(StrEnum):
    """What messages do."""

    CONFIGS = "configs"
    RUNS = "runs"
    COMPLETIONS = "completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A binding; `pipeline` and `processor` say of what, except for configs."""

    bound: Bound
    pipeline: str | None = None
    processor: str | None = None

    def dump(self) -> str:
        """As a subscription keeps it."""
        said = {"to": self.bound.value, "pipeline": self.pipeline, "processor": self.processor}
        return json.dumps({k: v for k, v in said.items() if v is not None}, sort_keys=True)


TO_CONFIGS: Final = Binding(bound=Bound.CONFIGS)


def parse_binding(value: object, field: str = "binding") -> Binding:
    """A binding as somebody says it: {"to": "runs", "pipeline": "nba", "processor": "raw.box"}."""
    if not isinstance(value, Mapping):
        raise InvalidInput(field, 'an object such as {"to": "runs", "pipeline": "nba"}', value)
    unknown = sorted(set(value) - {"to", "pipeline", "processor"})
    if unknown:
        raise InvalidInput(f"{field}.{unknown[0]}", "to, pipeline or processor", unknown[0])
    try:
        bound = Bound(str(value.get("to")))
    except ValueError:
        expected = ", ".join(Bound)
        raise InvalidInput(f"{field}.to", f"one of {expected}", value.get("to")) from None
    pipeline, processor = value.get("pipeline"), value.get("processor")
    for name, given in (("pipeline", pipeline), ("processor", processor)):
        if given is not None and (not isinstance(given, str) or not given):
            raise InvalidInput(f"{field}.{name}", "a name", given)
    if bound is Bound.CONFIGS and (pipeline or processor):
        fix = "Configs say themselves which topic starts them."
        raise InvalidInput(f"{field}.pipeline", "nothing for configs", pipeline, fix)
    if bound is not Bound.CONFIGS and pipeline is None:
        raise InvalidInput(f"{field}.pipeline", "the pipeline", None)
    if bound is Bound.COMPLETIONS and processor is not None:
        fix = "Each message names its own (processor_name)."
        raise InvalidInput(f"{field}.processor", "nothing for completions", processor, fix)
    return Binding(bound=bound, pipeline=pipeline, processor=processor)


def message_object(data: bytes) -> dict[str, Any]:
    """A message's data as the JSON object it must be; nothing is an empty one."""
    if not data.strip():
        return {}
    found = json_profile.parse(data)
    if not isinstance(found, dict):
        raise InvalidInput("data", "a JSON object", type(found).__name__)
    return found
