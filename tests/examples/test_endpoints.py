"""The example endpoints, each in its own process, against a server in another."""

import base64
import json
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Submission
from penstock.client import Client
from penstock.db.sqlite.store import SqliteStore
from tests.examples.test_workers import PATIENCE_SECONDS, ROOT, Process

ENDPOINTS = ROOT / "examples" / "endpoints"
SECRET = "whsec_" + base64.b64encode(b"e" * 32).decode()
COMMANDS = {
    "python": [sys.executable, str(ENDPOINTS / "endpoint.py")],
    "simple": [sys.executable, str(ENDPOINTS / "simple.py")],
    "javascript": ["node", str(ENDPOINTS / "endpoint.mjs")],
}
PIPELINES = """
from penstock import Pipeline

scores = Pipeline("scores")
scores.phase("main").http("http://127.0.0.1:{port}/", name="score", signing_secrets=["score_hook"])
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(params=list(COMMANDS))
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Client, Process]]:
    command = COMMANDS[request.param]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    port = free_port()
    (tmp_path / "pipelines.py").write_text(PIPELINES.format(port=port))
    endpoint = Process(*command, cwd=tmp_path, PORT=str(port), SIGNING_SECRET=SECRET)
    server = None
    try:
        endpoint.wait_for(lambda line: "listening" in line)
        server = Process(
            sys.executable, "-m", "penstock", "--json", "--database-url",
            f"sqlite:{tmp_path}/penstock.db", "up", "--pipelines", "pipelines.py", "--port", "0",
            cwd=tmp_path, PENSTOCK_EGRESS_HTTP="allowed", PENSTOCK_EGRESS_PRIVATE="allowed",
            PENSTOCK_SECRET_SCORE_HOOK=SECRET,
        )  # fmt: skip
        json.loads(server.wait_for(lambda line: '"api"' in line))
        store = SqliteStore(tmp_path / "penstock.db")
        try:
            yield Client(store), server
        finally:
            store.close()
    finally:
        endpoint.close()
        if server is not None:
            server.close()


def test_the_endpoint_executes_runs_at_once_and_later(client: tuple[Client, Process]) -> None:
    runs, server = client
    first = runs.runs.submit(Submission(pipeline="scores", parameters={"rows": 12}))
    later = runs.runs.submit(Submission(pipeline="scores", parameters={"rows": 7, "is_long": True}))
    waiter = runs.store.listen(["flows"])
    for run_id, records in ((first.run_id, 12), (later.run_id, 7)):
        for _ in range(int(PATIENCE_SECONDS / 0.1)):
            run = runs.runs.get(run_id)
            if run.finished_at is not None:
                break
            waiter.wait(0.1)
        assert (run.state, run.records) == ("COMPLETED", records), (run, server.lines)
    waiter.close()
