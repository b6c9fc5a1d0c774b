"""`penstock doctor`: check the installation; each check is OK, WARN or FAIL with a fix.

If the database cannot be opened, the database check fails and the remaining checks are skipped. The
exit code is 1 if any check fails.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from shlex import quote
from typing import TYPE_CHECKING

import click

from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.core.clock import MINUTE, SECOND, SystemClock
from penstock.core.errors import PenstockError, SchemaMismatch, StoreError
from penstock.core.ids import encode
from penstock.monitoring.stalls import live_workers

if TYPE_CHECKING:
    from penstock.assembly.settings import Settings
    from penstock.client import Client

SKEW_US = 5 * SECOND
HUNG_US = 5 * MINUTE
OLD_SNAPSHOT_US = MINUTE
SAFE_STATEMENT = re.compile(r"[\w .,:()'-]*", re.ASCII)
"""A statement that means the same to a shell between double quotes."""
LOW_DISK_BYTES = 500_000_000
NAMED_MAX = 10
"""Maximum number of pipelines that a check names."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The outcome of one check: `says` is the observation, `fix` the suggested remedy."""

    check: str
    verdict: str
    says: str
    fix: str | None = None


@click.command("doctor", cls=Command)
@click.option(
    "--skip-journal", is_flag=True, help="Skip the verification of seals and audit chains."
)
@click.pass_obj
def doctor(app: App, skip_journal: bool) -> None:
    """Check the installation and suggest fixes."""
    findings = list(run_checks(app, verify_journal=not skip_journal))
    failed = [f for f in findings if f.verdict == "FAIL"]
    warned = [f for f in findings if f.verdict == "WARN"]
    record = {"is_healthy": not failed, "checks": [asdict(f) for f in findings]}

    def print_text() -> None:
        for f in findings:
            verdict = click.style(f"{f.verdict:<4}", fg=output.COLOURS[f.verdict])
            click.echo(f"{verdict}  {f.check:<12}  {f.says}")
            if f.fix:
                click.echo(f"{'':<20}→ {f.fix}")
        click.echo(
            f"{len(findings)} checks: {len(findings) - len(failed) - len(warned)} passed, "
            f"{output.plural(len(warned), 'warning')}, {output.plural(len(failed), 'failure')}."
        )

    app.emit(record, print_text)
    if failed:
        raise click.exceptions.Exit(1)


def run_checks(app: App, *, verify_journal: bool = True) -> Iterator[CheckResult]:
    """Run the checks in order; those after `database` need an open database."""
    yield _python()
    settings = app.database_settings()
    yield from _settings(settings)
    try:
        with app.client(settings) as client:
            yield CheckResult("database", "OK", f"schema is current ({_where(settings)})")
            yield from _sqlite(client)
            yield from _pooler(settings)
            yield from _replica(client, settings)
            yield _disk(client)
            yield from _writes(client, settings)
            yield from _snapshots(client)
            yield from _isolation(client)
            yield _clock(client)
            for one in client.views.system().checks:
                yield CheckResult(one.check, one.verdict, one.says, one.fix)
            yield from _hung(client)
            yield _poison(client)
            yield _push(client, settings)
            yield _endpoints(client, settings)
            yield from _warehouses(client, settings)
            yield from _transports(settings)
            if verify_journal:
                yield _journal(client)
    except PenstockError as error:
        fix = "penstock db migrate" if isinstance(error, SchemaMismatch) else None
        yield CheckResult("database", "FAIL", error.message, fix)


def _python() -> CheckResult:
    version = ".".join(str(part) for part in sys.version_info[:3])
    return CheckResult("python", "OK", f"{version} on {sys.platform}")


def _settings(settings: Settings) -> Iterator[CheckResult]:
    # Already loaded at this point; imported here to keep `penstock --help` fast.
    from penstock.assembly.settings.warnings import settings_warnings

    found = settings_warnings(settings)
    for text in found:
        yield CheckResult(
            "settings", "WARN", text, "Change the setting, see docs/reference/settings.md."
        )
    if not found:
        yield CheckResult("settings", "OK", "no conflicting settings")


def _where(settings: Settings) -> str:
    # Imported here because it loads the store.
    from penstock.assembly.database import describe_database

    return describe_database(settings.database_url)


