"""The sessions of the current user: their origins, and a button to end each."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from penstock.server.problems import Refused
from penstock.web.login.sessions import Visitor
from penstock.web.login.sign_in import is_same_origin, read_form
from penstock.web.parts import WebPage
from penstock.web.security import HEADERS, is_form_token
from penstock.web.site import MOVED, Site


class OwnSessions:
    """The page `/sessions`."""

    def __init__(self, site: Site) -> None:
        self._site = site
        site.add("/sessions", self.serve, ["GET", "POST"])

    async def serve(self, request: Request) -> Response:
        """Show the sessions, or end one."""
        visitor = await self._site.enter(request, "/sessions")
        if isinstance(visitor, Response):
            return visitor
        if request.method == "GET":
            return await run_in_threadpool(partial(self._page, request, visitor))
        fields = await read_form(request)
        return await run_in_threadpool(partial(self._end, request, visitor, fields))

    def _page(self, request: Request, visitor: Visitor) -> Response:
        visit = self._site.visit(request, visitor)
        found = self._site.client.logins.list_own(visitor.token)
        page = WebPage(
            title="Your sessions",
            nav="",
            is_live=False,
            sentence="A session ends after 12 hours, with a logout, and with its key. End those "
            "that you do not know, then rotate the key.",
        )
        rows = [(one, _time(one.opened_at), _time(one.seen_at)) for one in found]
        return self._site.respond(request, visit, page, "sessions.html", sessions=rows)

    def _end(self, request: Request, visitor: Visitor, fields: dict[str, str]) -> Response:
        token = fields.get("form_token", "")
        is_own = is_form_token(self._site.secret(), visitor.token, token)
        if not is_same_origin(request) or not is_own:
            raise Refused(403, "The form is not from this session: open the page again.")
        session_id = fields.get("session_id", "")
        self._site.client.logins.close_own(visitor.token, session_id)
        self._site.sessions.drop_by_id(session_id)
        return RedirectResponse("/sessions", MOVED, dict(HEADERS))


def _time(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1_000_000, UTC)
