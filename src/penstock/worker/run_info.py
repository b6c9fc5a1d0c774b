"""A run as it was handed out: who, what, for which slice of data, and what its gate had to say.

Read-only and cheap: text is parsed and names are spelled on first use. `context.RunContext` adds
the ways to talk back; a processor sees both as one thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from penstock.access.secrets import Secrets
from penstock.core.clock import iso, to_datetime
from penstock.core.ids import encode
from penstock.pipelines.declare.processor import Processor
from penstock.runs.rows import HeldRun


@dataclass(frozen=True, slots=True)
class Known:
    """A processor this worker can execute, with the number runs call it by."""

    number: int
    processor: Processor
    defaults: Mapping[str, Any]
    secrets: Secrets = field(default_factory=Secrets)


class GivenRun:
    """What a run was handed out with."""

    __slots__ = ("_gate", "_known", "held")

    def __init__(self, held: HeldRun, known: Known) -> None:
        self.held = held
        self._known = known
        self._gate: Mapping[str, Any] | None = None

    @property
    def run_id(self) -> str:
        """The run's public id."""
        return encode("run", self.held.run_id)

    @property
    def customer_id(self) -> str:
        """Whose run it is."""
        return self.held.customer_id

    @property
    def pipeline(self) -> str:
        """Name of the pipeline."""
        return self._known.processor.pipeline

    @property
    def phase(self) -> str:
        """Name of the phase."""
        return self._known.processor.phase

    @property
    def processor(self) -> str:
        """Name of the processor."""
        return self._known.processor.name

    @property
    def declared(self) -> Processor:
        """The processor as declared."""
        return self._known.processor

    @property
    def known(self) -> Known:
        """What the worker knows of the processor."""
        return self._known

    @property
    def partition(self) -> str:
        """The slice of data to process; the slot as ISO text unless somebody named one."""
        return self.held.partition if self.held.partition is not None else iso(self.held.slot)

    @property
    def mode(self) -> str | None:
        """The operating policy of the flow, when there is one."""
        return self.held.mode

    @property
    def slot(self) -> datetime:
        """The moment of the schedule this run stands for; retries keep it."""
        return to_datetime(self.held.slot)

    @property
    def scheduled_time(self) -> datetime:
        """When this attempt was due."""
        return to_datetime(self.held.scheduled_time)

    @property
    def attempt(self) -> int:
        """Which attempt this is; 1 is the first."""
        return self.held.attempt

    @property
    def max_attempts(self) -> int | None:
        """How many attempts the config or processor allows; None: the error's type decides."""
        retry = msgspec.json.decode(self.held.retry) if self.held.retry else {}
        value = retry.get("max_attempts")
        return None if value is None else int(value)

    @property
    def correlation_id(self) -> str:
        """Ties together everything one cause set off; the first attempt's id unless given."""
        return self.held.correlation_id or encode("run", self.held.root_run_id or self.held.run_id)

    @property
    def token(self) -> int:
        """The fencing token: give it to sinks that can refuse an older one."""
        return self.held.token

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this piece of work."""
        held = self.held
        if held.flow_id is not None:
            subject = encode("flow", held.flow_id)
        elif held.config_id is not None:
            subject = f"{encode('cfg', held.config_id)}@{iso(held.slot)}"
        else:
            subject = encode("run", held.root_run_id or held.run_id)
        return f"{subject}/{self.phase}/{self.processor}"

    @property
    def attempt_key(self) -> str:
        """A key of this attempt alone."""
        return f"{self.idempotency_key}#{self.held.attempt}"

    @property
    def flow_id(self) -> str | None:
        """The flow it belongs to, when there is one."""
        return None if self.held.flow_id is None else encode("flow", self.held.flow_id)

    @property
    def gate(self) -> Mapping[str, Any]:
        """What the gate before it said: verdict, missing, warnings ...; empty when all was well."""
        if self._gate is None:
            text = self.held.gate
            self._gate = {} if text is None else dict(msgspec.json.decode(text))
        return self._gate

    @property
    def is_degraded(self) -> bool:
        """Whether it works without everything: what is lacking is in `missing`."""
        return bool(self.gate.get("is_degraded"))

    @property
    def missing(self) -> tuple[str, ...]:
        """Tables and processors that this phase, or one before it, started without."""
        return tuple(self.gate.get("missing", ()))
