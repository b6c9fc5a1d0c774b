"""Records of the verification and of the seals of the journal."""

from __future__ import annotations

from penstock.core.records.record import Record, Time


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
    """Something that cannot have happened unless a row was changed or the engine failed."""

    kind: str
    """Kind of problem, such as `run_lost`."""
    subject: str
    """What it is about: the id of a run or flow, or a block."""
    text: str
    """What is wrong."""


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
    """Number of ends of runs that were compared with history."""
    flows: int
    """Number of flows whose state was compared with the journal."""
    problems: list[VerificationProblem]
    """The first problems, in the order in which they were found."""
    problem_count: int
    """Number of problems."""
