"""The push envelope of external subscriptions, for the OpenAPI document.

`bus.envelope` parses the requests; it is stricter and reports what is wrong.
"""

from __future__ import annotations

from pydantic import Field

from penstock.server.models import RequestModel
from penstock.server.openapi import texts


class PushedMessageIn(RequestModel):
    """The message of a push envelope."""

    messageId: str = Field(  # noqa: N815 - Google's name
        description="Id of the message; a repeated id is the same message.", max_length=255
    )
    data: str = Field(default="", description=texts.MESSAGE_DATA)
    attributes: dict[str, str] = Field(default_factory=dict, description=texts.MESSAGE_ATTRIBUTES)
    orderingKey: str = Field(  # noqa: N815 - Google's name
        default="",
        description="Messages with the same key keep their order; empty for no order.",
        max_length=1024,
    )
    publishTime: str = Field(  # noqa: N815 - Google's name
        default="", description="Time of the original publication (RFC 3339)."
    )


class PushEnvelopeIn(RequestModel):
    """The push envelope of Google Cloud Pub/Sub."""

    message: PushedMessageIn = Field(description="The message that is pushed.")
    subscription: str = Field(description="Full name of the subscription that pushes.")
    deliveryAttempt: int | None = Field(  # noqa: N815 - Google's name
        default=None,
        description="Number of the attempt from 1, if the sender has a dead-letter policy.",
        ge=1,
    )
