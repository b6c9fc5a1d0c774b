"""The pages about the API and about commands over a URL run against a server."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from penstock import Pipeline, RunContext, connect
from penstock.assembly.process import build_api
from penstock.assembly.settings import load
from penstock.audit.telemetry import Events

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
_FENCED = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run a server with `hello` and `export`; set the environment as the pages do."""
    monkeypatch.chdir(tmp_path)
    hello, export = Pipeline("hello"), Pipeline("export")

    @hello.processor
    def greet(run: RunContext) -> None:
        """Never executed here."""

    export.phase("main").external("push")
    url = f"sqlite:{tmp_path / 'docs.db'}"
    with connect(url) as client:
        client.register([hello, export])
        key = client.keys.create("docs", "admin").key
        assert key is not None
        settings = load({}, overrides={"database_url": url, "api_port": 0})
        server = build_api(client, settings, Events())
        server.start()
        monkeypatch.setenv("PENSTOCK_URL", server.url)
        monkeypatch.setenv("PENSTOCK_API_KEY", key)
        yield
        server.stop()


def shell(text: str) -> None:
    """Run a shell block; every command must succeed."""
    if "curl" in text and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-euc", text],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, (text, done.stdout, done.stderr)


@pytest.mark.parametrize("name", ["use-the-api.md", "work-over-a-url.md"])
@pytest.mark.usefixtures("served")
def test_blocks_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page run one after another, in one namespace and an empty folder."""
    page = HOW_TO / name
    text = page.read_text("utf-8")
    module = ModuleType(f"docs_{page.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    found = list(_FENCED.finditer(text))
    assert found
    for block in found:
        if block[1] == "sh":
            shell(block[2])
        else:
            lines = text.count("\n", 0, block.start(2))
            exec(compile("\n" * lines + block[2], str(page), "exec"), vars(module))
