"""`GET /live`: a stream of server-sent events with hints about changes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from penstock.audit.store.changes import JournalPosition
from penstock.server.overload.middleware import AccessRecord
from penstock.web.live.hub import LiveHub, LiveStream
from penstock.web.live.topics import parse_topics
from penstock.web.security import HEADERS
from penstock.web.site import Site

PING_SECONDS: Final = 15.0
"""Interval of keep-alives: proxies close idle connections, and the browser reconnects a silent one.
"""
_POSITION: Final = re.compile(r"(\d{1,9})\.(\d{1,20})\.(-?\d{1,19})")


class Live:
    """The route of the stream."""

    def __init__(self, site: Site, hub: LiveHub) -> None:
        self._site = site
        self._hub = hub
        site.add("/live", self.serve, ["GET"])

    async def serve(self, request: Request) -> Response:
        """Send hints until the viewer leaves, the session ends or the server stops."""
        visitor = await self._site.enter(request, "/live")
        if isinstance(visitor, Response):
            return visitor
        access: AccessRecord = request.scope["penstock.access"]
        access.is_poll = True
        caller = visitor.caller
        given = request.headers.get("last-event-id") or request.query_params.get("after", "")
        stream = await self._hub.open(
            parse_topics(request.query_params.get("on", "")),
            await run_in_threadpool(caller.client.find_customer_key),
            caller=caller.key,
            session=visitor.token,
            after=parse_position(given),
        )
        headers = {**HEADERS, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(
            self._events(request, stream), 200, headers, "text/event-stream; charset=utf-8"
        )

    async def _events(self, request: Request, stream: LiveStream) -> AsyncIterator[str]:
        try:
            found = await stream.next(0)
            yield event("hello", stream.position, " ".join(found) or "same")
            while not stream.is_ended:
                found = await stream.next(PING_SECONDS)
                if not await self._site.sessions.is_open(request):
                    break
                yield event("hint" if found else "ping", stream.position, " ".join(found) or "-")
            yield event("end", stream.position, "the session or the server has ended")
        finally:
            self._hub.close(stream)


def event(name: str, position: JournalPosition | None, data: str) -> str:
    """Return a server-sent event; its id is a position in the journal."""
    mark = "" if position is None else f"id: {'.'.join(map(str, position))}\n"
    return f"event: {name}\n{mark}data: {data}\n\n"


def parse_position(given: str) -> JournalPosition | None:
    """Return the position that a browser has reached; None if it names none."""
    found = _POSITION.fullmatch(given)
    return None if found is None else JournalPosition(*map(int, found.groups()))
