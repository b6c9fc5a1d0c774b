"""A real identity provider over HTTP: discovery, authorization, tokens signed with a real key."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from penstock.core.clock import SystemClock
from penstock.egress.oidc import SigningKey
from penstock.egress.tokens import new_signing_key, public_jwk, sign

CLIENT, SECRET = "penstock", "a secret: with % signs"


@functools.cache
def _first_key() -> SigningKey:
    """Return the key of every provider: making one takes a quarter of a second."""
    return new_signing_key()


class Provider:
    """What the provider knows; tests change `claims` to misbehave."""

    def __init__(self) -> None:
        self.key = _first_key()
        self.signs_with = self.key
        self.claims: dict[str, Any] = {"email": "ana@example.com", "email_verified": True}
        self.codes: dict[str, dict[str, str]] = {}
        self.issuer = ""
        self.is_down = False

    def configuration(self) -> dict[str, str]:
        """Return the document of discovery."""
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
        }

    def authorize(self, query: dict[str, str]) -> str:
        """Log the person in at once and return where the browser goes."""
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        assert query["client_id"] == CLIENT
        code = f"code-{len(self.codes)}"
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, str]]:
        """Exchange a code, once, for a signed token."""
        asked = self.codes.pop(form.get("code", ""), None)
        pair = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            asked is None
            or challenge != asked["code_challenge"]
            or form["redirect_uri"] != asked["redirect_uri"]
            or pair != f"{CLIENT}:a%20secret%3A%20with%20%25%20signs"
        ):
            return 400, {"error": "invalid_grant"}
        now = SystemClock().now() // 1_000_000
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "sub": "1",
            "iat": now,
            "exp": now + 300,
            "nonce": asked["nonce"],
            **self.claims,
        }
        return 200, {"token_type": "Bearer", "id_token": sign(claims, self.signs_with)}


@contextmanager
def served_provider() -> Iterator[Provider]:
    """Serve a provider on a free port."""
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            target = urlsplit(self.path)
            if provider.is_down:
                self._send(503, {})
            elif target.path == "/.well-known/openid-configuration":
                self._send(200, provider.configuration())
            elif target.path == "/keys":
                self._send(200, {"keys": [public_jwk(provider.key)]})
            else:
                query = {name: values[0] for name, values in parse_qs(target.query).items()}
                self.send_response(302)
                self.send_header("Location", provider.authorize(query))
                self.send_header("Content-Length", "0")
                self.end_headers()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            self._send(*provider.token(form, self.headers.get("Authorization", "")))

        def _send(self, status: int, document: dict[str, Any]) -> None:
            raw = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.issuer = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)
