"""Processors that child processes can import, for the worker's tests."""

import logging
import os
import signal
import subprocess
import sys
import threading
from typing import Any

from penstock.core.errors import InvalidInput, PermanentError
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.worker.context import RunContext

pipeline = Pipeline("children", parameters={"properties": {"do": {"default": "pid"}}})


@pipeline.processor(runs="process", timeout="30s")
def body(run: RunContext) -> dict[str, Any] | None:
    """Behave as the parameter `do` says."""
    what = run.parameters["do"]
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "terminate":  # a supervisor that signals every process of a service
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    if what == "descendants":
        sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
        with subprocess.Popen(sleep) as program, subprocess.Popen(sleep) as other:
            program.terminate()
            other.send_signal(signal.SIGINT)
        readable, writable = os.pipe()
        if (forked := os.fork()) == 0:
            os.write(writable, b"!")  # Python drops signals that arrive during the fork
            while True:
                threading.Event().wait(0.01)
        os.read(readable, 1)
        os.kill(forked, signal.SIGTERM)
        ended = os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1])
        codes = [program.returncode, other.returncode]
        return {"programs": codes, "forked": ended, "leads": os.getpgrp() == os.getpid()}
    if what == "exit":
        os._exit(3)
    if what == "log":
        run.log.info("in a child")
        logging.getLogger(__name__).warning("by its own logger")
    if what == "act":
        run.publish("events", {"page": run.state.get("page", 0)})
        run.artifact("made", "gs://made", size=1)
        run.state["page"] = run.state.get("page", 0) + 1
        try:
            run.submit("unknown")
        except InvalidInput as error:
            run.log.info("refused: %s", error)
        if run.state["page"] == 1:
            raise ConnectionError("once")
    if what == "raise":
        raise PermanentError("no such account")
    if what == "unpicklable":
        return {"value": threading.Lock()}
    if what in ("check", "ignore"):
        run.progress(50, "waiting")
        while True:
            if what == "check":
                run.check()
            threading.Event().wait(0.01)
    run.records += 3
    return {"pid": os.getpid(), "parent": os.getppid(), "run_id": run.run_id}
