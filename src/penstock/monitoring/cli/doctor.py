"""`penstock doctor`: checks of the installation, each OK, WARN or FAIL with the fix.

Every check is a function over what was looked at once (`Facts`); a check that cannot look says so
and fails. Exit code 1 when anything fails.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

import click

from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.core.clock import MINUTE, SECOND, SystemClock
from penstock.core.errors import PenstockError, SchemaMismatch
from penstock.monitoring.stalls import NOBODY_HAS_THEM, overdue_us, passed_over_us

if TYPE_CHECKING:
    from penstock.assembly.settings import Settings
    from penstock.client import Client

OVERDUE_US = 2 * MINUTE
SKEW_US = 5 * SECOND
OLD_READY_US = 10 * MINUTE


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check."""

    check: str
    verdict: str
    says: str
    fix: str | None = None


class Pool(NamedTuple):
    """A pool of processors and whether anybody serves it."""

    name: str
    ready: int
    is_served: bool


@click.command("doctor", cls=Command)
@click.option("--skip-journal", is_flag=True, help="Do not verify the journal's seals.")
@click.pass_obj
def doctor(app: App, skip_journal: bool) -> None:
    """Check the installation and say how to mend what is wrong."""
    findings = list(examine(app, verify_journal=not skip_journal))
    failed = [f for f in findings if f.verdict == "FAIL"]
    warned = [f for f in findings if f.verdict == "WARN"]
    record = {"is_healthy": not failed, "checks": [asdict(f) for f in findings]}

    def people() -> None:
        for f in findings:
            verdict = click.style(f"{f.verdict:<4}", fg=output.COLOURS[f.verdict])
            click.echo(f"{verdict}  {f.check:<12}  {f.says}")
            if f.fix:
                click.echo(f"{'':<20}→ {f.fix}")
        click.echo(
            f"{len(findings)} checks: {len(findings) - len(failed) - len(warned)} fine, "
            f"{output.plural(len(warned), 'warning')}, {output.plural(len(failed), 'failure')}."
        )

    app.emit(record, people)
    if failed:
        raise click.exceptions.Exit(1)


def examine(app: App, *, verify_journal: bool = True) -> Iterator[Finding]:
    """Every check, in order; without a database the rest cannot be looked at."""
    yield _python()
    settings = app.database_settings()
    yield from _settings(settings)
    try:
        with app.client(settings) as client:
            yield Finding("database", "OK", f"schema is current ({_where(settings)})")
            yield from _sqlite(client)
            yield _disk(client)
            yield from _wall(client)
            yield _clock(client)
            yield from _processes(client)
            yield from _work(client)
            yield _poison(client)
            yield _push(client, settings)
            if verify_journal:
                yield _journal(client)
    except PenstockError as error:
        fix = "penstock db migrate" if isinstance(error, SchemaMismatch) else None
        yield Finding("database", "FAIL", error.message, fix)


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    return Finding("python", "OK", f"{version} on {sys.platform}")


def _settings(settings: Settings) -> Iterator[Finding]:
    # Settings are loaded by now; this costs nothing more.
    from penstock.assembly.settings import warnings

    found = warnings(settings)
    for text in found:
        yield Finding(
            "settings", "WARN", text, "Change the setting, see docs/reference/settings.md."
        )
    if not found:
        yield Finding("settings", "OK", "no contradictions")


def _where(settings: Settings) -> str:
    # The store is loaded by every check after the first two.
    from penstock.assembly.process import describe_database

    return describe_database(settings.database_url)


def _sqlite(client: Client) -> Iterator[Finding]:
    # As above.
    from penstock.assembly.process import sqlite_versions

    versions = sqlite_versions(client.store)
    if versions is None:
        return
    mine, safe = (".".join(str(n) for n in version) for version in versions)
    if versions[0] >= versions[1]:
        yield Finding("sqlite", "OK", f"library {mine}")
    else:
        says = f"library {mine} can corrupt a WAL when several processes write (fixed in {safe})"
        yield Finding("sqlite", "WARN", says, "pip install pysqlite3, or run a single process.")


