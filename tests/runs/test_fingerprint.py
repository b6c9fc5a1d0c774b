"""Fingerprints of errors: one for texts that differ only in what varies from run to run."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runs.fingerprint import TEXT_CHARS, error_text, fingerprint


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("row 17 has no team", "row 4,711 has no team"),
        ("run_7h2kq0v3 lost its lease", "run_9m4tt0aa lost its lease"),
        ("column 'points' is null", "column 'minutes' is null"),
        (
            "6f9619ff-8b86-d011-b42d-00c04fc964ff is gone",
            "00000000-8b86-d011-b42d-00c04fc964fe is gone",
        ),
        ("read 0xdeadbeef", "read 0x00000001"),
        ("after 12:30:05.5", "after 01:02"),
    ],
)
def test_what_varies_is_masked(one: str, other: str) -> None:
    assert fingerprint("E", one) == fingerprint("E", other)
    assert fingerprint("E", one) != fingerprint("F", one)


def test_another_text_is_another_cause() -> None:
    assert fingerprint("E", "the table is missing") != fingerprint("E", "the column is missing")


def test_text_of_details() -> None:
    assert error_text(None) == ""
    assert error_text('{"message": "a \\"b\\" c\\nd", "traceback": "x"}') == 'a "b" c d'
    assert error_text('{"message": "cut off her') == "cut off her"
    assert error_text('{"code": 7}') == '{"code": 7}'


@given(st.text(max_size=400))
def test_it_never_fails_and_is_bounded(text: str) -> None:
    details = json.dumps({"message": text})[:TEXT_CHARS]
    assert len(error_text(details)) <= TEXT_CHARS
    assert len(fingerprint("E", error_text(details))) == 12
