"""Every example runs as described."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples import saas
from penstock import Submission, connect, run_pending

ROOT = Path(__file__).parents[2]


def test_quickstart(tmp_path: Path) -> None:
    """The README's example prints the run's result."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "quickstart.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "{'text': 'hello Ada'}\n", "")


@pytest.mark.parametrize(
    "program", sorted((ROOT / "examples" / "client").glob("*.py")), ids=lambda p: p.stem
)
def test_programs_of_the_client(program: Path, tmp_path: Path) -> None:
    """Each program over the client runs to its end and prints nothing to standard error."""
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "None" not in done.stdout


def test_saas_runs_outside_the_demo(tmp_path: Path) -> None:
    """The SaaS example's pipelines also work in real time, through the public names alone."""
    parameters: dict[str, dict[str, Any]] = {
        "cost_billing": {"billing_account_id": "012345-ABCDEF-678900", "project_ids": ["a", "b"]},
        "security_audit": {"aws_account_id": "123456789012", "regions": ["us-east-1"]},
        "compliance_report": {"framework": "SOC2"},
    }
    with connect(f"sqlite:{tmp_path}/saas.db") as client:
        client.register(saas.PIPELINES)
        ids = client.runs.submit_many(
            [Submission(pipeline=name, parameters=given) for name, given in parameters.items()]
        )
        assert run_pending(client, saas.PIPELINES) == 3
        assert {client.runs.get(run_id).state for run_id in ids} == {"COMPLETED"}