def _disk(client: Client) -> Finding:
    """Whether what was committed is still there after the machine stops."""
    # As above.
    from penstock.assembly.process import forgetful

    found = forgetful(client.store)
    if not found:
        return Finding("durability", "OK", "a commit waits for the disk")
    says = f"the server runs with {', '.join(f'{name} = off' for name in found)}: "
    says += "what was committed may be lost when it stops"
    fix = f"In postgresql.conf: {', '.join(f'{name} = on' for name in found)}; then reload it."
    return Finding("durability", "WARN", says, fix)


def _wall(client: Client) -> Iterator[Finding]:
    """Whether the database itself keeps customers apart, beside our own filters."""
    if not client.store.capabilities.row_level_security:
        return
    wall = client.views.wall()
    if wall.confines_everybody:
        says = "row-level security hides rows from this database user: it must own the tables"
        fix = "Connect as the user that ran `penstock db migrate`."
        yield Finding("isolation", "FAIL", says, fix)
    elif not wall.stands:
        says = "no row-level security between customers: only Penstock's own filters"
        fix = 'See "The second wall" in docs/how-to/api-keys.md; then restart the servers.'
        yield Finding("isolation", "WARN", says, fix)
    else:
        yield Finding("isolation", "OK", "row-level security between customers")


def _clock(client: Client) -> Finding:
    system = SystemClock()
    before = system.now()
    now = client.store.read(lambda tx: tx.now())
    after = system.now()
    skew = max(before - now, now - after, 0)
    if skew > SKEW_US:
        fix = "Synchronise both clocks (NTP); leases are judged by the database's alone."
        return Finding("clock", "WARN", f"differs from the database's by {output.span(skew)}", fix)
    return Finding("clock", "OK", "agrees with the database's")


def _processes(client: Client) -> Iterator[Finding]:
    # As above.
    from penstock.assembly.process import due_since

    sessions = [s for s in client.views.sessions() if s.kind == "worker"]
    next_at, now = due_since(client.store)
    live = [s for s in sessions if s.until_at >= now]
    overview = client.views.overview()
    up = "penstock up --pipelines my_pipelines.py"
    is_free = any(not s.is_draining and s.held < s.slots for s in live)
    waits = passed_over_us(overview.ready, overview.oldest_ready_at, now, has_free_worker=is_free)
    if waits:
        ready = output.plural(overview.ready, "run")
        says = f"{ready} ready for up to {output.span(waits)} beside free slots: {NOBODY_HAS_THEM}"
        yield Finding("workers", "WARN", says, "penstock worker --pipelines my_pipelines.py")
    elif live:
        slots = sum(s.slots for s in live)
        says = f"{output.plural(len(live), 'worker')} alive with {output.plural(slots, 'slot')}"
        yield Finding("workers", "OK", says)
    elif overview.ready:
        says = f"none alive, {output.plural(overview.ready, 'run')} ready"
        yield Finding("workers", "FAIL", says, up)
    else:
        yield Finding("workers", "WARN", "none alive; nothing waits for one now", up)
    yield _scheduler(next_at, now, is_served=bool(live))
    yield from _pools(client, {s.pool for s in live})


def _scheduler(next_at: int | None, now: int, *, is_served: bool) -> Finding:
    late = overdue_us(next_at, now)
    if next_at is None:
        return Finding("scheduler", "OK", "no config is on the clock")
    if not late:
        return Finding("scheduler", "OK", f"next slot {output.when(next_at, now)}")
    says = f"next slot overdue by {output.span(late)}: no scheduler ticks"
    verdict = "FAIL" if is_served and late > OVERDUE_US else "WARN"
    return Finding("scheduler", verdict, says, "penstock scheduler, or penstock up")


