"""The machine that `make test-busy` makes busy: ports are taken, processes compute and end."""

from __future__ import annotations

import json
import socket
import sys
from contextlib import closing

import pytest

from penstock.testing.postgres.process import port_free
from tests.harness import busy


def test_ports() -> None:
    """A port is taken while the block lasts, also if another program had taken it."""
    port = port_free()
    with busy.ports_taken([port]) as mine:
        assert mine == [port]
        with busy.ports_taken([port]) as others:
            assert others == [port]
        with closing(socket.socket()) as late, pytest.raises(OSError, match="in use"):
            late.bind(("127.0.0.1", port))
    assert not busy.is_taken(port)


def test_processes() -> None:
    """They compute until the block ends, and none is left."""
    with busy.busy(2) as running:
        assert [one.poll() for one in running] == [None, None]
    assert all(one.returncode for one in running)


@pytest.mark.parametrize(("code", "times"), [(0, 2), (3, 1)])
def test_command(code: int, times: int, capfd: pytest.CaptureFixture[str]) -> None:
    """It is repeated until it fails, and its exit code is returned."""
    command = ["--times", "2", "--processes", "0", "--", sys.executable, "-c", f"exit({code})"]
    assert busy.main(command) == code
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(one["time"], one["exit"]) for one in lines] == [(n + 1, code) for n in range(times)]
