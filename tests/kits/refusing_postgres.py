"""The first messages of a PostgreSQL server: it asks for a password, refuses, or is an old one."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

_SSL_REQUEST, _GSS_REQUEST = 80_877_103, 80_877_104


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


_ASK_PASSWORD = _message(b"R", struct.pack("!i", 3))
_WELCOME = _message(b"R", struct.pack("!i", 0))
_READY = _message(b"K", struct.pack("!ii", 1, 1)) + _message(b"Z", b"I")


def _refusal(user: str) -> bytes:
    text = f'password authentication failed for user "{user}"'
    fields = {"S": "FATAL", "V": "FATAL", "C": "28P01", "M": text}
    return _message(b"E", b"".join(f"{k}{v}\0".encode() for k, v in fields.items()) + b"\0")


@contextlib.contextmanager
def refusing_postgres(version: str | None = None) -> Iterator[int]:
    """Serve clients until the block ends; yield the port.

    Without a version every password is refused; with one, every client is admitted and learns it.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client, contextlib.suppress(OSError, struct.error):
                        _serve_client(client, version)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)
        thread.join(60)


def _serve_client(client: socket.socket, version: str | None) -> None:
    start = _packet(client)
    while struct.unpack("!i", start[:4])[0] in (_SSL_REQUEST, _GSS_REQUEST):
        client.sendall(b"N")
        start = _packet(client)
    words = start[4:].decode().split("\0")
    user = dict(zip(words[::2], words[1::2], strict=False))["user"]
    if version is None:
        client.sendall(_ASK_PASSWORD)
        if client.recv(1) == b"p":  # otherwise the client has no password and leaves
            _packet(client)
            client.sendall(_refusal(user))
        return
    facts = {"server_version": version, "client_encoding": "UTF8"}
    facts_sent = b"".join(_message(b"S", f"{k}\0{v}\0".encode()) for k, v in facts.items())
    client.sendall(_WELCOME + facts_sent + _READY)
    client.recv(1)  # its last message


def _packet(client: socket.socket) -> bytes:
    (size,) = struct.unpack("!i", client.recv(4, socket.MSG_WAITALL))
    return client.recv(size - 4, socket.MSG_WAITALL)
