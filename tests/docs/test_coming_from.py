"""docs/how-to/coming-from.md: its commands run, and what it says about moving a job is true."""

import ast
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from penstock import Config, Pipeline, RunContext, Submission, connect, run_pending
from penstock.core.clock import DAY, SECOND
from tests.docs.test_commands import commands
from tests.docs.test_docs import HOW_TO, ROOT, blocks
from tests.kits.client_harness import Harness
from tests.kits.shell import Shell, alone, bare

__all__ = ["alone", "bare"]

PAGE = ROOT / "docs" / "how-to" / "coming-from.md"
TEXT = PAGE.read_text("utf-8")
SCRIPT = "#!/bin/sh\necho rows: 12\necho of $1 >&2\nexit $(cat code)\n"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The names of the page, after its blocks ran."""
    module = ModuleType("coming_from")
    sys.modules[module.__name__] = module
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path_factory.mktemp("page"))
        for _, code in blocks(TEXT):
            exec(compile(code, str(PAGE), "exec"), vars(module))
    yield module
    del sys.modules[module.__name__]


def pipelines(page: ModuleType) -> list[Pipeline]:
    """Return the pipelines that the page declares."""
    return [one for one in vars(page).values() if isinstance(one, Pipeline)]


def test_every_block_is_checked() -> None:
    """Python runs in test_docs.py, commands run below; the rest is code of other products."""
    assert PAGE in HOW_TO
    found = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert {language for language, _ in found} == {"python", "console", "text"}
    crontab, *foreign = [code for language, code in found if language == "text"]
    assert crontab.startswith("0 2 * * * ")
    assert [ast.parse(code).body != [] for code in foreign] == [True, True]


def test_commands_run(page: ModuleType, bare: Shell) -> None:
    """Every command is accepted for the pipelines of the page."""
    with connect(bare.url) as client:
        client.register(pipelines(page))
    (crontab,) = re.findall(r"; (penstock complete .*)$", TEXT, re.MULTILINE)
    report = shlex.split(crontab.replace('"$(date +\\%F)"', "2026-03-02").replace("$s", "success"))
    for line in [*commands(TEXT), report[1:]]:
        result = bare(*line)
        assert result.code == 0, (line, result)
    assert len(bare.json("configs", "list")["items"]) == TEXT.count(
        "penstock configs create default"
    )
    explained = bare.json("explain", "night", "2026-03-02")
    words = {phase["phase"]: phase["word"] for phase in explained["phases"]}
    assert words == {"load": "complete", "publish": "observed"}


@pytest.mark.parametrize("code", [0, 3])
def test_output_of_a_script(
    page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """What the script prints is the log of the run, also if it fails."""
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "report.sh"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    (tmp_path / "code").write_text(str(code))
    monkeypatch.setattr(page, "SCRIPT", str(script))
    with connect(f"sqlite:{tmp_path / 'p.db'}") as client:
        client.register([page.report])
        run_id = client.runs.submit(Submission(pipeline="report", partition="2026-03-02")).run_id
        run_pending(client, [page.report])
        assert [one.message for one in client.runs.logs(run_id).entries] == [
            "rows: 12", "of 2026-03-02",
        ]  # fmt: skip
        run = client.runs.get(run_id)
    assert (run.state == "COMPLETED") is (code == 0)


def observed(made: list[str]) -> list[Pipeline]:
    """Two pipelines that observe: one processor, and a flow of two phases."""
    single = Pipeline("single", partition="day", cascade="observe")

    @single.processor
    def only(_: RunContext) -> None:
        made.append("single")

    flow = Pipeline("flow", partition="day", cascade="observe")
    first = flow.phase("first")

    @first.processor
    def early(_: RunContext) -> None:
        made.append("first")

    @flow.phase("second", after=first).processor
    def late(_: RunContext) -> None:
        made.append("second")

    return [single, flow]


def test_an_observed_config_starts_work(harness: Harness) -> None:
    """Only the later phases are withheld: a config of an observed pipeline is not a dry run."""
    assert "The processors of the first phases still run" in " ".join(TEXT.split())
    made: list[str] = []
    client, found = harness.client, observed(made)
    client.register(found)
    for pipeline in found:
        client.configs.create("acme", Config(pipeline=pipeline.name, cron="0 2 * * *"))
    harness.clock.advance(DAY)
    assert harness.tick().runs == 2
    harness.clock.advance(SECOND)  # late occurrences start a little after the tick
    run_pending(client, found)
    assert sorted(made) == ["first", "single"]
    (opened,) = client.flows.list().items
    assert opened.state == "OPEN"