def _pools(client: Client, served: set[str | None]) -> Iterator[Finding]:
    # As above.
    from penstock.assembly.process import ready_count

    numbers = {p.pool: p.pool_no for info in client.views.pipelines() for p in info.processors}
    pools = [Pool(name, ready_count(client.store, n), name in served)
             for name, n in sorted(numbers.items())]  # fmt: skip
    alone = [pool for pool in pools if not pool.is_served and pool.ready]
    for pool in alone:
        says = f"pool {pool.name}: {output.plural(pool.ready, 'run')} ready, no worker serves it"
        fix = f"penstock worker --pool {pool.name} --pipelines my_pipelines.py"
        yield Finding("pools", "FAIL" if served else "WARN", says, fix)
    if not alone:
        yield Finding("pools", "OK", "no pool has ready runs without a worker")


def _work(client: Client) -> Iterator[Finding]:
    overview = client.views.overview()
    now = client.store.read(lambda tx: tx.now())
    oldest = overview.oldest_ready_at
    waits = 0 if oldest is None or not overview.ready else now - oldest
    if waits > OLD_READY_US:
        says = f"{output.plural(overview.ready, 'run')} ready, the oldest for {output.span(waits)}"
        yield Finding("backlog", "WARN", says, "Add workers or slots: penstock worker --slots 20")
    else:
        yield Finding("backlog", "OK", f"{output.plural(overview.ready, 'run')} ready")
    dead = client.dead_letters.find(limit=1000)
    if dead:
        many = f"{len(dead)}{'+' if len(dead) == 1000 else ''}"
        says = f"{many} open: runs and messages that only a person can resolve"
        yield Finding("dead letters", "WARN", says, "penstock dlq groups")
    else:
        yield Finding("dead letters", "OK", "none open")
    alerts = client.views.alerts(state="open", limit=1000)
    high = sum(1 for alert in alerts if alert.severity in ("HIGH", "CRITICAL"))
    if alerts:
        yield Finding("alerts", "WARN", f"{len(alerts)} open, {high} of them HIGH or worse",
                      "penstock alerts list")  # fmt: skip
    else:
        yield Finding("alerts", "OK", "none open")
    pauses = client.pauses.in_force()
    if any(p.scope == "all" for p in pauses):
        yield Finding("pauses", "WARN", "everything is paused", "penstock resume all")
    elif pauses:
        yield Finding("pauses", "OK", f"{output.plural(len(pauses), 'pause')} in force")


def _poison(client: Client) -> Finding:
    """Whether every subscription has somewhere to put messages that can never be handled."""
    # As above.
    from penstock.assembly.process import poison_traps

    found = poison_traps(client.store)
    if not found:
        return Finding("bus", "OK", "every subscription has a dead-letter topic")
    says = f"no dead-letter topic: {', '.join(found[:5])}{' ...' if len(found) > 5 else ''}"
    fix = "Poison would be retried until its retention ends: declare a dead_letter_topic."
    return Finding("bus", "WARN", says, fix)


def _push(client: Client, settings: Settings) -> Finding:
    """Whether every push subscription may be posted to, can prove itself, and is not paused."""
    # As above.
    from penstock.assembly.process import push_faults

    found = push_faults(client.store, settings)
    if not found:
        return Finding("push", "OK", "every push subscription can be served")
    says = "; ".join(found[:5]) + (f"; and {len(found) - 5} more" if len(found) > 5 else "")
    fix = "See docs/how-to/push-messages.md; resume what is paused once its endpoint is back."
    return Finding("push", "WARN", says, fix)


def _journal(client: Client) -> Finding:
    blocks, entries, problem = client.views.verify_journal()
    if problem:
        fix = "Somebody changed the journal: restore it from a backup, keep this file as evidence."
        return Finding("journal", "FAIL", problem, fix)
    return Finding(
        "journal", "OK", f"{entries:,} sealed entries in {blocks:,} blocks are unchanged"
    )
