"""`penstock gate`: look at the data now, what was decided, and what would have been."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli import output
from penstock.cli.app import App, Group
from penstock.cli.backends.protocol import Shape, UseCases
from penstock.cli.backends.protocol_flows import Narrowed, Place, open_flow
from penstock.core.errors import InvalidInput

LIMIT = click.IntRange(1, 1_000)
OTHERWISE = click.Choice(["WAIT", "FAIL"], case_sensitive=False)


def changes_options(command: Any) -> Any:
    """The settings of a mode that may be tried."""
    for option in reversed(
        (
            click.option("--proceed-at", type=click.FloatRange(0, 100), metavar="PERCENT",
                         help="Start when so much is complete."),
            click.option("--min-quality", type=click.FloatRange(0, 1), metavar="N",
                         help="And at least of this quality."),
            click.option("--degraded-at", type=click.FloatRange(0, 100), metavar="PERCENT",
                         help="Start degraded when so much is complete."),
            click.option("--otherwise", type=OTHERWISE, help="What to do with less."),
            click.option("--recheck", metavar="DURATION", help="How often to look while waiting."),
            click.option("--max-wait", metavar="DURATION", help="How long to wait at most."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


@click.group(cls=Group)
def gate() -> None:
    """Gates: check now, history, what-if, backtest."""


@gate.command("check")
@click.argument("pipeline")
@click.argument("partition")
@click.argument("phase")
@click.option("--processor", metavar="NAME", help="The needs of one processor alone.")
@click.option("--customer", metavar="ID", help="Whose; the default customer unless said.")
@click.option("--mode", metavar="NAME", help="In this mode; the open flow's unless said.")
@click.pass_obj
def check(app: App, /, **given: Any) -> None:
    """Look at the data now and say what the gate would decide; changes nothing.

    Where a flow is open, its completions and approvals count as they stand.
    """
    with app.use_cases() as cases:
        found = cases.flows.check(_check(cases, given))
        now = cases.now()
    app.emit(found, lambda: _print_check(found, now))


def _check(cases: UseCases, given: dict[str, Any]) -> Shape:
    place = Place(pipeline=given["pipeline"], partition=given["partition"],
                  customer=given["customer"], mode=given["mode"])  # fmt: skip
    flow = open_flow(cases.flows.explain(place))
    return {
        "pipeline_template": given["pipeline"],
        "partition": given["partition"],
        "phase": given["phase"],
        "processor": given["processor"],
        "customer_id": given["customer"],
        "mode": given["mode"],
        "flow_id": None if flow is None else flow["flow_id"],
    }


def _print_check(found: Shape, now: int) -> None:
    name = f"{found['phase']} {found['partition']} ({found['mode']})"
    click.echo(f"{output.printable(name)}  {click.style(found['verdict'], bold=True)}")
    for reason in found["reasons"]:
        click.echo(f"  {output.printable(reason)}")
    if found["waits_until"] is not None:
        click.echo(
            f"  It would wait until {output.when(output.micros(found['waits_until']), now)}."
        )
    _print_dependencies(found["dependencies"])
    if not found["is_asked"]:
        click.echo("The cascade does not ask this gate now: what lies before it is not complete, "
                   "or it has started.")  # fmt: skip


def _print_dependencies(found: list[Shape]) -> None:
    if not found:
        click.echo("  It looks at no data: what lies before it decides.")
        return
    output.table(
        ("TABLE", "KIND", "STATUS", "FOUND", "QUALITY", "ISSUES"),
        [
            (
                one["table"], one["kind"], one["status"], _found(one), f"{one['quality']:.2f}",
                "; ".join(one["issues"]),
            )
            for one in found
        ],
    )  # fmt: skip


def _found(one: Shape) -> str:
    if one["kind"] == "historical":
        return f"{one['days_present'] or 0}/{one['days_required']} days"
    if one["found_rows"] is None:
        return "-"
    return f"{one['found_rows']:,}/{one['required_rows']:,} rows"


@gate.command("history")
@click.argument("pipeline")
@click.argument("partition", required=False)
@click.argument("phase", required=False)
@click.option("--customer", metavar="ID", help="Only this customer's.")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="The newest so many.")
@click.pass_obj
def history(app: App, /, **given: Any) -> None:
    """What gates decided, newest first; --json has all the evidence."""
    with app.use_cases() as cases:
        found = cases.flows.decisions(Narrowed(**given))
        now = cases.now()

    def people() -> None:
        if not found:
            app.say("No decisions match.")
            return
        output.table(
            ("AT", "PHASE", "PARTITION", "MODE", "VERDICT", "COMPLETE", "QUALITY", "WHY"),
            [
                (
                    output.brief(output.micros(one["decided_at"]), now),
                    one["phase"] + (f"/{one['processor']}" if one["processor"] else ""),
                    one["partition"], one["mode"], one["verdict"], f"{one['completeness']:.0f} %",
                    f"{one['quality']:.2f}", output.first_line(" ".join(one["reasons"]), 90),
                )
                for one in found
            ],
        )  # fmt: skip

    app.emit({"decisions": found}, people)


@gate.command("what-if")
@click.argument("pipeline")
@click.argument("partition", required=False)
@click.argument("phase", required=False)
@changes_options
@click.option("--customer", metavar="ID", help="Only this customer's.")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="The newest so many.")
@click.pass_obj
def what_if(app: App, /, **given: Any) -> None:
    """Decide recorded decisions again under other settings; changes nothing."""
    body = {
        "pipeline_template": given["pipeline"],
        "partition": given["partition"],
        "phase": given["phase"],
        "customer_id": given["customer"],
        "limit": given["limit"],
        "changes": _changes(given),
    }
    with app.use_cases() as cases:
        tried = cases.flows.what_if(body)
        now = cases.now()
    app.emit({"items": tried}, lambda: _print_tried(app, tried, now))


@gate.command("backtest")
@click.argument("pipeline")
@changes_options
@click.option("--days", type=click.IntRange(1, 3_660), default=30, show_default=True,
              help="The last so many days.")  # fmt: skip
@click.option("--phase", metavar="NAME", help="Only of this phase.")
@click.option("--customer", metavar="ID", help="Only this customer's.")
@click.pass_obj
def backtest(app: App, /, **given: Any) -> None:
    """Decide the last days again under other settings, and say what would have changed."""
    body = {
        "pipeline_template": given["pipeline"],
        "phase": given["phase"],
        "customer_id": given["customer"],
        "days": given["days"],
        "changes": _changes(given),
    }
    with app.use_cases() as cases:
        found = cases.flows.backtest(body)
        now = cases.now()

    def people() -> None:
        click.echo(f"{output.plural(found['decisions'], 'decision')} of {given['days']} days: "
                   f"{found['changed']:,} would have been others.")  # fmt: skip
        for move in found["moves"]:
            if move["then"] != move["now"]:
                click.echo(f"  {move['decisions']:,} × {move['then']} → {move['now']}")
        if found["items"]:
            _print_tried(app, found["items"], now)

    app.emit(found, people)


def _print_tried(app: App, tried: list[Shape], now: int) -> None:
    if not tried:
        app.say("No decisions match.")
        return
    output.table(
        ("AT", "PHASE", "PARTITION", "MODE", "WAS", "WOULD BE", "WHY"),
        [
            (
                output.brief(output.micros(one["decided_at"]), now),
                one["phase"] + (f"/{one['processor']}" if one["processor"] else ""),
                one["partition"], one["mode"], one["then"],
                one["now"] if one["changed"] else "the same",
                output.first_line(" ".join(one["reasons"]), 90),
            )
            for one in tried
        ],
    )  # fmt: skip


def _changes(given: dict[str, Any]) -> Shape:
    names = ("proceed_at", "min_quality", "degraded_at", "otherwise", "recheck", "max_wait")
    changes = {name: given[name] for name in names if given[name] is not None}
    if not changes:
        raise InvalidInput("changes", "at least one setting, such as --proceed-at 95", "none")
    return changes
