"""Login and logout: opens a session with an API key."""

from __future__ import annotations

import urllib.parse
from functools import partial
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from penstock.access import api_keys
from penstock.access.client.logins import OpenedLogin, Origin
from penstock.server.overload.admission import BoundedThreads, RequestAdmission
from penstock.server.overload.middleware import AccessRecord
from penstock.web.live.fragments import html_response
from penstock.web.login.sessions import (
    LOOKUPS_WAITING_MAX,
    LoginTries,
    clear_cookies,
    set_cookie,
)
from penstock.web.render import render
from penstock.web.security import HEADERS, is_form_token, local_path
from penstock.web.site import MOVED, Site

FORM: Final = "application/x-www-form-urlencoded"
WRONG: Final = "That key is not valid, or its role is worker, which has no pages."


class SignIn:
    """The routes of login and logout."""

    def __init__(self, site: Site, provider: str = "") -> None:
        """`provider` is the label of the identity provider's button; empty without one."""
        self._site = site
        self._provider = provider
        self._tries = LoginTries(site.clock)
        self._lookups = BoundedThreads(1, LOOKUPS_WAITING_MAX)
        site.add("/login", self.login, ["GET", "POST"])
        site.add("/logout", self.logout, ["POST"])

    async def login(self, request: Request) -> Response:
        """Show the form, or open a session with the key that was posted."""
        access: AccessRecord = request.scope["penstock.access"]
        access.route = "/login"
        wanted = local_path(request.query_params.get("next", ""))
        if request.method == "GET":
            if await self._site.sessions.find(request) is not None:
                return RedirectResponse(wanted, MOVED, dict(HEADERS))
            return self.form(request, wanted)
        if not is_same_origin(request):
            return self.form(request, wanted, "The form came from another site: try again.", 403)
        fields = await read_form(request)
        key = fields.get("key", "").strip()
        client_address = self._site.client_address(request)
        wait = self._tries.wait_seconds(client_address)
        if wait and not await self._is_valid(key):
            text = f"Too many wrong keys: try again in {wait} seconds."
            response = self.form(request, wanted, text, 429)
            response.headers["Retry-After"] = str(wait)
            return response
        admission: RequestAdmission = request.scope["penstock.admission"]
        await admission.enter()
        origin = Origin(client_address, request.headers.get("user-agent", ""))
        opened = await run_in_threadpool(partial(self._open, key, origin))
        if opened is None:
            self._tries.count(client_address)
            return self.form(request, wanted, WRONG, 401)
        response = RedirectResponse(wanted, MOVED, dict(HEADERS))
        set_cookie(request, response, opened.token, opened.seconds)
        return response

    async def logout(self, request: Request) -> Response:
        """End the session."""
        visitor = await self._site.enter(request, "/logout")
        if isinstance(visitor, Response):
            return visitor
        fields = await read_form(request)
        secret = await run_in_threadpool(self._site.secret)
        token = fields.get("form_token", "")
        if not is_same_origin(request) or not is_form_token(secret, visitor.token, token):
            return self.form(request, "/", "The form is not from this session: try again.", 403)
        await run_in_threadpool(partial(self._site.client.logins.close, visitor.token))
        self._site.sessions.drop(visitor.token)
        response = RedirectResponse("/login", MOVED, dict(HEADERS))
        clear_cookies(request, response)
        return response

    def form(self, request: Request, wanted: str, problem: str = "", status: int = 200) -> Response:
        """Return the login page."""
        values = {"next": wanted, "problem": problem, "provider": self._provider}
        return html_response(request, render("login.html", values), status)

    async def _is_valid(self, key: str) -> bool:
        """Return whether a key from an address with too many wrong ones is valid.

        Its owner may share the address with those who sent them. A key has 200 random bits, so
        none is found by trying; a malformed key costs no lookup, and all others one thread.
        """
        if api_keys.parse(key) is None:
            return False
        look_up = partial(self._site.client.keys.authenticate, key)
        return await self._lookups.run(look_up) is not None

    def _open(self, key: str, origin: Origin) -> OpenedLogin | None:
        opened = self._site.client.logins.open(key, origin)
        if opened is not None:
            self._site.sessions.add(opened.token, opened.principal)
        return opened


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a posted form; empty for another kind of body."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body()
    if kind != FORM:
        return {}
    try:
        pairs = urllib.parse.parse_qsl(
            body.decode("utf-8"), keep_blank_values=True, max_num_fields=200
        )
    except (UnicodeDecodeError, ValueError):
        return {}
    return dict(pairs)


def is_same_origin(request: Request) -> bool:
    """Return whether a form was sent by a page of this server, according to the browser."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    if origin is None:
        return True  # not a browser; the form token is still checked
    return urllib.parse.urlsplit(origin).netloc == request.headers.get("host", "")
