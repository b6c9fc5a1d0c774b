"""The site: routes of pages, actions, login and files, behind the same admission as the API.

Every page is a function from a `Visit` to a `WebPage`. It runs in a thread, like a use case of the
API, and only after the session was found and the request was admitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeAlias

from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route as StarletteRoute

from penstock.access.api_keys import Permission
from penstock.client import Client
from penstock.core.clock import Clock
from penstock.core.errors import (
    InvalidInput,
    NotFound,
    PenstockError,
    ReadTimeout,
    StoreError,
    StoreUnavailable,
)
from penstock.core.redact import redact_text
from penstock.db.store import read_limit
from penstock.server.overload.admission import RequestAdmission
from penstock.server.overload.middleware import AccessRecord
from penstock.server.problems import Refused
from penstock.web.assets import serve_asset
from penstock.web.live.fragments import (
    Drawn,
    SharedFragments,
    as_response,
    drawn,
    etag_of,
    html_response,
    is_fragment,
)
from penstock.web.live.hub import LiveHub
from penstock.web.live.panel_threads import PanelThreads
from penstock.web.live.shared_reads import SharedReads
from penstock.web.live.topics import topics_of_page
from penstock.web.login.proxies import TrustedProxies
from penstock.web.login.sessions import SessionCache, Visitor
from penstock.web.navigation import counts_of, places_of, scope_path
from penstock.web.parts import AskPanel, Link, NotePanel, Question, WebPage, address
from penstock.web.render import render
from penstock.web.security import HEADERS, form_token, local_path
from penstock.web.visit import PAGE_SECONDS, VALUE_MAX, Visit

View: TypeAlias = Callable[[Visit], WebPage]
MOVED: Final = 303
RETRY_SECONDS: Final = 5
"""Time after which a page that the database could not serve loads itself again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRoute:
    """A page: its path, its function, and its access."""

    path: str
    view: View
    permission: Permission = Permission.READ
    covers_all: bool = False
    """Whether a key that is bound to a customer may not see it."""


