"""`penstock configs create`: one config from flags, or many from a file, all or none.

Flags and file fields carry the API's names, so that an error about `schedule_cron` points at
`--schedule-cron` and at the field of that name alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click

from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.cli.arguments import JSON, MINUTES, pairs, records
from penstock.core.errors import InvalidInput, PenstockError
from penstock.schedules.cadence import CatchUp, Overlap

F = TypeVar("F", bound=Callable[..., Any])
Configs: TypeAlias = list[tuple[str, dict[str, Any]]]

BY_HAND = "until the message bus is there only `penstock configs start {}` starts it"


def _choice(kind: type[CatchUp] | type[Overlap]) -> click.Choice[str]:
    return click.Choice([member.value for member in kind])


_TEXT = {
    "provider": "GCP, AWS, AZURE or any other text.",
    "domain": "COST, SECURITY, COMPLIANCE, OPERATIONS or any other text.",
    "timezone": "IANA zone of the schedule, such as Europe/Berlin.",
    "event_topic": "Start when a message arrives on this topic.",
    "event_filter": "Only messages whose attributes match.",
}
_NUMBERS = {
    "priority": (int, "1 to 10; 10 first."),
    "max_execution_duration_minutes": (float, "A run is stopped after so long."),
    "sla_breach_threshold_minutes": (float, "Starting later than this is a breach."),
    "catch_up_window_minutes": (float, "How far back missed slots are looked for."),
    "jitter_seconds": (float, "Spread starts over so long; stable per config."),
}


def update_options(function: F) -> F:
    """The flags for a config's fields."""
    for option in reversed(_field_options()):
        function = option(function)
    return function


def _field_options() -> list[Callable[[F], F]]:
    made = [
        click.option("--cron", "--schedule-cron", "schedule_cron", metavar="CRON",
                     help='When to fire, such as "0 2 * * *".'),
        click.option("--every", "--schedule-interval-minutes", "schedule_interval_minutes",
                     type=MINUTES, metavar="MINUTES",
                     help="Fire every so many minutes, or 90s, 5m, 1h."),
        click.option("--param", "param", multiple=True, metavar="KEY=VALUE", help="One parameter."),
        click.option("--parameters", type=JSON, metavar="JSON", help="All parameters, or @file."),
        click.option("--retry", "retry", multiple=True, metavar="KEY=VALUE",
                     help="max_attempts, base_delay_minutes, backoff_multiplier …"),
        click.option("--catch-up", "catch_up", type=_choice(CatchUp),
                     help="Which missed slots run after an outage."),
        click.option("--overlap", "overlap", type=_choice(Overlap),
                     help="What happens while the last run is still going."),
    ]  # fmt: skip
    for name, text in _TEXT.items():
        made.append(click.option(f"--{name.replace('_', '-')}", name, help=text, metavar="TEXT"))
    for name, (kind, text) in _NUMBERS.items():
        made.append(click.option(f"--{name.replace('_', '-')}", name, help=text, type=kind))
    return made


def fields_given(given: dict[str, Any]) -> dict[str, Any]:
    """The config fields among a command's options, those that were given."""
    names = ("schedule_cron", "schedule_interval_minutes", "catch_up", "overlap", *_TEXT, *_NUMBERS)
    fields = {name: given[name] for name in names if given.get(name) is not None}
    if given.get("parameters") is not None or given.get("param"):
        fields["parameters"] = {**(given["parameters"] or {}), **pairs(given["param"], "param")}
    if given.get("retry"):
        fields["retry_config"] = pairs(given["retry"], "retry")
    return fields


@click.command("create", cls=Command)
@click.argument("customer", required=False)
@click.argument("pipeline", required=False)
@update_options
@click.option("--inactive", is_flag=True, help="Create it switched off.")
@click.option("--file", "file", type=click.Path(path_type=Path), metavar="FILE",
              help="Many at once: JSON, JSON lines or TOML [[configs]]; - is stdin.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Check everything, create nothing.")
@click.option("--reason", default="", metavar="TEXT", help="Why; goes to the audit trail.")
@click.pass_obj
def create(app: App, /, **given: Any) -> None:
    """Create a config for a customer, or many from a file: all of them, or none.

    penstock configs create acme cost_billing --cron "0 2 * * *" --timezone America/New_York
    """
    wanted, places = _from_file(given) if given["file"] else _from_flags(given)
    with app.use_cases() as cases:
        refused = cases.check(wanted) if given["file"] or given["dry_run"] else None
        if refused is not None:
            raise _placed(*refused, wanted, places)
        if given["dry_run"]:
            pipelines = {fields.get("pipeline_template") for _, fields in wanted}
            record = {"checked": len(wanted), "created": 0}
            text = (f"{output.plural(len(wanted), 'config')} of "
                    f"{output.plural(len(pipelines), 'pipeline')} would be created; "
                    "nothing was.")  # fmt: skip
            app.emit(record, lambda: click.echo(text))
            return
        made = cases.create(wanted, given["reason"])
        now = cases.now()

    def people() -> None:
        for config in made[:20]:
            nxt = output.when(output.micros(config["next_run_time"]), now)
            when = f"first run {nxt}" if config["next_run_time"] else "starts on demand"
            if config["event_topic"]:
                when = BY_HAND.format(config["config_id"])
            click.echo(f"{config['config_id']}  {config['customer_id']}  "
                       f"{config['pipeline_template']}  {when}")  # fmt: skip
        if len(made) > 20:
            click.echo(f"… and {output.plural(len(made) - 20, 'more', 'more')}")

    app.emit({"configs": made}, people)


def _from_flags(given: dict[str, Any]) -> tuple[Configs, list[str]]:
    for name in ("customer", "pipeline"):
        if not given[name]:
            fix = "penstock configs create CUSTOMER PIPELINE …, or --file FILE for many."
            raise InvalidInput(name, f"a {name} as argument", None, fix)
    fields = fields_given(given) | {"pipeline_template": given["pipeline"]}
    if given["inactive"]:
        fields["is_active"] = False
    return [(given["customer"], fields)], []


def _from_file(given: dict[str, Any]) -> tuple[Configs, list[str]]:
    """Every config of the file, and where each stands in it."""
    also = [*fields_given(given), *(n for n in ("customer", "pipeline") if given[n])]
    if also:
        raise InvalidInput("file", "to be used without other fields", ", ".join(also))
    wanted: Configs = []
    places = []
    for where, item in records(given["file"]):
        place = f"{given['file'].name} {where}"
        fields = dict(item)
        customer = fields.pop("customer_id", None)
        if not isinstance(customer, str):
            raise InvalidInput(f"{place}: customer_id", "whose config it is", customer)
        wanted.append((customer, fields))
        places.append(place)
    return wanted, places


def _placed(n: int, error: PenstockError, wanted: Configs, places: Sequence[str]) -> PenstockError:
    """A refusal that says where in the file the config stands."""
    if not places or not isinstance(error, InvalidInput):
        return error
    got = wanted[n][1].get(error.field, error.got)
    return InvalidInput(f"{places[n]}: {error.field}", error.expected, got, error.fix)
