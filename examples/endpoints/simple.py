"""An HTTP processor in 30 lines: SIGNING_SECRET=whsec_… python simple.py (port 8000)."""

import base64
import hmac
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = base64.b64decode(os.environ["SIGNING_SECRET"].removeprefix("whsec_"))


class Endpoint(BaseHTTPRequestHandler):
    """Executes the runs that Penstock signed."""

    def do_POST(self) -> None:
        """Reply with the result of a run; put your work here."""
        body, given = self.rfile.read(int(self.headers["Content-Length"])), self.headers
        signed = f"{given['webhook-id']}.{given['webhook-timestamp']}.".encode() + body
        right = "v1," + base64.b64encode(hmac.digest(KEY, signed, "sha256")).decode()
        is_genuine = hmac.compare_digest(given.get("webhook-signature", ""), right)
        run = json.loads(body) if is_genuine else None
        result = run and {"records_processed": run["parameters"]["rows"]}
        self.send_response(200 if run else 401)
        self.end_headers()
        self.wfile.write(json.dumps(result).encode())


if __name__ == "__main__":
    print("listening", flush=True)
    ThreadingHTTPServer(("", int(os.environ.get("PORT", 8000))), Endpoint).serve_forever()
