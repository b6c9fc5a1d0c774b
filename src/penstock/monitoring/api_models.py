"""Request and response bodies of the scheduler tick and of pauses."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.server.models import RequestModel, ResponseModel, Time
from penstock.server.openapi import texts


class SchedulerTickIn(RequestModel):
    """Options of a scheduler tick."""

    batch_size: int = Field(
        default=1000, description="Maximum number of configs per transaction.", ge=1, le=100_000
    )
    max_processing_time_seconds: float = Field(
        default=600, description="Time budget of the tick in seconds.", gt=0, le=3600
    )


class SchedulerTickOut(ResponseModel):
    """The result of a scheduler tick."""

    status: Literal["completed", "out_of_time"] = Field(
        description="`completed` if everything due was started, otherwise `out_of_time`."
    )
    total_configs_processed: int = Field(description="Number of configs that were due.")
    total_runs_created: int = Field(description="Number of runs that were created.")
    processing_time_seconds: float = Field(description="Duration of the tick in seconds.")


class PauseIn(RequestModel):
    """A pause to set or to lift."""

    scope: Literal["all", "customer", "pipeline", "config"] = Field(description=texts.PAUSE_SCOPE)
    subject: str | None = Field(
        default=None, description="Customer, pipeline or config concerned; omit it for scope `all`."
    )
    reason: str = Field(default="", description=texts.REASON, max_length=500)


class PauseOut(ResponseModel):
    """A pause that is in effect."""

    scope: str = Field(description=texts.PAUSE_SCOPE)
    subject: str | None = Field(
        description="Customer, pipeline or config that is paused; null for scope `all`."
    )
    paused_at: Time = Field(description="Time at which the pause began.")
    paused_by: str = Field(description="Name of the key or user that paused it.")
    reason: str = Field(description="Reason for the pause; empty if none was given.")


class ChangedOut(ResponseModel):
    """Whether the request changed anything."""

    changed: bool = Field(description="False if the requested state was already in place.")