class Site:
    """The dashboard over a client."""

    def __init__(
        self, client: Client, clock: Clock, pages: Sequence[PageRoute], environment: str = ""
    ) -> None:
        self.client = client
        self.clock = clock
        self.environment = environment
        """Name of the environment, which every page shows; may be empty."""
        self.sessions = SessionCache(client, clock)
        self.proxies = TrustedProxies()
        """The proxies whose X-Forwarded-For is believed."""
        self._reads = SharedReads(clock)
        self._threads = PanelThreads()
        self._fragments = SharedFragments(clock)
        self.hub = LiveHub(client.store)
        self._secret: bytes | None = None
        self._routes = [
            StarletteRoute("/assets/{name}", serve_asset, methods=["GET"]),
            *(StarletteRoute(page.path, self._endpoint(page), methods=["GET"]) for page in pages),
        ]

    @property
    def routes(self) -> Sequence[StarletteRoute]:
        """The routes of the pages and their files."""
        return self._routes

    def add(self, path: str, endpoint: Callable[[Request], Any], methods: Sequence[str]) -> None:
        """Add a route that is not a page, such as the login."""
        self._routes.append(StarletteRoute(path, endpoint, methods=list(methods)))

    def is_known(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether a request has a session that was valid before."""
        return self.sessions.is_known(headers)

    async def absent(self, request: Request) -> Response:
        """Return the "not found" page."""
        visitor = await self.enter(request, "absent")
        if isinstance(visitor, Response):
            return visitor
        make = partial(_absent, "No page has this address.")
        return await run_in_threadpool(
            lambda: self.respond(request, self.visit(request, visitor), make())
        )

    def unavailable(self, request: Request, *, is_busy: bool) -> Response:
        """Return the page shown while the database does not respond; needs no database.

        It has no navigation, because the session may not have been found. A page loads itself
        again; a form is sent again only by the person.
        """
        is_form = request.method == "POST"
        values = {
            "title": f"The database {'is busy' if is_busy else 'cannot be reached'}",
            "environment": self.environment,
            "seconds": RETRY_SECONDS,
            "is_form": is_form,
        }
        response = html_response(request, render("unavailable.html", values), 503)
        response.headers["Retry-After"] = str(RETRY_SECONDS)
        if not is_form:
            response.headers["Refresh"] = str(RETRY_SECONDS)
        return response

    def client_address(self, request: Request) -> str:
        """Return the address that a request came from, before the trusted proxies."""
        peer = request.client.host if request.client else ""
        return self.proxies.client_address(peer, request.headers.getlist("x-forwarded-for"))

    def release(self) -> None:
        """End the streams of open pages, because the server stops; thread-safe and idempotent."""
        self.hub.release()

    def secret(self) -> bytes:
        """Return the secret that signs forms; blocks on first use."""
        if self._secret is None:
            self._secret = self.client.keys.server_secret("web").encode()
        return self._secret

    def _endpoint(self, page: PageRoute) -> Callable[[Request], Any]:
        async def serve(request: Request) -> Response:
            visitor = await self.recognise(request, page.path)
            if isinstance(visitor, Response):
                return visitor
            if is_fragment(request):
                caller = visitor.caller
                key = (str(request.url), caller.principal.role.value, caller.customer)
                shown = self._fragments.cached(key)
                if shown is None:
                    await _admit(request)
                    make = partial(self._draw_fragment, request, visitor, page)
                    shown = await self._fragments.draw(key, make)
                return as_response(request, shown)
            await _admit(request)
            return await run_in_threadpool(partial(self._serve, request, visitor, page))

        return serve

    async def recognise(self, request: Request, route: str) -> Visitor | Response:
        """Return the person of a request; without a session, a redirect to the login."""
        access: AccessRecord = request.scope["penstock.access"]
        access.route = route
        visitor = await self.sessions.find(request)
        if visitor is None:
            return _to_login(request)
        access.key = visitor.caller.principal.name
        access.customer = visitor.caller.customer
        admission: RequestAdmission = request.scope["penstock.admission"]
        admission.identify(visitor.caller.key)
        return visitor

    async def enter(self, request: Request, route: str) -> Visitor | Response:
        """Return the person of an admitted request; without a session, a redirect to the login."""
        visitor = await self.recognise(request, route)
        if not isinstance(visitor, Response):
            await _admit(request)
        return visitor

    def visit(self, request: Request, visitor: Visitor) -> Visit:
        """Return the visit of a request; blocks on first use."""
        query = {
            name: value[:VALUE_MAX]
            for name, value in request.query_params.items()
            if value and "\0" not in value
        }
        return Visit(
            caller=visitor.caller,
            path=request.url.path,
            path_values=dict(request.path_params),
            query=query,
            now=datetime.fromtimestamp(self.client.now() / 1_000_000, UTC),
            request_id=request.scope["penstock.request_id"],
            form_token=form_token(self.secret(), visitor.token),
            reads=self._reads,
            threads=self._threads,
        )

    def guarded(self, visit: Visit, view: View, *, is_retried: bool = False) -> WebPage:
        """Return a page, or the error page.

        is_retried: raise StoreUnavailable, for which `unavailable` is shown instead.
        """
        try:
            return view(visit)
        except NotFound as error:
            return _absent(error.message)
        except InvalidInput as error:
            return _refused_page(400, "That does not fit", error.message)
        except Refused as error:
            return _refused_page(error.status, "Not allowed", error.detail)
        except ReadTimeout:
            text = (
                "The database did not answer in time. Nothing was changed; try again in a moment."
            )
            return _refused_page(503, "This page took too long", text)
        except StoreError as error:
            if is_retried and isinstance(error, StoreUnavailable):
                raise
            text = "The database does not respond. Nothing was changed; try again in a moment."
            return _refused_page(503, "The database does not respond", text)
        except PenstockError as error:
            return _refused_page(error.http_status, "That did not work", error.message)

    def respond(
        self,
        request: Request,
        visit: Visit,
        page: WebPage,
        template: str = "main.html",
        **values: Any,
    ) -> Response:
        """Return a page as a response or, if the script requests it, the part that changes."""
        fragment = self._fragment(visit, page, template, **values)
        if is_fragment(request):
            return html_response(request, fragment.whole, page.status)
        return html_response(request, fragment.page, page.status)

    def _serve(self, request: Request, visitor: Visitor, page: PageRoute) -> Response:
        visit = self.visit(request, visitor)
        shown = self._page(visit, page, is_whole=True)
        return self.respond(
            request, visit, shown, topics=topics_of_page(page.path, visit.path_values)
        )

    def _page(self, visit: Visit, page: PageRoute, *, is_whole: bool = False) -> WebPage:
        """Return a page within its time limit, or the error page.

        is_whole: it is not a fragment, which the script of the open page requests again.
        """
        with read_limit(PAGE_SECONDS):
            return self.guarded(visit, partial(_allowed, page), is_retried=is_whole)

    def _draw_fragment(self, request: Request, visitor: Visitor, page: PageRoute) -> Drawn:
        visit = self.visit(request, visitor)
        shown = self._page(visit, page)
        return drawn(self._fragment(visit, shown, "main.html").whole, shown.status)

    def _fragment(self, visit: Visit, page: WebPage, template: str, **more: Any) -> _Rendered:
        page = replace(page, heading=page.heading or page.title)
        places = places_of(visit)
        values = {
            "page": page,
            "visit": visit,
            "now": visit.now,
            "environment": self.environment,
            "places": places,
            "scope_path": scope_path(visit, places),
            "counts": counts_of(visit),
            "topics": "",
            **more,
        }
        return _Rendered(values, template)


class _Rendered:
    """A page in two forms: whole, or the part of it that changes."""

    def __init__(self, values: Mapping[str, Any], template: str) -> None:
        self._values = values
        names = {"title": "title.html", "nav": "nav.html", "main": template, "tabs": "tabs.html"}
        self._parts = {name: render(file, values) for name, file in names.items()}
        self.whole = "".join(self._parts.values())
        """The part that changes, which the script inserts into the page."""

    @property
    def page(self) -> str:
        """The document."""
        parts = {name: Markup(text) for name, text in self._parts.items()}  # noqa: S704
        etag = etag_of(self.whole.encode("utf-8", "replace"))
        return render("page.html", {**self._values, **parts, "etag": etag})


async def _admit(request: Request) -> None:
    """Wait until the request has its body and may be processed."""
    if request.method == "POST":
        await request.body()
    admission: RequestAdmission = request.scope["penstock.admission"]
    await admission.enter()


def _allowed(page: PageRoute, visit: Visit) -> WebPage:
    visit.require(page.permission)
    if visit.is_bound and page.covers_all:
        raise Refused(403, "This page covers all customers, and your key is bound to one.")
    return page.view(visit)


def _to_login(request: Request) -> Response:
    wanted = request.url.path
    if request.url.query:
        wanted = f"{wanted}?{request.url.query}"
    wanted = local_path(wanted)  # a path such as //host/login would lead to another site
    is_elsewhere = request.headers.get("sec-fetch-site") == "cross-site"
    if is_elsewhere and request.method == "GET":
        # A link from another site arrives without the cookie, which is SameSite=Strict. The page
        # reloads itself, and this time the browser sends the cookie.
        return html_response(request, render("again.html", {"href": wanted}))
    return RedirectResponse(
        address("login", next=None if wanted == "/" else wanted), MOVED, dict(HEADERS)
    )


def _absent(message: str) -> WebPage:
    text = redact_text(message)
    return WebPage(
        title="Not found",
        nav="",
        status=404,
        is_live=False,
        sentence=[
            "It does not exist, or it is not yours. Go to ",
            Link(text="the overview", href="/"),
            ".",
        ],
        main=[
            AskPanel(
                title=text,
                questions=[
                    Question(
                        id="ask-absent",
                        title="Search",
                        text="An id or a part of it, a name, or a pipeline with a partition.",
                        action="/find",
                        placeholder="run_…, a customer, nba 2025-12-30",
                        label="Find",
                    )
                ],
            )
        ],
    )


def _refused_page(status: int, title: str, text: str) -> WebPage:
    return WebPage(
        title=title,
        nav="",
        status=status,
        is_live=False,
        top=[NotePanel(state="failed", text=redact_text(text))],
    )
