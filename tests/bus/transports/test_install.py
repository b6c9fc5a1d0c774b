"""Everything without its extras: nothing imports them, and a missing one is named."""

import subprocess
import sys

import pytest

BLOCKED = "nats", "google", "grpc", "opentelemetry", "sentry_sdk", "psycopg", "duckdb"
PROGRAM = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED!r}:
            raise ModuleNotFoundError(f"blocked: {{name}}", name=name)

sys.meta_path.insert(0, Blocked())
"""
USES = {
    "core": """
import os, tempfile
os.chdir(tempfile.mkdtemp())
import penstock, penstock.bus, penstock.consumer, penstock.testing
from penstock import connect
from penstock.bus import EmbeddedBus, NewMessage, SubscriptionSpec, TopicSpec
from penstock.bus.transports.table import transports_page
from penstock.cli.root import cli
with connect("sqlite:x.db") as client:
    bus = EmbeddedBus(client.store)
    bus.declare([TopicSpec(name="orders")], [SubscriptionSpec(name="work", topic="orders")])
    bus.publish("orders", [NewMessage(data=b"x")])
    print(len(bus.pull("work")), "nats" in transports_page(""))
""",
    "nats": """
from penstock.bus import NatsTransport
from penstock import PenstockError
try:
    NatsTransport("nats://127.0.0.1:4222")
except PenstockError as error:
    print(error)
""",
    "pubsub": """
from penstock.bus import PubsubTransport
from penstock import PenstockError
try:
    PubsubTransport("pubsub://acme")
except PenstockError as error:
    print(error)
""",
    "bigquery": """
from penstock.probes import ProbeRequest, ProbeRunner
from penstock import same_day
need = same_day("games").with_defaults("day", "bigquery:acme.season")
print(ProbeRunner().probe(ProbeRequest(dependencies=[need], partition="2025-12-31"))[0].error)
""",
    "audit sink": """
from penstock import PenstockError
from penstock.assembly.audit_sink import build_audit_sink
from penstock.assembly.settings import load
sink = build_audit_sink(load({"PENSTOCK_AUDIT_SINK": "bigquery:acme.audit"}))
try:
    sink.last("journal")
except PenstockError as error:
    print(error)
""",
    "firestore": """
from penstock import PenstockError
from penstock.consumer import Consumer
try:
    Consumer("beats", sink="firestore:acme")
except PenstockError as error:
    print(error)
""",
    "pubsub port": """
import os, tempfile
os.chdir(tempfile.mkdtemp())
from penstock import PenstockError, connect
from penstock.assembly.messaging.pubsub import build_pubsub
from penstock.assembly.settings import load
with connect("sqlite:x.db") as client:
    try:
        build_pubsub(client, load({"PENSTOCK_PUBSUB_PORT": "0"}))
    except PenstockError as error:
        print(error)
""",
}


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ("core", "1 True"),
        ("nats", "pip install 'penstock-engine[nats]'"),
        ("pubsub", "pip install 'penstock-engine[pubsub]'"),
        ("bigquery", "pip install 'penstock-engine[bigquery]'"),
        ("audit sink", "pip install 'penstock-engine[bigquery]'"),
        ("firestore", "pip install 'penstock-engine[firestore]'"),
        ("pubsub port", "pip install 'penstock-engine[pubsub]'"),
    ],
)
def test_without_the_extras(use: str, expected: str) -> None:
    """The core works with every optional package blocked; each use names its extra."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM + USES[use]],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert expected in done.stdout
