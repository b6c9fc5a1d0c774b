"""redis-py's lock on a private Redis, next to Penstock's slots, if both are installed.

A Redis lock admits one holder, so a limit of ten is ten locks here, each with its share of the
contenders, which is easier than one queue for ten slots. Redis syncs every write to disk
(`appendfsync always`), as Penstock does; `redis_memory_p50_ms` is without that.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.result import percentile, print_progress

LOCKS = 10
LEASE_SECONDS = 30
PROCESSES = 2
THREADS = 32


def redis_figures(*, quick: bool) -> dict[str, Any]:
    """Return the figures for Redis, or the reason why there are none."""
    if shutil.which("redis-server") is None:
        return {"redis": "no redis-server is installed"}
    if importlib.util.find_spec("redis") is None:
        return {"redis": "the package redis is not installed"}
    print_progress("redis-py's lock")
    with _server(is_durable=False) as address:
        memory = _alone(address, 200 if quick else 1_000)
    with _server(is_durable=True) as address:
        alone = _alone(address, 200 if quick else 1_000)
        pairs = _contended(address, 3 if quick else 10)
    return {
        "redis_p50_ms": percentile(alone, 0.5),
        "redis_memory_p50_ms": percentile(memory, 0.5),
        "redis_contended_s": pairs,
    }


@contextmanager
def _server(*, is_durable: bool) -> Iterator[str]:
    """Run a server on a socket in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        address = str(Path(folder) / "redis.sock")
        synced = ["--appendonly", "yes", "--appendfsync", "always"] if is_durable else []
        process = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", address, "--dir", folder,
             "--save", "", "--daemonize", "no", *synced],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            _wait(address)
            yield address
        finally:
            process.kill()
            process.wait()


def _wait(address: str) -> None:
    client, until = _client(address), time.perf_counter() + 10
    while True:
        try:
            client.ping()
            return
        except Exception:
            if time.perf_counter() > until:
                raise
            time.sleep(0.02)


def _client(address: str) -> Any:
    return importlib.import_module("redis").Redis(unix_socket_path=address)


def _alone(address: str, count: int) -> list[float]:
    lock = _client(address).lock("alone", timeout=LEASE_SECONDS)
    spent = []
    for number in range(count + 20):
        began = time.perf_counter()
        with lock:
            pass
        if number >= 20:
            spent.append((time.perf_counter() - began) * 1_000)
    return spent


def _contended(address: str, seconds: float) -> float:
    """Return pairs per second of 64 contenders in two processes."""
    command = [sys.executable, "-m", "benchmarks.redis_lock", address, str(seconds)]
    made = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    parts = [json.loads(process.communicate()[0]) for process in made]
    return float(sum(parts)) / seconds


def _contend(address: str, seconds: float) -> int:
    client = _client(address)
    counts = [0] * THREADS
    stop = time.perf_counter() + seconds

    def work(number: int) -> None:
        # A waiter retries after a millisecond, not after the default of 100.
        lock = client.lock(f"bench{number % LOCKS}", timeout=LEASE_SECONDS, sleep=0.001)
        while time.perf_counter() < stop:
            with lock:
                counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


if __name__ == "__main__":
    print(_contend(sys.argv[1], float(sys.argv[2])))
