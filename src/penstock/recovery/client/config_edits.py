"""Changes to configs by filter, each checked and audited like a single change.

Functions over a transaction; a dry run makes the same checks and changes nothing.
"""

from __future__ import annotations

from penstock.access.store.names import NameResolver
from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.ids import encode
from penstock.db.in_transaction import InTransaction
from penstock.db.store import Transactions, Tx
from penstock.recovery.blast_radius import blast_radius, listed_effect
from penstock.recovery.records import (
    BlastRadius,
    ConfigEdit,
    ConfigEditStep,
    EditedConfig,
    RefusedEdit,
)
from penstock.recovery.store.matching import (
    ConfigFilterRow,
    configs_matching,
    configs_matching_count,
)
from penstock.schedules.client.config_reads import config_number
from penstock.schedules.client.configs import Configs, changed_draft
from penstock.schedules.description import describe, describe_draft
from penstock.schedules.store.configs import config_get, config_lock


def config_edit(
    tx: Tx, store: Transactions, names: NameResolver, request: ConfigEdit, actor: str
) -> ConfigEditStep:
    """Change the next configs that match."""
    given = (request.customer, request.pipeline, request.cron, request.is_active)
    if all(value is None for value in given):
        expected = "at least one of customer, pipeline, current cron and active"
        raise InvalidInput("customer", expected, None, "Changing all configs is not supported.")
    info = None if request.pipeline is None else names.pipeline(request.pipeline, "pipeline", tx)
    wanted = ConfigFilterRow(
        names.customer_key(tx, request.customer),
        None if info is None else info.pipeline_key,
        None if request.cron is None else " ".join(request.cron.split()),
        request.is_active,
    )
    matched = configs_matching_count(tx, wanted)
    after = 0 if request.after is None else config_number(request.after)
    ids = configs_matching(tx, wanted, after, request.limit)
    inside = Configs(InTransaction(store, tx), names, actor)
    changed: list[EditedConfig] = []
    refused: list[RefusedEdit] = []
    for number in ids:
        name = encode("cfg", number)
        if not request.is_dry_run:
            config_lock(tx, number)
        old = config_get(tx, number)
        assert old is not None
        try:
            draft = changed_draft(tx, names, old, request.change)
        except PenstockError as error:
            refused.append(RefusedEdit(config_id=name, why=error.message))
            continue
        before, now = describe(old), describe_draft(draft)
        fields = sorted(key for key in now if before.get(key) != now[key])
        if not fields:
            continue
        if not request.is_dry_run:
            inside.update(name, request.change, reason=request.reason or "changed by filter")
        changed.append(
            EditedConfig(
                config_id=name,
                customer=old.customer_id,
                pipeline=old.pipeline,
                before={key: before[key] for key in fields},
                after={key: now[key] for key in fields},
            )
        )
    return ConfigEditStep(
        is_dry_run=request.is_dry_run,
        impact=_impact(changed, refused, matched, len(ids)),
        matched=matched,
        changed=changed,
        unchanged=len(ids) - len(changed) - len(refused),
        refused=refused,
        next_after=encode("cfg", ids[-1]) if len(ids) == request.limit else None,
    )


def _impact(
    changed: list[EditedConfig], refused: list[RefusedEdit], matched: int, seen: int
) -> BlastRadius:
    fields = sorted({key for one in changed for key in one.after})
    text = (
        f"{len(changed)} of {seen} configs change ({', '.join(fields) or 'nothing'}), "
        f"{len(refused)} are refused; {matched} match."
    )
    effects = [
        *listed_effect(
            "changes",
            f"{len(changed)} configs change: {', '.join(fields)}.",
            [one.config_id for one in changed],
        ),
        *listed_effect(
            "refuses",
            f"{len(refused)} configs cannot be changed this way.",
            [one.config_id for one in refused],
        ),
        *listed_effect(
            "undo",
            "Every change is in the audit trail with its old values.",
            [],
            count=len(changed),
        ),
    ]
    return blast_radius(text, "penstock configs edit", effects)
