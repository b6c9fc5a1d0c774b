"""Records of the verification, from its findings."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.audit.rows import Seal
from penstock.core.records.record import time
from penstock.monitoring.verify.accounts import Mismatch
from penstock.monitoring.verify.client import VerifyFindings
from penstock.monitoring.verify.records import (
    HeadComparison,
    SealedBlock,
    Verification,
    VerificationProblem,
)


def verification_record(found: VerifyFindings) -> Verification:
    """Convert the findings of a verification to the public record."""
    return Verification(
        is_intact=not found.problem_count,
        blocks=found.blocks,
        entries=found.account.entries,
        unsealed=found.unsealed,
        audit_entries=found.audit_entries,
        runs=found.runs,
        flows=found.flows,
        problems=[
            VerificationProblem(kind=one.kind, subject=one.subject, text=one.text)
            for one in found.problems
        ],
        problem_count=found.problem_count,
    )


def comparison_record(heads: int, problems: Sequence[Mismatch]) -> HeadComparison:
    """Return the record of a comparison of published heads."""
    return HeadComparison(
        is_intact=not problems,
        heads=heads,
        problems=[
            VerificationProblem(kind=one.kind, subject=one.subject, text=one.text)
            for one in problems
        ],
    )


def seal_record(seal: Seal) -> SealedBlock:
    """Return the record of a sealed block."""
    return SealedBlock(
        block=seal.block, entries=seal.entries, head=seal.head, sealed_at=time(seal.sealed_at)
    )
