"""Shared models: bases of request and response bodies, problem documents, pages."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from penstock.server.openapi import texts

T = TypeVar("T")


class RequestModel(BaseModel):
    """Base of request bodies: unknown fields are refused and types are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ResponseModel(BaseModel):
    """Base of response bodies. They document responses; `shapes` builds the responses."""

    model_config = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)


class FieldError(ResponseModel):
    """One invalid field of a request."""

    field: str = Field(
        description="Name of the invalid field; nested names are joined by dots.",
        examples=["schedule_cron"],
    )
    expected: str = Field(description=texts.EXPECTED)
    got: str = Field(description=texts.GOT)
    fix: str | None = Field(default=None, description=texts.FIX)


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    type: str = Field(
        description="URN of the kind of problem, derived from `code`.",
        examples=["urn:penstock:problem:run.illegal_transition"],
    )
    title: str = Field(description="Reason phrase of the HTTP status.", examples=["Conflict"])
    status: int = Field(description="HTTP status code of the response.", examples=[409])
    code: str = Field(description=texts.PROBLEM_CODE, examples=["run.illegal_transition"])
    detail: str = Field(
        description="Explanation of this occurrence in one or two sentences.",
        examples=["run run_7h2kq0v3 is COMPLETED and cannot become RUNNING."],
    )
    request_id: str | None = Field(
        description="Id of the request, as in `X-Request-Id` and the server's log."
    )
    errors: list[FieldError] | None = Field(
        default=None, description="Invalid fields; absent unless the input was invalid."
    )
    about: dict[str, Any] | None = Field(
        default=None,
        description="Further facts, such as the states involved; absent if there are none.",
    )


class PageModel(ResponseModel, Generic[T]):
    """A page of a list."""

    items: list[T] = Field(description="Rows of this page, in the order of the list.")
    next_cursor: str | None = Field(
        description="Value of `cursor` for the next page; null on the last page."
    )


Time: TypeAlias = Annotated[
    str, Field(description="ISO 8601 time in UTC.", json_schema_extra={"format": "date-time"})
]
JsonObject: TypeAlias = dict[str, Any]