def _sqlite(client: Client) -> Iterator[CheckResult]:
    # Imported here because it loads the store.
    from penstock.assembly.database import sqlite_versions

    versions = sqlite_versions(client.store)
    if versions is None:
        return
    mine, safe = (".".join(str(n) for n in version) for version in versions)
    if versions[0] >= versions[1]:
        yield CheckResult("sqlite", "OK", f"library {mine}")
    else:
        says = f"library {mine} can corrupt a WAL when several processes write (fixed in {safe})"
        yield CheckResult("sqlite", "WARN", says, "pip install pysqlite3, or run a single process.")


def _pooler(settings: Settings) -> Iterator[CheckResult]:
    """Check that a connection pooler in front of PostgreSQL is known to Penstock."""
    # Imported here because it loads the store.
    from penstock.assembly.database import find_pooler

    found, chosen = find_pooler(settings), settings.database_pooler
    if found is None:
        return
    if found == "transaction" and chosen != "transaction":
        says = f"a pooler in transaction mode, but database_pooler is {chosen}: sessions are shared"
        yield CheckResult("pooler", "FAIL", says, "Set PENSTOCK_DATABASE_POOLER=transaction.")
    elif chosen == "transaction" and not settings.database_direct_url:
        says = "transaction mode without a direct URL: work of other processes is found by polling"
        yield CheckResult("pooler", "WARN", says, "Set PENSTOCK_DATABASE_DIRECT_URL.")
    else:
        says = "none" if found == "none" else f"{found} mode, as set"
        yield CheckResult("pooler", "OK", says)


def _replica(client: Client, settings: Settings) -> Iterator[CheckResult]:
    """Check that the read replica is recent enough to be used."""
    # Imported here because it loads the store.
    from penstock.assembly.database import find_replica

    found = find_replica(client.store)
    if found is None:
        return
    lag = "" if found.lag_us is None else f", {output.format_span(found.lag_us)} behind"
    if found.is_used:
        yield CheckResult("replica", "OK", f"used for analytics, history and exports{lag}")
        return
    most = output.format_span(settings.database_read_lag)
    fix = f"Check its server and replication; it is used while its lag is below {most}."
    yield CheckResult("replica", "WARN", f"not used: {found.problem}{lag}", fix)


def _disk(client: Client) -> CheckResult:
    """Check that committed data survives a crash of the machine."""
    # Imported here because it loads the store.
    from penstock.assembly.process import find_durability_warnings

    found = find_durability_warnings(client.store)
    if not found:
        return CheckResult("durability", "OK", "commits wait for the disk")
    says = f"the server runs with {', '.join(f'{name} = off' for name in found)}: "
    says += "a crash may lose committed data"
    fix = f"Set {', '.join(f'{name} = on' for name in found)} in postgresql.conf and reload it."
    return CheckResult("durability", "WARN", says, fix)


