"""Copy the contacts of six customers from an API that allows 200 requests a second in all.

python sync.py
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import urlopen

from penstock import Pipeline, Result, RunContext, Submission, connect, limits, run_pending

RATE, BURST, PAGES = 200, 5, 10
sync = Pipeline("sync", parameters={"type": "object", "properties": {"api": {"type": "string"}}})
requests: list[str] = []


@sync.processor(retry={"max_attempts": 5})
def contacts(run: RunContext) -> Result:
    """Fetch page after page; each request takes a token of the limit that all runs share."""
    found = 0
    page: int | None = 0
    while page is not None:
        url = f"{run.parameters['api']}/contacts/{page}"
        with limits.rate("crm"), urlopen(url, timeout=10) as reply:  # noqa: S310 - our own URL
            body = json.load(reply)
        found, page = found + len(body["contacts"]), body["next"]
    return Result(records=found)


class Crm(BaseHTTPRequestHandler):
    """Stands for the foreign API: pages of ten contacts."""

    def do_GET(self) -> None:
        """Return a page and the number of the next one."""
        requests.append(self.path)
        after = int(self.path.rpartition("/")[2]) + 1
        body = {"contacts": [*range(10)], "next": after if after < PAGES else None}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), Crm) as api, connect("sqlite:sync.db") as client:
        threading.Thread(target=api.serve_forever, daemon=True).start()
        limits.declare("crm", capacity=None, rate=RATE, burst=BURST, client=client)
        given = {"api": f"http://127.0.0.1:{api.server_port}"}
        wanted = [Submission(pipeline="sync", customer=f"c{n}", parameters=given) for n in range(6)]
        client.register([sync])
        ids = client.runs.submit_many(wanted)
        run_pending(client, [sync])
        runs = [client.runs.get(run_id) for run_id in ids]
        api.shutdown()
    print(sum(run.records or 0 for run in runs), "contacts in", len(requests), "requests")
    took = sum(run.duration.total_seconds() for run in runs if run.duration)  # one after another
    print("within the rate:", len(requests) <= BURST + RATE * took)
