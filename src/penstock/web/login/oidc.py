"""Login through an identity provider: authorization code with PKCE, state and nonce.

The state of the login until the browser returns (state, nonce, verifier, the requested page) is in
a signed cookie that is valid for ten minutes; the server stores nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import re
from dataclasses import dataclass
from functools import partial
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from penstock.access.client.logins import OpenedLogin, Origin
from penstock.core.errors import NotFound, PenstockError
from penstock.core.ids import new_secret
from penstock.core.redact import redact_text
from penstock.egress.keyset import KeysUnavailable
from penstock.egress.oidc import InvalidToken
from penstock.server.overload.admission import BoundedThreads, RequestAdmission
from penstock.server.overload.middleware import AccessRecord
from penstock.web.login.identity import grant_of
from penstock.web.login.provider import IdentityProvider, ProviderUnavailable
from penstock.web.login.sessions import LoginTries, is_https, set_cookie
from penstock.web.login.sign_in import SignIn
from penstock.web.security import HEADERS, local_path, sign
from penstock.web.site import MOVED, Site

log = logging.getLogger(__name__)

COOKIE: Final = "penstock_login"
PENDING_SECONDS: Final = 600
CALLBACK: Final = "/login/oidc/callback"
LATE_WAITING_MAX: Final = 20
"""Number of logins from addresses with too many refused ones that may wait; others get 503."""
_CODE: Final = re.compile(r"[\x21-\x7e]{1,2048}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingLogin:
    """A login that waits for the browser to return from the provider."""

    state: str
    nonce: str
    verifier: str
    wanted: str
    until: int

    @property
    def challenge(self) -> str:
        """The hash of the verifier, which the provider gets first (RFC 7636, S256)."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def encode(self, secret: bytes) -> str:
        """Return the pending login as the signed value of a cookie."""
        values = [self.state, self.nonce, self.verifier, self.wanted, self.until]
        text = base64.urlsafe_b64encode(json.dumps(values).encode()).decode()
        return f"{text}.{sign(secret, 'oidc', text)}"

    @classmethod
    def decode(cls, secret: bytes, given: str) -> PendingLogin | None:
        """Return the pending login in a cookie; None if this server did not sign it."""
        text, _, mark = given.partition(".")
        if not hmac.compare_digest(sign(secret, "oidc", text).encode(), mark.encode()):
            return None
        state, nonce, verifier, wanted, until = json.loads(base64.urlsafe_b64decode(text))
        return cls(state=state, nonce=nonce, verifier=verifier, wanted=wanted, until=until)


