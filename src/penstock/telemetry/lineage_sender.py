"""Sends OpenLineage events to a URL, or appends them to a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import msgspec

from penstock.audit.telemetry import Event
from penstock.core.clock import Micros
from penstock.telemetry.lineage import Lineage


class LineageSender:
    """Converts events to OpenLineage events and sends them."""

    def __init__(
        self, lineage: Lineage, post: Callable[[bytes], None] | None, file: str | None
    ) -> None:
        self._lineage = lineage
        self._post = post
        self._file = file

    def send(self, batch: Sequence[tuple[Event, Micros]]) -> int:
        """Send the OpenLineage events of a batch; return how many events of the batch arrived."""
        texts = [[msgspec.json.encode(one) for one in self._lineage.of(*given)] for given in batch]
        if self._file is not None:
            lines = b"".join(text + b"\n" for made in texts for text in made)
            # One write: lines of several processes do not mix.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            number = os.open(self._file, flags, 0o600)
            try:
                os.write(number, lines)
            finally:
                os.close(number)
        sent = 0
        for made in texts:
            for text in made if self._post is not None else ():
                assert self._post is not None
                self._post(text)
            sent += 1
        return sent
