"""Calling a processor where it is asked for: in the thread that calls.

The thread lane and the simulation use `call_inline`; child processes have their own end of it in
`child`. Whatever a processor does, the answer is an Outcome: nothing a user's function raises, not
even SystemExit, may end a worker's thread.
"""

from __future__ import annotations

import asyncio
import importlib

from penstock.core.current_run import PRESENT
from penstock.core.errors import DeclarationError
from penstock.pipelines.declare.collect import each
from penstock.pipelines.declare.processor import Body, Processor
from penstock.worker.context import RunContext
from penstock.worker.outcome import Outcome, outcome_of_error, outcome_of_value


def call_inline(context: RunContext) -> Outcome:
    """Run a processor to its end in this thread (an async one on a loop of its own).

    One that collects gets this run alone.
    """
    body = context.declared.body
    assert body is not None, context.declared.path
    is_collecting = context.declared.terms.collect is not None
    present = PRESENT.set(context)
    try:
        value = body([context] if is_collecting else context)
        if context.declared.runs == "async":
            value = asyncio.run(value)
        if is_collecting:
            (value,) = each(value, 1)
            if isinstance(value, BaseException):
                return outcome_of_error(value)
    except BaseException as error:
        return outcome_of_error(error)
    finally:
        PRESENT.reset(present)
    return outcome_of_value(context, value)


def body_of(reference: str) -> Body:
    """The function behind `module:qualname`; what goes wrong is the import system's own error."""
    module, _, qualname = reference.partition(":")
    found: object = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    assert callable(found), reference
    return found


def check_importable(processor: Processor) -> None:
    """Raise DeclarationError unless a child process can find the processor's function."""
    if processor.runs != "process":
        return
    reference = processor.reference
    fix = "Move the function to the top level of a module that can be imported."
    module, _, qualname = reference.partition(":")
    if module == "__main__" or "<" in qualname:
        raise DeclarationError(
            f"processor {processor.path} runs in a process of its own, which cannot import "
            f"{reference}. {fix}"
        )
    try:
        found = body_of(reference)
    except (ImportError, AttributeError) as error:
        raise DeclarationError(
            f"processor {processor.path} runs in a process of its own, which cannot import "
            f"{reference}: {error}. {fix}"
        ) from None
    if found is not processor.body:
        raise DeclarationError(
            f"processor {processor.path} runs in a process of its own, and {reference} is "
            f"something else there (replaced by another decorator?). {fix}"
        )