def _writes(client: Client, settings: Settings) -> Iterator[CheckResult]:
    """Check that the database accepts writes and, for a file, that its disk has space."""
    # Imported here because it loads the store.
    from penstock.assembly.database import free_disk

    space = free_disk(settings.database_url)
    where = "the disk of the file" if space is not None else "the server's disk"
    try:
        client.views.check_write()
    except StoreError as error:
        fix = f"Free space on {where} (penstock db path), or use a server that accepts writes."
        yield CheckResult("writes", "FAIL", f"refused: {error.message}", fix)
        return
    if space is not None and space[0] < max(LOW_DISK_BYTES, space[1] // 50):
        says = f"accepted, but {where} has only {space[0] / 1e9:.1f} GB left"
        yield CheckResult("writes", "WARN", says, "Free space there; `penstock db path` shows it.")
    else:
        yield CheckResult("writes", "OK", "accepted")


def _snapshots(client: Client) -> Iterator[CheckResult]:
    """Report what keeps dead rows: open transactions, prepared ones, and replication slots."""
    # Imported here because it loads the store.
    from penstock.assembly.process import find_snapshot_holders

    for holder in find_snapshot_holders(client.store, OLD_SNAPSHOT_US):
        text = f'"{holder.end}"' if SAFE_STATEMENT.fullmatch(holder.end) else quote(holder.end)
        command = f'psql "$PENSTOCK_DATABASE_URL" -c {text}'
        since = output.format_span(holder.age_us)
        behind = f"{output.plural(holder.behind, 'transaction')} behind"
        if holder.kind == "prepared":
            says = f"prepared transaction {holder.name!r} ({holder.user}) has waited for {since}"
            fix = f"Ask its transaction manager first: it may still be committed. End it: {command}"
        elif holder.kind == "slot":
            kept = f"keeps {holder.log_bytes / 1e9:.1f} GB of log"
            says = f"replication slot {holder.name!r} ({holder.state}) is {behind} and {kept}"
            fix = "End the long query on its standby, or turn off hot_standby_feedback there."
            if holder.state != "active":
                fix = (
                    f"Start its standby again. If it is gone for good: {command}. Without the slot "
                    "a standby that needs it must be copied again."
                )
        else:
            whose = " by ".join(filter(None, (holder.program or "a session", holder.user)))
            says = (
                f"session {holder.name} ({whose}, {holder.state or 'unknown'}) has had a "
                f"transaction open for {since}"
            )
            fix = f"End it: {command}"
        yield CheckResult("snapshots", "WARN", f"{says}: dead rows cannot be removed", fix)


def _hung(client: Client) -> Iterator[CheckResult]:
    """Check that runs wait for a worker only while the workers make progress."""
    # Imported here because it loads the store.
    from penstock.assembly.process import find_runs_in_progress

    overview = client.views.overview()
    live = live_workers(client.views.sessions(), overview.as_of)
    capacity = sum(s.concurrency for s in live if not s.is_draining)
    seen = find_runs_in_progress(client.store)
    if not live or not overview.ready_runs or seen.runs < capacity or seen.claimed_at is None:
        return
    idle, since = seen.now - seen.claimed_at, seen.now - (seen.since_at or seen.now)
    if idle < HUNG_US:
        return
    assert seen.first_run_id is not None
    run_id = encode("run", seen.first_run_id)
    says = (
        f"none: the workers' concurrency of {capacity:,} is taken, for up to "
        f"{output.format_span(since)}; no run was claimed for {output.format_span(idle)}, "
        f"{overview.ready_runs:,} are ready"
    )
    fix = (
        f"penstock runs list --state RUNNING, penstock runs show {run_id}; end one that hangs with "
        f"penstock runs cancel {run_id}, or add workers: penstock worker --slots 20"
    )
    yield CheckResult("progress", "FAIL", says, fix)


def _isolation(client: Client) -> Iterator[CheckResult]:
    """Check that row-level security isolates tenants in addition to Penstock's own filters."""
    if not client.store.capabilities.row_level_security:
        return
    isolation = client.views.tenant_isolation()
    if isolation.restricts_all:
        says = "row-level security hides rows from this database user: it must own the tables"
        fix = "Connect as the user that ran `penstock db migrate`."
        yield CheckResult("isolation", "FAIL", says, fix)
    elif not isolation.stands:
        says = "no row-level security: only Penstock's own filters isolate customers"
        fix = "Enable it as described in docs/how-to/api-keys.md, then restart the servers."
        yield CheckResult("isolation", "WARN", says, fix)
    else:
        yield CheckResult("isolation", "OK", "row-level security isolates customers")


def _clock(client: Client) -> CheckResult:
    # Imported here because it loads the store.
    from penstock.assembly.process import find_clock_lead

    system = SystemClock()
    before = system.now()
    now = client.store.read(lambda tx: tx.now())
    after = system.now()
    skew = max(before - now, now - after, 0)
    if skew > SKEW_US:
        fix = "Synchronize both clocks (NTP); leases use the database's clock only."
        says = f"differs from the database's clock by {output.format_span(skew)}"
        return CheckResult("clock", "WARN", says, fix)
    lead = find_clock_lead(client.store)
    if lead > SKEW_US:
        says = (
            f"was set back: the database has records {output.format_span(lead)} in the future. "
            "Until then leases do not expire and occurrences that count as evaluated do not fire"
        )
        fix = "Correct the clock (NTP); penstock status shows what is due next."
        return CheckResult("clock", "FAIL", says, fix)
    return CheckResult("clock", "OK", "matches the database's clock")


def _poison(client: Client) -> CheckResult:
    """Check that every subscription has a dead-letter topic for poison messages."""
    # Imported here because it loads the store.
    from penstock.assembly.process import find_subscriptions_without_dead_letters

    found = find_subscriptions_without_dead_letters(client.store)
    if not found:
        return CheckResult("bus", "OK", "every subscription has a dead-letter topic")
    says = f"no dead-letter topic: {', '.join(found[:5])}{' ...' if len(found) > 5 else ''}"
    fix = "Poison messages are retried until their retention ends: declare a dead_letter_topic."
    return CheckResult("bus", "WARN", says, fix)


def _push(client: Client, settings: Settings) -> CheckResult:
    """Check that each push endpoint is allowed, accepts authentication, and is not paused."""
    # Imported here because it loads the store.
    from penstock.assembly.process import push_problems

    found = push_problems(client.store, settings)
    if not found:
        return CheckResult("push", "OK", "every push subscription can be served")
    says = "; ".join(found[:5]) + (f"; and {len(found) - 5} more" if len(found) > 5 else "")
    fix = "See docs/how-to/push-messages.md; resume a paused subscription once its endpoint is up."
    return CheckResult("push", "WARN", says, fix)


def _endpoints(client: Client, settings: Settings) -> CheckResult:
    """Check that the requests of each HTTP processor are allowed, signed and can be reported on."""
    # Imported here because it loads the store.
    from penstock.assembly.process import endpoint_problems

    found = endpoint_problems(client.store, settings)
    if not found:
        return CheckResult("endpoints", "OK", "every HTTP processor can be served")
    says = "; ".join(found[:5]) + (f"; and {len(found) - 5} more" if len(found) > 5 else "")
    return CheckResult("endpoints", "WARN", says, "See docs/how-to/http-processors.md.")


def _warehouses(client: Client, settings: Settings) -> Iterator[CheckResult]:
    """Check that gates can query the warehouses of their pipelines."""
    # Imported here because it loads the store.
    from penstock.assembly.process import find_warehouse_problems

    found = find_warehouse_problems(client.store, settings)
    if found is None:
        return
    if not any(found):
        yield CheckResult("warehouses", "OK", "every warehouse has an address and its library")
    if found.unknown:
        yield _unknown_warehouses(found.unknown)
    for (problem, fix), pipelines in found.unusable.items():
        yield CheckResult("warehouses", "WARN", f"{_named(pipelines)}: {problem}", fix or None)
    if found.absent:
        says = f"{_named(found.absent)}: gates need tables, but no warehouse is declared to query"
        fix = "Declare warehouse= on the pipeline or on each need, and register it again."
        yield CheckResult("warehouses", "WARN", says, fix)


def _named(pipelines: Sequence[str]) -> str:
    more = f" and {len(pipelines) - NAMED_MAX} more" if len(pipelines) > NAMED_MAX else ""
    return f"pipeline{'s' if len(pipelines) > 1 else ''} {', '.join(pipelines[:NAMED_MAX])}{more}"


def _unknown_warehouses(unknown: Mapping[str, list[str]]) -> CheckResult:
    named = [f"{name} ({_named(pipelines)})" for name, pipelines in sorted(unknown.items())]
    it = "it" if len(unknown) == 1 else "them"
    says = f"the settings have no address for {'; '.join(named)}: gates cannot query {it}"
    missing = [f"{name}=postgresql://…" for name in sorted(unknown)]
    listed = ", ".join(f'"{one}"' for one in missing)
    fix = (
        f"Set PENSTOCK_WAREHOUSES={','.join(missing)}, or warehouses = [{listed}] in "
        "penstock.toml, for the scheduler or penstock up; keep the names that are set there."
    )
    return CheckResult("warehouses", "WARN", says, fix)


def _transports(settings: Settings) -> Iterator[CheckResult]:
    """Check that configured brokers are reachable and match the declarations."""
    if not settings.bridges and not settings.declarations:
        return
    # Imported here because it loads the store.
    from penstock.assembly.messaging.transports import transport_problems

    found = transport_problems(settings)
    if not found:
        yield CheckResult("transports", "OK", "topics and subscriptions are as declared")
        return
    says = "; ".join(found[:5]) + (f"; and {len(found) - 5} more" if len(found) > 5 else "")
    yield CheckResult("transports", "WARN", says, "penstock subscriptions apply")


def _journal(client: Client) -> CheckResult:
    found = client.views.verify_journal()
    if found.problem:
        fix = "A record was altered: restore it from a backup, and keep this database as evidence."
        return CheckResult("journal", "FAIL", found.problem, fix)
    return CheckResult(
        "journal",
        "OK",
        f"unchanged: {output.plural(found.entries, 'sealed entry', 'sealed entries')} in "
        f"{output.plural(found.blocks, 'block')}, "
        f"{output.plural(found.audit_entries, 'audit entry', 'audit entries')}",
    )
