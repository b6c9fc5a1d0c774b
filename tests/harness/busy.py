"""`make test-busy`: run a command on a machine that is busy, with the default ports taken.

Eight processes compute without a pause, and two sockets listen on 8080 and 5432, so that a test
with a time limit that is too tight, or with a port of its own, fails. Prints a JSON line for each
repetition; stops at the first that fails.

    python -m tests.harness.busy --times 2 -- make test
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from penstock.core.clock import SystemClock

PORTS: Final = (8080, 5432)
PROCESSES: Final = 8
SPIN: Final = "while True:\n    sum(range(10_000))"


@contextlib.contextmanager
def ports_taken(ports: Sequence[int] = PORTS) -> Iterator[list[int]]:
    """Listen on ports; yield those that are taken, by this process or by another one."""
    with contextlib.ExitStack() as opened:
        for port in ports:
            one = opened.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
                one.listen()
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        yield [port for port in ports if is_taken(port)]


def is_taken(port: int) -> bool:
    """Whether a server listens on the port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def busy(processes: int = PROCESSES) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Keep processes that compute; they end with this one."""
    # In the session of the command: Linux gives each session, not each process, an equal share.
    running = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(processes)]
    try:
        yield running
    finally:
        for one in running:
            one.kill()
            one.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command as often as asked; return the exit code of the first that fails, or 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=1, help="repetitions; default: 1")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="default: 8")
    parser.add_argument("command", nargs="+", help="the command, after --")
    given = parser.parse_args(arguments)
    clock = SystemClock()
    with ports_taken() as ports, busy(given.processes):
        for number in range(given.times):
            began = clock.monotonic()
            code = subprocess.run(given.command, check=False).returncode
            found = {
                "time": number + 1, "exit": code, "seconds": round(clock.monotonic() - began),
                "busy_processes": given.processes, "ports_taken": ports,
                "load": round(os.getloadavg()[0], 1),
            }  # fmt: skip
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()
            if code:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
