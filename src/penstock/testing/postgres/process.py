"""Operating-system parts of the PostgreSQL launcher: ports, child processes, the watchdog.

Nothing here is specific to PostgreSQL except that SIGQUIT stops it immediately.
"""

import shutil
import socket
import subprocess
from pathlib import Path

__all__ = ["children_of", "is_port_free", "port_free", "watchdog_start"]

# $1 is the postmaster, $2 the directory to remove ("" for none). `read` returns when the pipe
# closes.
_WATCHDOG = """
read -r _
kill -QUIT "$1" 2>/dev/null
tries=0
while kill -0 "$1" 2>/dev/null && [ "$tries" -lt 50 ]; do tries=$((tries + 1)); sleep 0.1; done
[ -z "$2" ] || rm -rf -- "$2"
"""


def children_of(pid: int) -> list[int]:
    """Return the children of a process where the system supports it (Linux), else none."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]


def port_free() -> int:
    """Return a port of 127.0.0.1 that was free just now; another process may still take it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_port_free(port: int) -> bool:
    """Return whether a server could listen on a port of 127.0.0.1 just now."""
    with socket.socket() as probe:
        # As servers do: a port whose last connections have only just ended is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def watchdog_start(pid: int, folder: Path) -> subprocess.Popen[bytes] | None:
    """Start a shell that stops the server when this process ends for any reason."""
    shell = shutil.which("sh")
    if shell is None:
        return None
    return subprocess.Popen(
        [shell, "-c", _WATCHDOG, "watchdog", str(pid), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
