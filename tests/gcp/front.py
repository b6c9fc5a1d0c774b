"""A front end of the BigQuery emulator: what the emulator lacks, and faults.

It forwards the REST API and adds: job ids that can be used once (409 for a second use, and jobs
that can be read again), the bytes that a dry run estimates, the tables it refers to, and jobs that
were cancelled. Faults: responses that are lost, errors, and jobs that do not end.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

JOBS = re.compile(r"/(?:upload/)?bigquery/v2/projects/[^/]+/jobs")
RESULTS = re.compile(r"/bigquery/v2/projects/[^/]+/queries/([^/?]+)")
JOB = re.compile(JOBS.pattern + r"/([^/?]+)(/cancel)?")


class Refusal(Exception):
    """A response of the front end itself."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status = status
        causes = [{"reason": reason, "message": message, "domain": "global"}]
        error = {"code": status, "message": message, "errors": causes}
        self.body = json.dumps({"error": error}).encode()
        super().__init__(message)


class Lost(Exception):
    """The connection breaks."""


def no_fault(method: str, path: str) -> None:
    """Serve the request."""
    del method, path


class Front:
    """A running front end; `estimate` and `tables` are what dry runs report."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.estimate = 0
        self.tables: list[str] = []
        self.jobs: dict[str, dict[str, Any]] = {}
        self.started: list[dict[str, Any]] = []
        self.cancelled: list[str] = []
        self.hangs = False
        self.before: Callable[[str, str], None] = no_fault
        self.after: Callable[[str, str], None] = no_fault
        self.uploads: dict[str, str] = {}
        self.lock = threading.Lock()
        front = self

        class Handler(_Handler):
            """Requests to this front end."""

            owner = front

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def queries(self) -> list[dict[str, Any]]:
        """Configurations of the queries that were started, dry runs included."""
        return [job["configuration"] for job in self.started if "query" in job["configuration"]]


class _Handler(BaseHTTPRequestHandler):
    owner: Front
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # the library's name
        """Say nothing."""

    def _serve(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        try:
            self.owner.before(self.command, self.path)
            status, headers, response = self._respond(body)
            self.owner.after(self.command, self.path)
        except Refusal as error:
            status, headers, response = error.status, {}, error.body
        except Lost:
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(response)))
        self.end_headers()
        self.wfile.write(response)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815  # the library's names

    def _respond(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        owner, path = self.owner, urlsplit(self.path).path
        one = JOB.fullmatch(path)
        if one is not None and one[2]:
            owner.cancelled.append(one[1])
            return 200, {}, json.dumps({"job": owner.jobs.get(one[1], {})}).encode()
        if one is not None and self.command == "GET" and one[1] in owner.jobs:
            return 200, {}, json.dumps(owner.jobs[one[1]]).encode()
        waited = RESULTS.fullmatch(path)
        if waited is not None and waited[1] in owner.jobs:
            threading.Event().wait(0.05)
            response = {"jobComplete": False, "jobReference": owner.jobs[waited[1]]["jobReference"]}
            return 200, {}, json.dumps(response).encode()
        if JOBS.fullmatch(path) and self.command == "POST":
            return self._insert(json.loads(body)) if body[:1] == b"{" else self._forward(body)
        if self.command == "PUT":
            return self._finish_upload(body)
        return self._forward(body)

    def _insert(self, job: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        """Start a job, or the upload of one."""
        owner = self.owner
        owner.started.append(job)
        job_id = job.get("jobReference", {}).get("jobId", "")
        if "upload" in self.path:
            status, headers, response = self._forward(json.dumps(job).encode())
            location = urlsplit(headers["Location"])
            owner.uploads[parse_qs(location.query)["upload_id"][0]] = job_id
            headers["Location"] = f"{owner.address}{location.path}?{location.query}"
            return status, headers, response
        if owner.hangs and not job["configuration"].get("dryRun"):
            made = {**job, "status": {"state": "RUNNING"}, "id": job_id}
            owner.jobs[job_id] = made
            return 200, {}, json.dumps(made).encode()
        status, headers, response = self._forward(json.dumps(job).encode())
        if status == 200 and job["configuration"].get("dryRun"):
            response = self._estimated(response)
        return status, headers, response

    def _estimated(self, response: bytes) -> bytes:
        made = json.loads(response)
        statistics = made.setdefault("statistics", {})
        statistics["totalBytesProcessed"] = str(self.owner.estimate)
        query = statistics.setdefault("query", {})
        query["totalBytesProcessed"] = str(self.owner.estimate)
        query["referencedTables"] = [
            dict(zip(("projectId", "datasetId", "tableId"), table.split("."), strict=True))
            for table in self.owner.tables
        ]
        return json.dumps(made).encode()

    def _finish_upload(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Run a load job with its data; its id can be used once."""
        owner = self.owner
        upload = parse_qs(urlsplit(self.path).query)["upload_id"][0]
        job_id = owner.uploads[upload]
        with owner.lock:
            if job_id in owner.jobs:
                raise Refusal(409, "duplicate", f"Already Exists: Job acme:US.{job_id}")
            status, headers, response = self._forward(body)
            if status == 200 and response:
                owner.jobs[job_id] = json.loads(response)
        return status, headers, response

    def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.owner.port, timeout=120)
        kept = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in ("host", "content-length", "connection", "accept-encoding")
        }
        try:
            connection.request(self.command, self.path, body or None, kept)
            found = connection.getresponse()
            names = ("Content-Type", "Location", "Range")
            headers = {name: found.headers[name] for name in names if found.headers[name]}
            return found.status, headers, found.read()
        finally:
            connection.close()
