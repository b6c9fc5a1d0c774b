"""The how-to pages of message brokers, run against real servers."""

from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.test_docs import ROOT, blocks
from tests.kits.nats import NatsServer


def test_nats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of the page about NATS run one after another."""
    monkeypatch.chdir(tmp_path)
    server = NatsServer(tmp_path / "nats").start()
    monkeypatch.setenv("NATS_URL", server.url)
    page = ROOT / "docs" / "how-to" / "nats.md"
    module = ModuleType("docs_nats")
    try:
        for before, code in blocks(page.read_text("utf-8")):
            exec(compile("\n" * before + code, str(page), "exec"), vars(module))
    finally:
        server.kill()
