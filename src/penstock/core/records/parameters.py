"""Parameters that use cases of several subjects share: names in the API, bounds, descriptions."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from penstock.core.records.record import InHeader, Meta, Time, Wire

IDEMPOTENCY_KEY: Final = "Idempotency-Key"

Customer: TypeAlias = Annotated[
    str,
    Wire("customer_id"),
    Meta(
        description="Id of the customer that the request concerns.",
        examples=["acme"],
        max_length=200,
    ),
]
CustomerOrDefault: TypeAlias = Annotated[
    Annotated[str, Meta(max_length=200)] | None,
    Wire("customer_id"),
    Meta(description="Customer that the request concerns; `default` when omitted."),
]
CustomerFilter: TypeAlias = Annotated[
    Annotated[str, Meta(max_length=200)] | None,
    Wire("customer_id"),
    Meta(description="Return only rows of this customer."),
]
Owner: TypeAlias = Annotated[
    str | None,
    Wire("customer_id"),
    Meta(description="Customer that owns the resource; omit it for a system resource."),
]
PipelineName: TypeAlias = Annotated[
    str,
    Wire("pipeline_template"),
    Meta(description="Registered name of the pipeline.", examples=["nba"], max_length=200),
]
PipelineFilter: TypeAlias = Annotated[
    Annotated[str, Meta(max_length=64)] | None,
    Wire("pipeline_template"),
    Meta(description="Return only rows of this pipeline."),
]
PhaseFilter: TypeAlias = Annotated[
    Annotated[str, Meta(max_length=200)] | None,
    Meta(description="Return only rows of this phase."),
]
PartitionFilter: TypeAlias = Annotated[
    Annotated[str, Meta(max_length=500)] | None,
    Meta(description="Return only rows of this partition."),
]
CorrelationFilter: TypeAlias = Annotated[
    str | None, Meta(description="Return only rows with this correlation id.")
]
Since: TypeAlias = Annotated[
    Time | None, Meta(description="Return only rows at or after this ISO 8601 time or date.")
]
Until: TypeAlias = Annotated[
    Time | None, Meta(description="Return only rows before this ISO 8601 time or date.")
]
RunId: TypeAlias = Annotated[
    str, Meta(description="Id of the run (`run_…`).", examples=["run_7h2kq0v3"], max_length=64)
]
ConfigId: TypeAlias = Annotated[
    str, Meta(description="Id of the config (`cfg_…`).", examples=["cfg_5m7t0c2d"], max_length=64)
]
FlowId: TypeAlias = Annotated[str, Meta(description="Id of the flow (`flow_…`).", max_length=64)]
IdempotencyKey: TypeAlias = Annotated[
    str | None,
    InHeader(IDEMPOTENCY_KEY),
    Meta(description="Makes the request safe to repeat for 24 hours."),
]
Reason: TypeAlias = Annotated[
    str,
    Meta(
        description="Reason for the action, stored with its record.", min_length=1, max_length=255
    ),
]
