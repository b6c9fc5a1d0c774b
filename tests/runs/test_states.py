"""The state machine of runs: the transitions of the specification, and its documentation."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from penstock.core.errors import IllegalTransition
from penstock.runs import states
from penstock.runs.states import RunState, RunStatus
from tests.kits.run_states import final_state, path_is_legal, status_fits

P, C, R = RunState.PENDING, RunState.CLAIMED, RunState.RUNNING
DONE, FAILED, TIMEOUT = RunState.COMPLETED, RunState.FAILED, RunState.TIMEOUT
CANCELLED, EXPIRED = RunState.CANCELLED, RunState.EXPIRED
LEGAL = {
    (P, C), (P, CANCELLED), (P, EXPIRED),
    (C, R), (C, P), (C, FAILED), (C, CANCELLED),
    (R, DONE), (R, FAILED), (R, TIMEOUT), (R, P), (R, CANCELLED),
}  # fmt: skip


@pytest.mark.parametrize(("source", "target"), list(product(RunState, RunState)))
def test_check_allows_exactly_the_specified_transitions(source: RunState, target: RunState) -> None:
    """Of all 64 pairs twelve are legal; the others raise an error that names both states."""
    if (source, target) in LEGAL:
        states.check(source, target, "run_x")
        assert path_is_legal([source, target])
    else:
        with pytest.raises(IllegalTransition, match=f"run_x is {source} and cannot become"):
            states.check(source, target, "run_x")
        assert not path_is_legal([source, target])


def test_terminal_states() -> None:
    """Five states are final; all others have transitions."""
    assert {DONE, FAILED, TIMEOUT, CANCELLED, EXPIRED} == states.TERMINAL
    assert {P, C, R} == states.LIVE


@pytest.mark.parametrize(
    ("path", "legal"),
    [
        ([C, R, DONE], True),
        ([P, C, R, FAILED], True),
        ([P, C, P, C, R, P, C, R, TIMEOUT], True),
        ([P], True),
        ([], True),
        ([P, R], False),
        ([C, R, DONE, P], False),
        ([C, DONE], False),
    ],
)
def test_paths(path: list[RunState], legal: bool) -> None:
    """A path may include the claim and the start, but must not skip a transition."""
    assert path_is_legal(path) is legal


def test_statuses_fit_states() -> None:
    """A status belongs to one final state; cancelled, expired and live runs have none."""
    fitting = {(s, t) for s in RunState for t in RunStatus if status_fits(s, t)}
    assert fitting == {
        (DONE, RunStatus.SUCCESS),
        (DONE, RunStatus.PARTIAL_SUCCESS),
        (FAILED, RunStatus.FAILURE),
        (TIMEOUT, RunStatus.TIMEOUT),
    }
    assert {s for s in RunState if status_fits(s, None)} == {P, C, R, CANCELLED, EXPIRED}
    assert all(status_fits(final_state(t), t) for t in RunStatus)


def test_the_documentation_is_up_to_date() -> None:
    """docs/state_machine.md equals the output of `render_documentation`."""
    page = Path(__file__).parents[2] / "docs" / "state_machine.md"
    assert page.read_text(encoding="utf-8") == states.render_documentation()
