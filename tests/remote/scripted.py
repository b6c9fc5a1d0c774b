"""A server that answers by script: each request gets the next response and is recorded."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ScriptedReply:
    """One response: a status and a body, or a lost connection."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    breaks: bool = False
    closes: bool = False


@dataclass(frozen=True)
class Asked:
    """A request as it was received."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    port: int


class Scripted:
    """The server; `asked` contains the received requests."""

    def __init__(self, *replies: ScriptedReply) -> None:
        self.replies = list(replies)
        self.asked: list[Asked] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    def encrypt(self, context: ssl.SSLContext) -> None:
        """Use TLS from now on."""
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def stop(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def keys(self) -> Sequence[str | None]:
        """Return the received idempotency keys."""
        return [one.headers.get("idempotency-key") for one in self.asked]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def respond(self) -> None:
                length = int(self.headers.get("content-length", "0"))
                script.asked.append(
                    Asked(
                        self.command,
                        self.path,
                        {k.lower(): v for k, v in self.headers.items()},
                        self.rfile.read(length),
                        self.client_address[1],
                    )
                )
                reply = script.replies.pop(0)
                if reply.breaks:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                raw = (
                    reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                )
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)
                # Close without a response, as a server does with an idle connection.
                self.close_connection = reply.closes

            do_GET = do_POST = do_PATCH = do_DELETE = respond  # noqa: N815 - http.server's names

            def log_message(self, format: str, *args: Any) -> None:
                """Do not log."""

        return Handler


def problem(
    status: int, code: str, headers: dict[str, str] | None = None, **more: Any
) -> ScriptedReply:
    """Return a response with a problem document."""
    body = {"type": f"urn:penstock:problem:{code}", "title": "T", "status": status, "code": code,
            "detail": "It was refused.", "request_id": "r", **more}  # fmt: skip
    return ScriptedReply(status=status, body=body, headers=headers or {})
