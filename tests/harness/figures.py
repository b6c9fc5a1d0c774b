"""Counts that a harness keeps during a test, for the report of `make prove`.

The plugin `tests.prove.pytest_figures` attaches them to the test and adds them up over a suite.
"""

from collections import Counter
from typing import Final

FIGURES: Final[Counter[str]] = Counter()
"""Counts of the present test by name."""
