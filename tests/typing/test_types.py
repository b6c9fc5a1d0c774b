"""User code is typed: mypy accepts what is right, rejects what is wrong, and infers precise types.

The user code is in `user_*.py`. It states types with `assert_type`, and marks lines that must be
errors with `type: ignore`; an unused one is itself an error.
"""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
USER_CODE = sorted(path.stem for path in Path(__file__).parent.glob("user_*.py"))
TIMEOUT_S = 600
"""Without a cache, mypy reads the whole package."""


def mypy(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run mypy with the project's settings, which are strict, and its cache."""
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.timeout(TIMEOUT_S)
def test_user_code_is_accepted() -> None:
    """Every stated type is inferred, and every marked line is an error."""
    done = mypy(*(f"tests/typing/{name}.py" for name in USER_CODE))
    assert done.stdout.startswith("Success: "), done.stdout + done.stderr


@pytest.mark.timeout(TIMEOUT_S)
def test_wrong_types_are_detected() -> None:
    """The check reports a wrong type, an unused mark, and an import of a name that is not public.

    The last one is `attr-defined`: the lazy loader is hidden from type checkers.
    """
    code = (
        "from typing import assert_type\n"
        "from penstock import Pipeline, nonsense\n"
        "assert_type(Pipeline('a').name, int)\n"
        "Pipeline('a')  # type: ignore[call-arg]\n"
    )
    done = mypy("--command", code)
    assert [line.rpartition("[")[2] for line in done.stdout.splitlines() if ": error:" in line] == [
        "attr-defined]",
        "assert-type]",
        "unused-ignore]",
    ], done.stdout + done.stderr


@pytest.mark.parametrize("name", USER_CODE)
def test_user_code_runs(name: str) -> None:
    """The declarations in the user code also work."""
    assert importlib.import_module(f"tests.typing.{name}").__doc__
