"""What subscriptions elsewhere push, as the document describes it.

Requests are read by `core.envelope`, which is stricter and says what is wrong; this is for readers.
"""

from __future__ import annotations

from pydantic import Field

from penstock.server.models import Asked


class PushedMessageIn(Asked):
    """A message in an envelope."""

    messageId: str = Field(  # noqa: N815 - Google's name
        description="Its id; the same id again is the same message.", max_length=255
    )
    data: str = Field(default="", description="Its bytes, in base64.")
    attributes: dict[str, str] = Field(
        default_factory=dict, description="At most a hundred texts by name."
    )
    orderingKey: str = Field(  # noqa: N815 - Google's name
        default="", description="Messages of a key keep their order.", max_length=1024
    )
    publishTime: str = Field(  # noqa: N815 - Google's name
        default="", description="When it was published there (RFC 3339)."
    )


class PushEnvelopeIn(Asked):
    """Google's push envelope."""

    message: PushedMessageIn = Field(description="The message.")
    subscription: str = Field(description="The full name of the subscription that pushes.")
    deliveryAttempt: int | None = Field(  # noqa: N815 - Google's name
        default=None, description="From 1, when the sender has a dead-letter policy.", ge=1
    )
