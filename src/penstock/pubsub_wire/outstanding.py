"""Outstanding messages of streams, for their flow control.

Clients may settle messages of a stream by other calls, so all streams of the process register their
ack ids here. A message whose deadline passed is no longer outstanding. Used on the event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable


class StreamWindow:
    """The outstanding messages of one stream."""

    def __init__(self, acks: OutstandingAcks, max_messages: int, max_bytes: int) -> None:
        self._acks = acks
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._held: dict[str, tuple[int, float]] = {}
        """Size and deadline of each outstanding message, by ack id."""
        self._bytes = 0
        self._freed = asyncio.Event()

    @property
    def free_messages(self) -> int:
        """Number of further messages that the client accepts."""
        return 0 if self._bytes >= self._max_bytes else self._max_messages - len(self._held)

    @property
    def free_bytes(self) -> int:
        """Number of further bytes that the client accepts."""
        return self._max_bytes - self._bytes

    def add(self, ack_id: str, size: int, deadline: float) -> None:
        """Count a message that is being sent."""
        self._held[ack_id] = (size, deadline)
        self._bytes += size
        self._acks.owners[ack_id] = self

    def remove(self, ack_id: str) -> None:
        """Stop counting a message."""
        found = self._held.pop(ack_id, None)
        if found is not None:
            self._bytes -= found[0]
            self._acks.owners.pop(ack_id, None)
            self._freed.set()

    def extend(self, ack_id: str, deadline: float) -> None:
        """Move the deadline of a message."""
        found = self._held.get(ack_id)
        if found is not None:
            self._held[ack_id] = (found[0], deadline)

    def expire(self, now: float) -> None:
        """Stop counting messages whose deadline passed."""
        for ack_id in [one for one, (_, deadline) in self._held.items() if deadline <= now]:
            self.remove(ack_id)

    async def wait(self, seconds: float) -> None:
        """Wait until a message is settled, at most `seconds`."""
        self._freed.clear()
        try:
            await asyncio.wait_for(self._freed.wait(), seconds)
        except TimeoutError:
            return

    def close(self) -> None:
        """Stop counting all messages."""
        for ack_id in list(self._held):
            self.remove(ack_id)


class OutstandingAcks:
    """The streams of a process by the ack ids that they have outstanding."""

    def __init__(self) -> None:
        self.owners: dict[str, StreamWindow] = {}

    def settled(self, ack_ids: Iterable[str]) -> None:
        """Record that messages were acked or nacked."""
        for ack_id in ack_ids:
            owner = self.owners.get(ack_id)
            if owner is not None:
                owner.remove(ack_id)

    def extended(self, ack_ids: Iterable[str], deadline: float) -> None:
        """Record new deadlines."""
        for ack_id in ack_ids:
            owner = self.owners.get(ack_id)
            if owner is not None:
                owner.extend(ack_id, deadline)
