"""Calling a processor in the current thread.

The thread executor and the simulation use `call_inline`; child processes have their own version in
`child`. The result is always an Outcome: no exception from a user's function, not even SystemExit,
may end a worker's thread.
"""

from __future__ import annotations

import asyncio
import importlib

from penstock.core.current_run import CURRENT_RUN
from penstock.core.errors import DeclarationError
from penstock.pipelines.declare.collect import item_outcomes
from penstock.pipelines.declare.processor import Processor, ProcessorFunction
from penstock.worker.context import RunContext
from penstock.worker.outcome import AttemptOutcome, outcome_of_error, outcome_of_value


def call_inline(context: RunContext) -> AttemptOutcome:
    """Run a processor to completion in this thread (an async one on its own event loop).

    A collecting processor receives this run alone.
    """
    body = context.declared.body
    assert body is not None, context.declared.path
    is_collecting = context.declared.terms.collect is not None
    present = CURRENT_RUN.set(context)
    try:
        value = body([context] if is_collecting else context)
        if context.declared.runs == "async":
            value = asyncio.run(value)
        if is_collecting:
            (value,) = item_outcomes(value, 1)
            if isinstance(value, BaseException):
                return outcome_of_error(value)
    except BaseException as error:
        return outcome_of_error(error)
    finally:
        CURRENT_RUN.reset(present)
    return outcome_of_value(context, value)


def load_function(reference: str) -> ProcessorFunction:
    """Return the function named by `module:qualname`; import errors are raised unchanged."""
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
            f"processor {processor.path} runs in a separate process, which cannot import "
            f"{reference}. {fix}"
        )
    try:
        found = load_function(reference)
    except (ImportError, AttributeError) as error:
        raise DeclarationError(
            f"processor {processor.path} runs in a separate process, which cannot import "
            f"{reference}: {error}. {fix}"
        ) from None
    if found is not processor.body:
        raise DeclarationError(
            f"processor {processor.path} runs in a separate process, where {reference} is a "
            f"different object (replaced by another decorator?). {fix}"
        )
