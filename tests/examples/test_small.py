"""The small examples: programs print what their README shows; the service and the worker serve."""

import base64
import contextlib
import io
import json
import re
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from penstock.consumer.asgi import PushApp
from penstock.demo.nba import nba
from penstock.sinks import open_sink
from tests.consumer.kit import request
from tests.examples.test_workers import Bench, Server

ROOT = Path(__file__).parents[2] / "examples"
PROGRAMS = {"api_sync": "sync.py", "fan_out": "thumbnails.py", "backfill": "sales.py"}
SMALL = [*PROGRAMS, "cloud_run", "shell_worker"]
_SHOWN = re.compile(r"^```console\n\$ python (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program prints what its README says."""
    monkeypatch.chdir(tmp_path)
    ((program, expected),) = _SHOWN.findall((ROOT / name / "README.md").read_text("utf-8"))
    assert program == PROGRAMS[name]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        runpy.run_path(str(ROOT / name / program), run_name="__main__")
    assert out.getvalue() == expected


@pytest.mark.parametrize("name", SMALL)
def test_small_means_small(name: str) -> None:
    """Code of at most sixty lines, a README of one screenful."""
    for file in (ROOT / name).iterdir():
        if file.is_file():
            assert file.read_text("utf-8").count("\n") <= 62, file


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PushApp]:
    """The Cloud Run service on a sink of its own."""
    monkeypatch.setenv("SINK_URL", f"sqlite:{tmp_path}/billing.db")
    found = runpy.run_path(str(ROOT / "cloud_run" / "main.py"))
    yield found["asgi"]
    found["app"].sink.close()


def test_cloud_run(service: PushApp, tmp_path: Path) -> None:
    """The rows of the README's table that need no outage."""

    def push(number: str, data: bytes, kind: str = "order.placed") -> tuple[int, Any]:
        message = {"messageId": number, "attributes": {"event_type": kind},
                   "data": base64.b64encode(data).decode()}  # fmt: skip
        response = request(service, json.dumps({"message": message}).encode())
        return response.status, response.json

    order = b'{"id": 7, "cents": 1200}'
    assert push("1", order) == (200, {"outcome": "applied"})
    assert push("1", order) == (200, {"outcome": "duplicate"})
    for number, (data, kind) in enumerate(
        [(b"{", "order.placed"), (order, "unknown"), (b'{"id": 8, "cents": -1}', "order.placed")]
    ):
        status, reply = push(f"p{number}", data, kind)
        assert 400 <= status < 500, reply
        assert reply == {"outcome": "poison"}
    sink = open_sink(f"sqlite:{tmp_path}/billing.db")
    bill, other = sink.document("bills/7"), sink.document("bills/8")
    sink.close()
    assert bill is not None
    assert dict(bill.fields) == {"cents": 1200, "state": "billed", "times": 1}
    assert other is None


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_shell_worker(tmp_path: Path) -> None:
    """Claims, executes the command with the run on standard input, completes and fails."""
    command = 'grep -q "\\"picture\\": *\\"a.png\\"" || exit 3'
    worker = ["sh", str(ROOT / "shell_worker" / "worker.sh"), "sh", "-c", command]
    server = Server(tmp_path)
    bench = Bench(server, worker)
    try:
        good, bad = bench.submit(picture="a.png"), bench.submit(picture="b.png")
        assert bench.ended(good).state == "COMPLETED"
        failed = bench.ended(bad)
        assert (failed.state, failed.error_type) == ("FAILED", "EXIT_3")
        assert failed.claimed_by == "bench-1"
        assert bench.worker.terminate() == 0
    finally:
        bench.close()
        server.close()


def test_flagships() -> None:
    """Their pictures are valid and name every phase; their READMEs name the tests that run them."""
    picture = ElementTree.parse(ROOT / "nba" / "phases.svg")
    drawn = {element.text for element in picture.iter() if element.tag.endswith("text")}
    assert {phase.name for phase in nba.phases} <= drawn
    ElementTree.parse(ROOT / "saas" / "day.svg")
    text = (ROOT / "nba" / "README.md").read_text("utf-8")
    assert f"{len(nba.processors)} processors" in text
    for name in ("nba", "saas"):
        readme = (ROOT / name / "README.md").read_text("utf-8")
        tests = re.findall(r"(?:tests/examples/)?(test_\w+\.py)", readme)
        assert tests
        assert [
            one for one in tests if not (ROOT.parent / "tests" / "examples" / one).exists()
        ] == []
