"""Every parser of foreign input: what it takes, examples to start from, and how it may refuse.

A parser either returns or raises one of its declared errors, within `SECONDS_MAX`; any other
exception would be a 500, a crashed process or a poisoned loop. Examples are valid input: mutations
of them reach further into a parser than random text does.

`wire` has what peers send: requests, messages, responses, rows. `typed` has what a person types:
the command line, files, addresses. `declared` has values: settings, declarations, bodies.
`inventory` finds the functions of the product that must be in one of them.
"""

from __future__ import annotations

from typing import Final

from tests.prove.parsers.declared import DECLARED
from tests.prove.parsers.parser import Parser
from tests.prove.parsers.typed import TYPED
from tests.prove.parsers.wire import WIRE

__all__ = ["PARSERS", "SECONDS_MAX", "Parser"]

SECONDS_MAX: Final = 2.0
PARSERS: Final[dict[str, Parser]] = {**WIRE, **TYPED, **DECLARED}
