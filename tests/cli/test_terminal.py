"""What users and clients send cannot control the terminal or forge lines of output."""

import io
import json

import pytest

from penstock.audit.telemetry import Served
from penstock.cli.logging import EventLog
from penstock.cli.output import escape_control, print_facts
from penstock.cli.terminal import TerminalStream
from tests.kits.shell import Shell

ODD = "\x7f\x80\x9b31m\x85\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069"
FORGED = "no\n  state   COMPLETED\r\n10:00:00Z  all is well"


@pytest.mark.parametrize("character", [*"\x00\x07\x08\x1b\r\n", *ODD.replace("31m", "")])
def test_escaped(character: str) -> None:
    """Text from users is one line of printable characters and tabs."""
    shown = escape_control(f"a{character}b\tc")
    assert shown.replace("\t", "").isprintable()
    assert shown.startswith("a\\")
    assert shown.endswith("b\tc")


def test_facts_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    """A value with line breaks does not look like further facts."""
    print_facts([("error", FORGED), ("state", "FAILED")])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert [line.split()[0] for line in lines] == ["error", "state"]


def test_one_record_one_line() -> None:
    """A path with a line break is logged as one line."""
    lines: list[str] = []
    log = EventLog(lines.append, as_json=False, level="debug")
    log(
        Served(
            request_id="r", method="GET", path=f"/x{FORGED}{ODD}", status=404, seconds=0.1,
            key=None, customer_id=None,
        )
    )  # fmt: skip
    (line,) = lines
    assert line.isprintable()
    assert "/xno\\n  state" in line


def test_streams() -> None:
    """No command prints these characters, even by way of a plain echo; JSON stays valid."""
    out = io.StringIO()
    stream = TerminalStream(out)
    assert stream.write(f"plain \x1b[31mred\x1b[0m é 漢\n{ODD}") == len(
        f"plain \x1b[31mred\x1b[0m é 漢\n{ODD}"
    )
    assert out.getvalue().startswith("plain \x1b[31mred\x1b[0m é 漢\n\\u007f\\u0080\\u009b31m")
    assert not set(ODD) - set("31m") & set(out.getvalue())
    out.seek(0)
    out.truncate()
    stream.write(json.dumps({"x": ODD}, ensure_ascii=False))
    assert json.loads(out.getvalue()) == {"x": ODD}
    with pytest.raises(TypeError):
        stream.write(b"")  # type: ignore[arg-type]


def test_commands(shell: Shell) -> None:
    """The output of a command has none of them, also when it fails."""
    shell.ok("topics", "create", "odd")
    for result in (
        shell("topics", "show", f"odd{ODD}"),
        shell("runs", "show", f"run_{ODD}"),
        shell("explain", f"pipe{ODD}", "2025-01-01"),
        shell("topics", "show", f"odd{ODD}", "--json"),
    ):
        assert not set(ODD) - set("31m") & set(result.out + result.err)
