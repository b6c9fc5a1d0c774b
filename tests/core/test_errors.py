"""Errors: messages, codes, statuses and pickling."""

from __future__ import annotations

import pickle

import pytest

from penstock.core import errors
from penstock.core.errors import InvalidInput, PenstockError

SAMPLES: list[PenstockError] = [
    PenstockError(),
    InvalidInput("retry_config.max_attempts", "a number from 1 to 100", 0, "Use 3."),
    errors.SettingsError("PENSTOCK_POOL", "a number", "many"),
    errors.DeclarationError("phase raw comes after itself"),
    errors.NotFound("run", "run_x"),
    errors.Conflict(),
    errors.IllegalTransition("run", 7, "COMPLETED", "RUNNING"),
    errors.StaleVersion("config", 7, 3, 4),
    errors.StaleToken(7),
    errors.NotHolder(7),
    errors.DuplicateRequest(),
    errors.StoreUnavailable(ambiguous=True),
    errors.StoreBusy(),
    errors.SchemaMismatch(),
    errors.RunCancelled(),
    errors.RunTimedOut(),
    errors.LeaseLost(),
    errors.LimitTimeout(),
    errors.PermanentError("no", error_type="BAD_CREDENTIALS"),
    errors.TransientError(retry_after_seconds=3.0),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_every_error_has_a_message_and_can_be_pickled(
    error: PenstockError,
) -> None:
    """An error has a message and survives pickling with its attributes."""
    assert error.message == str(error) != ""
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert copy.args == error.args
    assert copy.__dict__ == error.__dict__


def test_codes_are_unique_and_statuses_are_http() -> None:
    """A code identifies one class, so that clients can rely on it."""
    classes = {type(error) for error in SAMPLES}
    assert len({cls.code for cls in classes}) == len(classes)
    assert all(400 <= cls.http_status <= 599 and 1 <= cls.exit_code <= 125 for cls in classes)


@pytest.mark.parametrize(
    ("error", "status", "retryable"),
    [
        (errors.NotFound("run", 1), 404, False),
        (errors.StaleToken(1), 409, False),
        (errors.DuplicateRequest(), 422, False),
        (errors.StoreUnavailable(), 503, True),
        (errors.StoreBusy(), 503, True),
    ],
)
def test_statuses(error: PenstockError, status: int, retryable: bool) -> None:
    """The HTTP status and the retry hint are those documented by the API."""
    assert (error.http_status, error.retryable) == (status, retryable)


def test_invalid_input_names_field_expected_got_and_fix() -> None:
    """All four parts are in the message and in the detail."""
    error = InvalidInput("priority", "a number from 1 to 10", "high", "Use 5.")
    for part in ("priority", "a number from 1 to 10", "'high'", "Use 5."):
        assert part in error.message
    assert error.detail == {
        "field": "priority",
        "expected": "a number from 1 to 10",
        "got": "'high'",
        "fix": "Use 5.",
    }


class _BrokenRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "value",
    ["x" * 10**6, 10**5000, [0] * 10**5, _BrokenRepr(), "\ud800", b"\xff"],
    ids=["long", "huge", "list", "broken repr", "surrogate", "bytes"],
)
def test_rejected_values_are_shortened(value: object) -> None:
    """Large or hostile values are shortened, and printing them cannot fail."""
    assert len(InvalidInput("f", "e", value).message) < 250
    str(InvalidInput("f", "e", value)).encode()


def test_schema_mismatch_names_the_fix() -> None:
    """The error names the command that fixes it."""
    assert "penstock db migrate" in errors.SchemaMismatch().message
