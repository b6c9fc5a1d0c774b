"""The child side of a process run: executes one run at a time, received over a pipe.

    parent to child   ("run", Job) · ("stop", signal) · ("reply", value or error)
    child to parent   ("progress", Progress) · ("log", entries) · ("state", text)
                      ("ask", (method of the run's port, arguments)) · ("done", Outcome)

The main thread executes; a second thread receives messages, delivers signals and sends progress.
When the parent exits, the pipe closes and the child exits immediately, because its result would be
lost.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, Final, NamedTuple

from penstock.access.secrets import Secrets
from penstock.core.clock import SystemClock
from penstock.core.current_run import CURRENT_RUN
from penstock.entities.changed import ChangedEntities
from penstock.pipelines.declare.processor import Processor
from penstock.runs.rows import HeldRun
from penstock.worker.context import LoadedProcessor, RunContext, Signal
from penstock.worker.execution.call import load_function
from penstock.worker.execution.run_log import capture_records
from penstock.worker.execution.run_port import ChildPort
from penstock.worker.outcome import AttemptOutcome, outcome_of_error, outcome_of_value

PROGRESS_SECONDS: Final = 0.5


class ChildJob(NamedTuple):
    """A run as sent to a child; the processor is sent without its function."""

    reference: str
    held: HeldRun
    processor: Processor
    defaults: dict[str, Any]
    secrets: Secrets
    changed: ChangedEntities | None = None


def main(connection: Connection) -> None:
    """Serve runs until the pipe closes; the entry point of the child process."""
    # The parent decides when its children stop: Ctrl-C reaches its process group only, and a
    # supervisor that sends SIGTERM to all processes of a service ends none of them.
    os.setpgid(0, 0)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _outlive(os.getpid()))
    capture_records()
    _Child(connection).serve()


def _outlive(process_id: int) -> Callable[[int, FrameType | None], None]:
    """Return a handler that ignores the signal in this process alone.

    Programs that the processor starts would inherit SIG_IGN: `terminate()` would not end them.
    """

    def handle(number: int, _: FrameType | None) -> None:
        if os.getpid() != process_id:  # forked by the processor
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    return handle


class _Child:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._jobs: queue.SimpleQueue[tuple[str, RunContext]] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[tuple[Exception | None, Any]] = queue.SimpleQueue()
        self._context: RunContext | None = None
        self._clock = SystemClock()

    def serve(self) -> None:
        threading.Thread(target=self._receive, name="penstock-child", daemon=True).start()
        while True:
            reference, context = self._jobs.get()
            outcome = self._execute(reference, context)
            self._context = None
            self._send_entries(context)
            self._send_state(context)
            self._send("done", outcome)

    def _execute(self, reference: str, context: RunContext) -> AttemptOutcome:
        CURRENT_RUN.set(context)
        try:
            return outcome_of_value(context, load_function(reference)(context))
        except BaseException as error:
            return outcome_of_error(error)

    def ask(self, method: str, *arguments: object) -> Any:
        """Call a method of the run's port in the worker; return its result or raise its error."""
        self._send("ask", (method, arguments))
        error, value = self._replies.get()
        if error is not None:
            raise error
        return value

    def _port(self, _held: HeldRun, _phase: str) -> ChildPort:
        return ChildPort(self.ask)

    def _accept(self, job: ChildJob) -> None:
        # Built by the receiving thread: a signal that follows the run must find its context.
        known = LoadedProcessor(job.held.processor_key, job.processor, job.defaults, job.secrets)
        context = RunContext(job.held, known, self._clock, self._clock.monotonic())
        context.make_port = self._port
        context.changed_input = job.changed
        self._context = context
        self._jobs.put((job.reference, self._context))

    def _receive(self) -> None:
        try:
            while True:
                if not self._connection.poll(PROGRESS_SECONDS if self._context else None):
                    self._send_progress()
                    continue
                kind, value = self._connection.recv()
                if kind == "run":
                    self._accept(value)
                elif kind == "reply":
                    self._replies.put(value)
                elif self._context is not None:
                    self._context.send_signal(Signal(value), self._clock.monotonic())
        except (EOFError, OSError):
            os._exit(0 if self._context is None else 1)

    def _send_progress(self) -> None:
        context = self._context
        if context is None:
            return
        progress = context.take_progress()
        if progress is not None:
            self._send("progress", progress)
        self._send_entries(context)
        self._send_state(context)

    def _send_entries(self, context: RunContext) -> None:
        if context.has_entries and (entries := context.kept_log.drain()):
            self._send("log", entries)

    def _send_state(self, context: RunContext) -> None:
        if (state := context.take_state()) is not None:
            self._send("state", state)

    def _send(self, kind: str, value: object) -> None:
        with self._sending:
            self._connection.send((kind, value))
