"""Child processes for CPU-bound processors: a small pool, one run at a time per child.

Children are spawned (never forked: the worker has threads), started when first needed and reused. A
child is killed when its run exceeds its time limit, or ignores a signal for longer than the grace
period; it may also exit on its own (crash, out of memory). Either way the run ends with a clear
outcome and the next run gets a new child. An exit that was not requested is reported as
PROCESS_DIED.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import threading
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from penstock.core.errors import PenstockError
from penstock.worker.context import RunContext, Signal
from penstock.worker.execution import child
from penstock.worker.outcome import AttemptOutcome, outcome_of_death, outcome_of_error


class ChildPool:
    """Pool of child processes that call processors; thread-safe."""

    def __init__(self) -> None:
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        # Runs before the hook of multiprocessing, which would wait for children: they ignore the
        # SIGTERM that it sends.
        atexit.register(self.close)

    def call(self, context: RunContext) -> AttemptOutcome:
        """Execute a run in a child and wait for its outcome."""
        try:
            made = self._take()
        except Exception as error:  # out of memory or of processes
            return outcome_of_error(error)
        try:
            outcome = made.call(context)
        finally:
            self._give(made)
        return outcome

    def close(self) -> None:
        """Kill every child; idempotent."""
        with self._lock:
            self._is_closed = True
            children, self._all, self._idle = list(self._all), set(), []
        atexit.unregister(self.close)
        for one in children:
            one.end()

    def _take(self) -> _Child:
        with self._lock:
            while self._idle:
                found = self._idle.pop()
                if found.is_alive:
                    return found
                self._all.discard(found)
                found.end()
        made = _Child()
        with self._lock:
            self._all.add(made)
        return made

    def _give(self, used: _Child) -> None:
        with self._lock:
            if used.is_alive and not self._is_closed:
                self._idle.append(used)
                return
            self._all.discard(used)
        used.end()


class _Child:
    """One child process and the worker's end of its pipe."""

    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._connection: Connection
        self._connection, child_end = spawn.Pipe()
        self._sending = threading.Lock()
        self._is_killed = False
        self._process: SpawnProcess = spawn.Process(
            target=child.main, args=(child_end,), name="penstock-child", daemon=True
        )
        try:
            self._process.start()
        except BaseException:
            self._connection.close()
            raise
        finally:
            child_end.close()

    @property
    def is_alive(self) -> bool:
        """Whether the child can take another run."""
        return not self._is_killed and self._process.is_alive()

    def call(self, context: RunContext) -> AttemptOutcome:
        """Execute one run; return an outcome even if the process dies."""
        declared = context.declared
        job = child.ChildJob(
            declared.reference, context.held, replace(declared, body=None),
            dict(context.loaded.defaults), context.loaded.secrets, context.changed_input,
        )  # fmt: skip
        context.interrupt = self._forward
        try:
            self._send("run", job)
            if context.signal is not None:
                self._forward(context.signal)
            return self._receive(context)
        except (EOFError, OSError):
            self._process.join(5.0)
            death = outcome_of_death(self._process.exitcode)
            return death._replace(is_interrupted=context.signal is not None)
        finally:
            context.interrupt = None

    def end(self) -> None:
        """Kill the process and free its resources; idempotent."""
        self._is_killed = True
        with contextlib.suppress(ValueError):  # already closed
            self._process.kill()
            self._process.join(5.0)
            self._process.close()
        self._connection.close()

    def _receive(self, context: RunContext) -> AttemptOutcome:
        while True:
            ready = wait([self._connection, self._process.sentinel])
            if self._connection not in ready:
                raise EOFError
            kind, value = self._connection.recv()
            if kind == "done":
                assert isinstance(value, AttemptOutcome)
                return value
            if kind == "log":
                context.kept_log.extend(value)
            elif kind == "ask":
                self._send("reply", _reply(context, *value))
            elif kind == "state":
                context.set_state(value)
            else:
                context.set_progress(value)

    def _forward(self, signal: Signal) -> None:
        """Forward a signal; TIMEOUT and KILL kill the process."""
        if signal in (Signal.TIMEOUT, Signal.KILL):
            self._is_killed = True
            with contextlib.suppress(ValueError):
                self._process.kill()
            return
        with contextlib.suppress(OSError):
            self._send("stop", signal.value)

    def _send(self, kind: str, value: object) -> None:
        with self._sending:
            self._connection.send((kind, value))


def _reply(
    context: RunContext, method: str, arguments: tuple[Any, ...]
) -> tuple[Exception | None, Any]:
    """Call a method of the run's port for its child process; return the error and the result."""
    try:
        return None, getattr(context.port, method)(*arguments)
    except Exception as error:
        # Other exceptions may not be picklable.
        known = isinstance(error, PenstockError)
        return error if known else PenstockError(f"{type(error).__name__}: {error}"), None
