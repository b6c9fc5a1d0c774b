"""An HTTP processor in plain Python: SIGNING_SECRET=whsec_… python endpoint.py (port 8000)."""

import base64
import hashlib
import hmac
import json
import os
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from time import CLOCK_REALTIME, clock_gettime
from typing import Any
from urllib.request import Request, urlopen

KEY = base64.b64decode(os.environ["SIGNING_SECRET"].removeprefix("whsec_"))


def work(run: dict[str, Any]) -> dict[str, Any]:
    """Do the work; replace this."""
    return {"records_processed": (run["parameters"] or {}).get("rows", 1)}


def work_later(run: dict[str, Any]) -> None:
    """Do the work, then report the result."""
    headers = {"Authorization": f"Bearer {run['callback']['token']}"}
    body, headers["Content-Type"] = json.dumps(work(run)).encode(), "application/json"
    with urlopen(Request(run["callback"]["complete_url"], body, headers)):  # noqa: S310 - signed
        print(f"{run['run_id']} reported")


def is_genuine(headers: Message, body: bytes) -> bool:
    """Return whether Penstock sent the request within the last five minutes."""
    at = headers.get("webhook-timestamp", "0")
    signed = f"{headers.get('webhook-id')}.{at}.".encode() + body
    right = "v1," + base64.b64encode(hmac.digest(KEY, signed, hashlib.sha256)).decode()
    is_recent = abs(clock_gettime(CLOCK_REALTIME) - int(at)) < 300
    return is_recent and hmac.compare_digest(headers.get("webhook-signature", ""), right)


class Endpoint(BaseHTTPRequestHandler):
    """Receives runs."""

    def do_POST(self) -> None:
        """Execute a run, or accept it and report later."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not is_genuine(self.headers, body):
            self.reply(401, {"reason": "wrong signature"})
            return
        run = json.loads(body)
        if (run["parameters"] or {}).get("is_long"):
            Thread(target=work_later, args=(run,)).start()
            self.reply(202, {})
        else:
            self.reply(200, work(run))

    def reply(self, status: int, value: dict[str, Any]) -> None:
        """Send a reply."""
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())


if __name__ == "__main__":
    address = ("127.0.0.1", int(os.environ.get("PORT", "8000")))
    print(f"listening on {address[1]}", flush=True)
    ThreadingHTTPServer(address, Endpoint).serve_forever()
