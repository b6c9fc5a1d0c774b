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

from penstock import Pipeline
from penstock.consumer.asgi import PushApp
from penstock.core.clock import HOUR
from penstock.demo.nba import nba
from penstock.demo.saas import scenario
from penstock.sinks import open_sink
from penstock.testing.postgres.process import port_free
from tests.consumer.kit import request
from tests.examples.test_workers import Bench, Server

ROOT = Path(__file__).parents[2] / "examples"
PROGRAMS = {"api_sync": "sync.py", "fan_out": "thumbnails.py", "backfill": "sales.py"}
SMALL = [*PROGRAMS, "cloud_run", "shell_worker"]
INCIDENTS: dict[str, tuple[str, int | None]] = {
    "AWS returns 429 for 40 minutes": ("the cloud throttles for 40 minutes", None),
    "credentials of three customers are revoked": ("credentials of 3 customers are revoked", None),
    "a worker is killed with its runs": ("a busy worker is killed", scenario.CRASH_AFTER),
    "one customer submits 5,000 runs": (
        "one customer submits 5,000 runs at once",
        scenario.FLOOD_AT,
    ),
    "every scheduler is down for three hours": ("every scheduler is down", scenario.OUTAGE_AT),
}
"""Incidents in the README of saas: the words in its picture, and the time of the scenario."""
DAY_LEFT, DAY_RIGHT = 30, 770
"""Where that picture has 0:00 and 24:00."""
_ARROW = re.compile(r"^ {4}.*[─►◄]", re.MULTILINE)
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


@pytest.mark.parametrize("name", sorted(one.parent.name for one in ROOT.glob("*/README.md")))
def test_every_readme_has_a_picture(name: str) -> None:
    """A drawing, or a diagram of text below the title."""
    text = (ROOT / name / "README.md").read_text("utf-8")
    drawing = re.search(r"!\[[^\]]+\]\((\w+\.svg)\)", text)
    assert _ARROW.search(text) or (drawing and (ROOT / name / drawing[1]).is_file())


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PushApp]:
    """The Cloud Run service on a sink of its own."""
    monkeypatch.setenv("K_SERVICE", "billing")
    monkeypatch.setenv("SINK_URL", f"sqlite:{tmp_path}/billing.db")
    found = runpy.run_path(str(ROOT / "cloud_run" / "main.py"))
    yield found["asgi"]
    found["app"].sink.close()


def test_cloud_run(service: PushApp, tmp_path: Path) -> None:
    """The rows of the README's table; the last one, an outage, is below."""

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


def test_cloud_run_without_its_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """A push is answered so that it comes again, and the instance is not ready."""
    monkeypatch.setenv("K_SERVICE", "billing")
    monkeypatch.setenv("SINK_URL", f"postgresql://postgres@127.0.0.1:{port_free()}/billing")
    found = runpy.run_path(str(ROOT / "cloud_run" / "main.py"))
    data = base64.b64encode(b'{"id": 7, "cents": 1200}').decode()
    message = {"messageId": "1", "attributes": {"event_type": "order.placed"}, "data": data}
    try:
        response = request(found["asgi"], json.dumps({"message": message}).encode())
        assert (response.status, response.json) == (500, {"outcome": "retry"})
        assert request(found["asgi"], method="GET", path="/readyz").status == 503
    finally:
        found["app"].sink.close()


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
    text = (ROOT / "nba" / "README.md").read_text("utf-8")
    assert f"{len(nba.processors)} processors" in text
    for name in ("nba", "saas"):
        readme = (ROOT / name / "README.md").read_text("utf-8")
        tests = re.findall(r"(?:tests/examples/)?(test_\w+\.py)", readme)
        assert tests
        assert [
            one for one in tests if not (ROOT.parent / "tests" / "examples" / one).exists()
        ] == []


def test_picture_of_the_day() -> None:
    """The picture of saas has each incident of its README, at the time of the scenario."""
    readme = (ROOT / "saas" / "README.md").read_text("utf-8")
    table = readme.partition("| incident | claim |\n| --- | --- |\n")[2].partition("\n\n")[0]
    assert [row.split("|")[1].strip() for row in table.splitlines()] == [*INCIDENTS]
    drawn: dict[str, float] = {}
    hour = 0.0
    for element in ElementTree.parse(ROOT / "saas" / "day.svg").iter():
        if element.tag.endswith("circle"):
            hour = (float(element.attrib["cx"]) - DAY_LEFT) / (DAY_RIGHT - DAY_LEFT) * 24
        elif element.tag.endswith("text"):
            drawn[element.text or ""] = hour
    for words, at in INCIDENTS.values():
        (found,) = [text for text in drawn if words in text]
        if at is not None:
            assert drawn[found] == pytest.approx(at / HOUR, abs=0.1), words


def test_pipelines_of_readmes() -> None:
    """The Python blocks of READMEs run on their own and declare what the commands below name."""
    blocks = {
        one.parent.name: re.findall(r"^```python\n(.*?)^```$", one.read_text("utf-8"), re.M | re.S)
        for one in ROOT.glob("*/README.md")
    }
    declared = {}
    for name, found in blocks.items():
        for block in found:
            names: dict[str, Any] = {}
            exec(block, names)
            (pipeline,) = [one for one in names.values() if isinstance(one, Pipeline)]
            declared[name] = {one.name: one.runs for one in pipeline.processors}
            text = (ROOT / name / "README.md").read_text("utf-8")
            assert f"penstock runs submit {pipeline.name}" in text
    assert declared == {
        "workers": {"images": "external"},
        "shell_worker": {"resize": "external"},
        "endpoints": {"score": "http"},
    }
