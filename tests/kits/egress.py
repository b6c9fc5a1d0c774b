"""Foreign servers for tests: certificates made on the spot, and receivers that behave or do not."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

BEGIN = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
END = datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority that only tests trust."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def trusting(self) -> ssl.SSLContext:
        """What a client that trusts it uses."""
        pem = self.certificate.public_bytes(serialization.Encoding.PEM).decode()
        return ssl.create_default_context(cadata=pem)

    def serving(self, folder: Path, *names: str) -> ssl.SSLContext:
        """What a server with a certificate for these names uses."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = _certificate(names[0], key, self.key, self.certificate.subject, names=names)
        file = folder / f"{names[0]}.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + made.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context


@cache
def authority() -> Authority:
    """The authority of this test process."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Penstock tests")])
    return Authority(key, _certificate("Penstock tests", key, key, subject, names=()))


def _certificate(
    common: str,
    key: ec.EllipticCurvePrivateKey,
    by: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    *,
    names: tuple[str, ...],
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEGIN)
        .not_valid_after(END)
        .add_extension(x509.BasicConstraints(ca=not names, path_length=None), critical=True)
    )
    if names:
        kinds = [_general(name) for name in names]
        made = made.add_extension(x509.SubjectAlternativeName(kinds), critical=False)
    return made.sign(by, hashes.SHA256())


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request that a receiver got."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass(slots=True)
class ScriptedResponse:
    """What a receiver answers."""

    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Receiver:
    """An HTTP server in this process that writes down what it gets.

    `respond` returns the response, and may wait on an event to be slow.
    """

    def __init__(
        self,
        respond: Callable[[ReceivedRequest], ScriptedResponse] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.got: list[ReceivedRequest] = []
        self.arrived = threading.Condition()
        self.respond = respond or (lambda _: ScriptedResponse())
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                headers = {name.lower(): value for name, value in self.headers.items()}
                got = ReceivedRequest(self.command, self.path, headers, self.rfile.read(length))
                with outer.arrived:
                    outer.got.append(got)
                    outer.arrived.notify_all()
                response = outer.respond(got)
                self.send_response(response.status)
                for name, value in response.headers.items():
                    self.send_header(name, value)
                if response.status not in (102, 204):
                    self.send_header("Content-Length", str(len(response.body)))
                self.end_headers()
                self.wfile.write(response.body)

            do_GET = do_POST = handle_one  # noqa: N815 - names that http.server asks for

            def log_message(self, *_: Any) -> None:
                """Tests say what they want to know themselves."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                """A client that refuses our certificate is what some tests want."""

        self._server = Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()

    def wait_for(self, count: int, seconds: float = 20.0) -> list[ReceivedRequest]:
        """Wait until at least `count` requests have arrived, and return all of them."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.got) >= count, seconds), len(self.got)
            return list(self.got)

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)


@contextlib.contextmanager
def receiving(
    respond: Callable[[ReceivedRequest], ScriptedResponse] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Iterator[Receiver]:
    """A receiver for the length of a block."""
    made = Receiver(respond, tls)
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def raw_server(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """Run a server that passes each raw connection to `talk`; yield its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                talk(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(60)
