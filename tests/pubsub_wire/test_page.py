"""The page about Google Pub/Sub: its programs run, unchanged, against a front end."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from penstock import connect
from penstock.assembly.process import build_pubsub
from penstock.assembly.settings import load
from tests.docs.test_docs import blocks

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "google-pubsub.md"


def test_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks run one after another with PUBSUB_EMULATOR_HOST set, and the bus has the topic."""
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:{tmp_path / 'page.db'}"
    given = {"database_url": url, "pubsub_port": 0, "pubsub_project": "acme-prod"}
    with connect(url) as client:
        server = build_pubsub(client, load({}, overrides=given))
        assert server is not None
        server.start()
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", server.address)
        module = ModuleType("docs_google_pubsub")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        try:
            for before, code in blocks(PAGE.read_text("utf-8")):
                exec(compile("\n" * before + code, str(PAGE), "exec"), vars(module))
        finally:
            server.stop()
        assert client.subscriptions.get("billing").totals.acked == 1
        names = [one.name for one in client.topics.list().items]
        assert names == ["billing-pull.dlq", "orders"]
