"""The identity provider over HTTP: reads its configuration and exchanges a code for a token.
Blocks.
"""

from __future__ import annotations

import base64
import threading
import urllib.parse
from collections.abc import Mapping
from typing import Any, Final

from penstock.core.clock import Clock
from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.json_profile import parse_json
from penstock.egress.http_client import HttpClient, Request, RequestFailed
from penstock.egress.keyset import key_fetcher
from penstock.egress.oidc import InvalidToken, read_claims, read_header
from penstock.egress.tokens import Verifier, check_signature
from penstock.web.login.identity import IdentitySettings, check_identity

REQUEST_SECONDS: Final = 10.0
CONFIGURATION_SECONDS: Final = 3_600.0
DISCOVERY: Final = "/.well-known/openid-configuration"


class ProviderUnavailable(PenstockError):
    """The identity provider does not respond as expected: try again, or log in with a key."""

    code = "auth.provider_unavailable"
    http_status = 503
    retryable = True

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__()


class IdentityProvider:
    """One provider; safe to use from any thread."""

    def __init__(
        self,
        settings: IdentitySettings,
        client_secret: str | None,
        egress: HttpClient,
        clock: Clock,
    ) -> None:
        self.settings = settings
        self._secret = client_secret
        self._egress = egress
        self._clock = clock
        self._verifier = Verifier(key_fetcher(egress), clock)
        self._lock = threading.Lock()
        self._known: tuple[float, Mapping[str, str]] | None = None

    def authorization_url(self, redirect: str, state: str, nonce: str, challenge: str) -> str:
        """Return the address at which a person logs in."""
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": redirect,
            "scope": self.settings.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        base = self._configuration()["authorization_endpoint"]
        return f"{base}{'&' if '?' in base else '?'}{urllib.parse.urlencode(query)}"

    def identify(
        self, code: str, redirect: str, verifier: str, nonce: str
    ) -> tuple[str, Mapping[str, Any]]:
        """Return the e-mail address and the claims for a code; raise InvalidToken if it is wrong.

        Raises ProviderUnavailable or KeysUnavailable if the provider does not respond.
        """
        configuration = self._configuration()
        token = self._token(configuration["token_endpoint"], code, redirect, verifier)
        header = read_header(token)
        key = self._verifier.keys_of(configuration["jwks_uri"]).find(header.key_id)
        if key is None:
            raise InvalidToken("kid: the issuer has no such key")
        claims = read_claims(check_signature(token, key, header.algorithm))
        return check_identity(claims, self.settings, nonce, self._clock.now()), claims

    def _configuration(self) -> Mapping[str, str]:
        with self._lock:
            known = self._known
        if known is not None and known[0] > self._clock.monotonic():
            return known[1]
        found = self._ask(
            Request(
                method="GET",
                url=self.settings.issuer.rstrip("/") + DISCOVERY,
                timeout_s=REQUEST_SECONDS,
                read_body=True,
            )
        )
        if found.get("issuer") != self.settings.issuer:
            raise ProviderUnavailable("the provider's configuration names another issuer")
        names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        made = {name: found[name] for name in names if isinstance(found.get(name), str)}
        if len(made) != len(names):
            raise ProviderUnavailable("the provider's configuration lacks an endpoint")
        with self._lock:
            self._known = (self._clock.monotonic() + CONFIGURATION_SECONDS, made)
        return made

    def _token(self, url: str, code: str, redirect: str, verifier: str) -> str:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "client_id": self.settings.client_id,
            "code_verifier": verifier,
        }
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        if self._secret is not None:
            pair = ":".join(
                urllib.parse.quote(part, safe="") for part in (form["client_id"], self._secret)
            )
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        found = self._ask(
            Request(
                url=url,
                headers=headers,
                body=urllib.parse.urlencode(form).encode(),
                timeout_s=REQUEST_SECONDS,
                read_body=True,
            )
        )
        token = found.get("id_token")
        if not isinstance(token, str):
            raise InvalidToken("the provider sent no id_token")
        return token

    def _ask(self, request: Request) -> Mapping[str, Any]:
        try:
            reply = self._egress.send(request)
            found = parse_json(reply.body, "provider", names_max=500)
        except (RequestFailed, InvalidInput) as error:
            raise ProviderUnavailable(error.message) from None
        if reply.status in (400, 401, 403):
            raise InvalidToken(f"the provider refused the code ({reply.status})")
        if reply.status != 200 or not isinstance(found, dict):
            raise ProviderUnavailable(f"the provider returned {reply.status}")
        return found
