"""OpenLineage run events of flows and runs, as JSON. Pure.

A flow is a run of the job `pipeline`; a run of a processor is a run of the job
`pipeline.phase.processor`, with the flow as its parent, the tables that it needs as inputs and
those that it produces as outputs. Ids are name-based UUIDs of Penstock's ids, so that a repeated
event has the same ids. Runs of items are left out.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from penstock.audit.telemetry import Event, FlowEnded, RunEnded, RunStarted
from penstock.core.clock import Micros, iso
from penstock.core.ids import encode
from penstock.telemetry.processor_names import NameOf, ProcessorPath

SCHEMA: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
FACETS: Final = "https://openlineage.io/spec/facets/1-0-0"
PRODUCER: Final = "urn:penstock:engine"
_IDS: Final = uuid.UUID("6f1c1e0a-0d0e-5a52-8d5b-5a2a4b1f9c11")
STATES: Final = {"COMPLETED": "COMPLETE", "CANCELLED": "ABORT", "COMPLETE": "COMPLETE",
                 "DEGRADED": "COMPLETE", "SUPERSEDED": "ABORT"}  # fmt: skip


class JobTables(NamedTuple):
    """Tables that a processor reads and writes."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


TablesOf = Callable[[ProcessorPath], JobTables]


class Lineage:
    """Converts events to OpenLineage events."""

    def __init__(self, namespace: str, name_of: NameOf, tables_of: TablesOf) -> None:
        self._namespace = namespace
        self._name_of = name_of
        self._tables_of = tables_of

    kinds: Final[tuple[type[Event], ...]] = (FlowEnded, RunEnded, RunStarted)

    def of(self, event: Event, at: Micros) -> list[dict[str, Any]]:
        """Return the OpenLineage events of an event; FlowEnded returns both events of a flow."""
        if isinstance(event, FlowEnded):
            flow = encode("flow", event.flow_id)
            end = STATES.get(event.state, "FAIL")
            nominal = {"nominalTime": _facet("NominalTimeRunFacet", nominalStartTime=iso(at))}
            facets = {**_penstock(event.correlation_id, flow), **nominal}
            return [
                self._event(kind, when, event.pipeline, flow, facets)
                for kind, when in (("START", event.started_at), (end, event.ended_at))
            ]
        if isinstance(event, RunStarted):
            return [] if event.item_key else [self._run(event, "START", at)]
        assert isinstance(event, RunEnded), event
        if event.item_key:
            return []
        return [self._run(event, STATES.get(event.final_state, "FAIL"), at)]

    def _run(self, event: RunStarted | RunEnded, kind: str, at: Micros) -> dict[str, Any]:
        name = self._name_of(event.processor_key)
        run = encode("run", event.run_id)
        correlation = event.correlation_id or encode("run", event.root_run_id)
        facets = _penstock(correlation, run)
        if event.flow_id is not None:
            flow = encode("flow", event.flow_id)
            facets["parent"] = _facet(
                "ParentRunFacet",
                run={"runId": _uuid(flow)},
                job={"namespace": self._namespace, "name": name.pipeline},
            )
        if isinstance(event, RunEnded) and event.error is not None:
            facets["errorMessage"] = _facet(
                "ErrorMessageRunFacet",
                message=event.error,
                programmingLanguage="python",
                stackTrace=event.traceback or "",
            )
        tables = self._tables_of(name)
        job = ".".join(name)
        made = self._event(kind, at, job, run, facets)
        made["inputs"] = [self._table(table) for table in tables.inputs]
        made["outputs"] = [self._table(table) for table in tables.outputs]
        return made

    def _event(
        self, kind: str, at: Micros, job: str, run: str, facets: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {
            "eventType": kind,
            "eventTime": iso(at),
            "run": {"runId": _uuid(run), "facets": dict(facets)},
            "job": {"namespace": self._namespace, "name": job, "facets": {}},
            "inputs": [],
            "outputs": [],
            "producer": PRODUCER,
            "schemaURL": SCHEMA,
        }

    def _table(self, name: str) -> dict[str, Any]:
        return {"namespace": self._namespace, "name": name, "facets": {}}


def _uuid(text: str) -> str:
    return str(uuid.uuid5(_IDS, text))


def _penstock(correlation_id: str, subject: str) -> dict[str, Any]:
    """Return the facet with Penstock's ids."""
    return {
        "penstock": {
            "_producer": PRODUCER,
            "_schemaURL": f"{PRODUCER}/PenstockRunFacet.json",
            "correlationId": correlation_id,
            "id": subject,
        }
    }


def _facet(name: str, **fields: Any) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": f"{FACETS}/{name}.json", **fields}