class OidcLogin:
    """The routes of the login through an identity provider."""

    def __init__(
        self, site: Site, sign_in: SignIn, provider: IdentityProvider, public_url: str
    ) -> None:
        self._site = site
        self._sign_in = sign_in
        self._provider = provider
        self._public_url = public_url.rstrip("/")
        self._tries = LoginTries(site.clock)
        self._one_by_one = BoundedThreads(1, LATE_WAITING_MAX)
        site.add("/login/oidc", self.begin, ["GET"])
        site.add(CALLBACK, self.finish, ["GET"])

    async def begin(self, request: Request) -> Response:
        """Send the browser to the provider."""
        access: AccessRecord = request.scope["penstock.access"]
        access.route = "/login/oidc"
        admission: RequestAdmission = request.scope["penstock.admission"]
        await admission.enter()
        return await run_in_threadpool(partial(self._begin, request))

    def _begin(self, request: Request) -> Response:
        pending = PendingLogin(
            state=new_secret(),
            nonce=new_secret(),
            verifier=new_secret() + new_secret(),
            wanted=local_path(request.query_params.get("next", "")),
            until=self._now() + PENDING_SECONDS,
        )
        try:
            there = self._provider.authorization_url(
                self._redirect(request), pending.state, pending.nonce, pending.challenge
            )
        except PenstockError as error:
            return self._failed(request, pending.wanted, error)
        response = RedirectResponse(there, MOVED, dict(HEADERS))
        response.set_cookie(
            COOKIE,
            pending.encode(self._site.secret()),
            max_age=PENDING_SECONDS,
            path=CALLBACK,
            secure=is_https(request),
            httponly=True,
            samesite="lax",  # the browser returns from another site
        )
        return response

    async def finish(self, request: Request) -> Response:
        """Open a session for the authenticated person."""
        access: AccessRecord = request.scope["penstock.access"]
        access.route = CALLBACK
        client_address = self._site.client_address(request)
        work = partial(self._finish, request, client_address)
        if self._tries.wait_seconds(client_address):
            # Others may share the address: they are not refused, but served one by one, which
            # bounds the requests to the provider.
            return await self._one_by_one.run(work)
        admission: RequestAdmission = request.scope["penstock.admission"]
        await admission.enter()
        return await run_in_threadpool(work)

    def _finish(self, request: Request, client_address: str) -> Response:
        given = request.query_params
        pending = PendingLogin.decode(self._site.secret(), request.cookies.get(COOKIE, "."))
        if pending is None or pending.until < self._now():
            text = "The login took longer than ten minutes, or began in another browser: try again."
            return self._sign_in.form(request, "/", text, 403)
        try:
            if not hmac.compare_digest(given.get("state", "").encode(), pending.state.encode()):
                raise InvalidToken("state: belongs to another login")
            if "error" in given:
                raise InvalidToken(f"the provider returned {redact_text(given['error'])[:60]!r}")
            if not _CODE.fullmatch(given.get("code", "")):
                raise InvalidToken("code: missing")
            try:
                opened = self._identify(request, pending, given["code"], client_address)
            except InvalidToken:
                self._tries.count(client_address)
                raise
        except PenstockError as error:
            return self._failed(request, pending.wanted, error)
        response = RedirectResponse(pending.wanted, MOVED, dict(HEADERS))
        response.delete_cookie(COOKIE, path=CALLBACK)
        set_cookie(request, response, opened.token, opened.seconds)
        return response

    def _identify(
        self, request: Request, pending: PendingLogin, code: str, client_address: str
    ) -> OpenedLogin:
        email, claims = self._provider.identify(
            code, self._redirect(request), pending.verifier, pending.nonce
        )
        grant = grant_of(self._provider.settings, email, claims)
        if grant is None:
            raise InvalidToken(f"no rule in login.oidc.roles gives {email} a role")
        origin = Origin(client_address, request.headers.get("user-agent", ""))
        opened = self._site.client.logins.open_person(email, grant.role, grant.customer, origin)
        self._site.sessions.add(opened.token, opened.principal)
        return opened

    def _failed(self, request: Request, wanted: str, error: PenstockError) -> Response:
        """Return the login page with a hint for the person; the reason is only logged."""
        if isinstance(error, InvalidToken):
            log.warning("a login through the identity provider was refused: %s", error.reason)
            text = "You are known there, but have no access here: ask an admin for a role."
            if not error.reason.startswith("no rule"):
                text = "The response of the identity provider was not accepted: try again."
            return self._sign_in.form(request, wanted, text, 403)
        if isinstance(error, ProviderUnavailable | KeysUnavailable):
            reason = error.reason if isinstance(error, ProviderUnavailable) else "no keys"
            log.warning("the identity provider does not respond: %s", reason)
            text = "The identity provider does not respond: try again, or log in with a key."
            return self._sign_in.form(request, wanted, text, 503)
        if isinstance(error, NotFound):
            text = "The customer that your role is bound to does not exist: ask an admin."
            return self._sign_in.form(request, wanted, text, 403)
        return self._sign_in.form(request, wanted, redact_text(error.message), error.http_status)

    def _redirect(self, request: Request) -> str:
        base = self._public_url
        if not base:
            scheme = "https" if is_https(request) else "http"
            base = f"{scheme}://{request.headers.get('host', '')}"
        return base + CALLBACK

    def _now(self) -> int:
        return self._site.clock.now() // 1_000_000
