"""Dead letters of runs and deliveries: look, replay, discard.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import Unpack, cast

from penstock.remote.shapes.letters import (
    DeadLetterPage,
    DiscardIn,
    GroupDeadLettersQuery,
    LetterDetailOut,
    LetterGroups,
    ListDeadLettersQuery,
    ReplayIn,
    ReplayManyIn,
    ReplayManyOut,
    ReplayOut,
)
from penstock.remote.shapes.topics import Done
from penstock.remote.transport import Transport, quoted


class LettersApi:
    """Dead letters of runs and deliveries: look, replay, discard."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list_dead_letters(self, **query: Unpack[ListDeadLettersQuery]) -> DeadLetterPage:
        """What died, newest first.

        `GET /api/v1/dead-letters`
        """
        told = self._transport.call("GET", "/api/v1/dead-letters", query=query)
        return cast("DeadLetterPage", told)

    def group_dead_letters(self, **query: Unpack[GroupDeadLettersQuery]) -> LetterGroups:
        """What died, by origin and kind of error, the most numerous first.

        `GET /api/v1/dead-letters/groups`
        """
        told = self._transport.call("GET", "/api/v1/dead-letters/groups", query=query)
        return cast("LetterGroups", told)

    def replay_dead_letters(
        self, body: ReplayManyIn, *, idempotency_key: str | None = None
    ) -> ReplayManyOut:
        """Try those that fit again, newest first, one bounded step at a time; dry run first.

        `POST /api/v1/dead-letters/replay`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            "/api/v1/dead-letters/replay",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("ReplayManyOut", told)

    def get_dead_letter(self, dead_letter_id: str) -> LetterDetailOut:
        """A dead letter in full: the run, or the message with its bytes.

        `GET /api/v1/dead-letters/{dead_letter_id}`
        """
        told = self._transport.call("GET", f"/api/v1/dead-letters/{quoted(dead_letter_id)}")
        return cast("LetterDetailOut", told)

    def replay_dead_letter(
        self,
        dead_letter_id: str,
        body: ReplayIn | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> ReplayOut:
        """Try one again, as it is or edited.

        `POST /api/v1/dead-letters/{dead_letter_id}/replay`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/dead-letters/{quoted(dead_letter_id)}/replay",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("ReplayOut", told)

    def discard_dead_letter(
        self, dead_letter_id: str, body: DiscardIn, *, idempotency_key: str | None = None
    ) -> Done:
        """Give a dead letter up without trying it again.

        `POST /api/v1/dead-letters/{dead_letter_id}/discard`

        idempotency_key: Makes the request safe to repeat for 24 hours.
        """
        told = self._transport.call(
            "POST",
            f"/api/v1/dead-letters/{quoted(dead_letter_id)}/discard",
            body=body,
            headers={"Idempotency-Key": idempotency_key},
        )
        return cast("Done", told)
