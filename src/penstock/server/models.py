"""What every shape shares: strict reading of requests, problem documents, pages."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")


class Asked(BaseModel):
    """A request body: no unknown fields, no guessing between types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Told(BaseModel):
    """An answer's body, for the document."""

    model_config = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)


class FieldError(Told):
    """One field that is wrong."""

    field: str = Field(description="Which field.", examples=["schedule_cron"])
    expected: str = Field(description="What would have been right.")
    got: str = Field(description="What was there, cut short.")
    fix: str | None = Field(default=None, description="What to do about it, where it helps.")


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    type: str = Field(
        description="A name of the kind of problem.",
        examples=["urn:penstock:problem:run.illegal_transition"],
    )
    title: str = Field(description="The HTTP status in words.", examples=["Conflict"])
    status: int = Field(description="The HTTP status.", examples=[409])
    code: str = Field(description="Stable, for programs.", examples=["run.illegal_transition"])
    detail: str = Field(
        description="What went wrong, in a sentence.",
        examples=["run run_7h2kq0v3 is COMPLETED and cannot become RUNNING."],
    )
    request_id: str | None = Field(description="Leads to the server's log line.")
    errors: list[FieldError] | None = Field(
        default=None, description="Each wrong field, when input was invalid."
    )
    about: dict[str, Any] | None = Field(
        default=None, description="More about the problem, such as the states involved."
    )


class Page(Told, Generic[T]):
    """A page of a list."""

    items: list[T] = Field(description="The things on this page.")
    next_cursor: str | None = Field(
        description="Give it as `cursor` for the next page; null on the last one."
    )


Time: TypeAlias = Annotated[
    str, Field(description="ISO 8601 in UTC.", json_schema_extra={"format": "date-time"})
]
JsonObject: TypeAlias = dict[str, Any]
