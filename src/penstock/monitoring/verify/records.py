"""Records of the verification and of the seals of the journal."""

from __future__ import annotations

from typing import Annotated

from penstock.core.records.record import Meta, Record, Time


class SealedBlock(Record):
    """A sealed block of the journal. Its head depends on every entry up to its end."""

    block: int
    """Number of the block."""
    entries: int
    """Number of entries in it."""
    head: str
    """Hash over this block and the head of the block before it."""
    sealed_at: Time
    """When it was sealed."""


class VerificationProblem(Record):
    """An inconsistency that only a changed row or a bug can explain."""

    kind: str
    """Kind of problem, such as `run_lost`."""
    subject: str
    """Subject of the problem: the id of a run or flow, or a block."""
    text: str
    """Description of the problem."""


class PublishedHead(Record):
    """A head that was published outside the database."""

    block: Annotated[int, Meta(ge=1, le=2**62)]
    """Number of the block."""
    head: Annotated[str, Meta(min_length=1, max_length=128)]
    """Head of the block when it was published."""


class HeadComparison(Record):
    """Published heads, compared with those in the database."""

    is_intact: bool
    """Whether every head is unchanged."""
    heads: int
    """Number of heads that were compared."""
    problems: list[VerificationProblem]
    """Every head that has changed or whose block is gone, by block."""


class Verification(Record):
    """Result of checking the journal, the state and the audit chains against each other."""

    is_intact: bool
    """Whether no problem was found."""
    blocks: int
    """Number of sealed blocks; their hashes were recomputed."""
    entries: int
    """Number of journal entries that were checked."""
    unsealed: int
    """Entries that are not sealed yet; their content is not protected by a hash."""
    audit_entries: int
    """Number of entries in the audit chains of all customers."""
    runs: int
    """Number of ended runs that were compared with history."""
    flows: int
    """Number of flows whose state was compared with the journal."""
    problems: list[VerificationProblem]
    """The first problems, in the order in which they were found."""
    problem_count: int
    """Number of problems."""
