"""`penstock configs create`: one config from flags, or many from a file in one transaction.

Flags and file fields have the API's names, so an error about `schedule_cron` applies to both
`--schedule-cron` and the field in a file.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click
import msgspec

from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.cli.arguments import JSON, MINUTES, parse_pairs, read_records
from penstock.core.errors import Conflict, InvalidInput, PenstockError
from penstock.core.fields import check_customer
from penstock.core.records.record import Page, to_json_value
from penstock.core.records.validation import convert_input
from penstock.schedules.cadence import CatchUp, Overlap
from penstock.schedules.config_input import given_fields, parse_config_input
from penstock.schedules.records import (
    BulkOutcome,
    Config,
    FutureOccurrence,
    NewConfig,
    StoredConfig,
)

if TYPE_CHECKING:
    from penstock.client import UseCaseGroups

F = TypeVar("F", bound=Callable[..., Any])
GivenConfigs: TypeAlias = list[dict[str, Any]]

BULK_MAX = 10_000

_EVENT_HINT = "starts on messages of {topic}, or with `penstock configs start {config_id}`"


def _choice(kind: type[CatchUp] | type[Overlap]) -> click.Choice[str]:
    return click.Choice([member.value for member in kind])


_TEXT = {
    "provider": "Label: GCP, AWS, AZURE or any other text.",
    "domain": "Label: COST, SECURITY, COMPLIANCE, OPERATIONS or any other text.",
    "timezone": "IANA time zone of the schedule, such as Europe/Berlin.",
    "event_topic": "Start when a message arrives on this topic.",
    "event_filter": "Start only for messages whose attributes match this filter.",
}
_NUMBERS = {
    "priority": (int, "Priority from 1 (last) to 10 (first)."),
    "max_execution_duration_minutes": (float, "Stop a run after this many minutes."),
    "sla_breach_threshold_minutes": (
        float,
        "A start later than this many minutes breaches the SLA.",
    ),
    "expires_after_minutes": (
        float,
        "Expire a run that was not started this many minutes after it was due.",
    ),
    "catch_up_window_minutes": (float, "Ignore missed occurrences older than this."),
    "jitter_seconds": (float, "Maximum delay of starts in seconds; constant per config."),
}


_API_NAMES = {one.name: one.encode_name for one in msgspec.structs.fields(Config)}


def _check_one_schedule(given: Mapping[str, Any]) -> None:
    """Raise InvalidInput if several of the options that start a config are given."""
    names = ("schedule_cron", "schedule_interval_minutes", "event_topic")
    found = [name for name in names if given.get(name) is not None]
    if len(found) > 1:
        raise InvalidInput(found[-1], f"only one of {', '.join(found)}", given[found[-1]])


@contextlib.contextmanager
def api_names() -> Iterator[None]:
    """Rename the field of an error to its name in the API, which flags and files use."""
    try:
        yield
    except InvalidInput as error:
        error.rename(_API_NAMES)
        raise


def config_field_options(function: F) -> F:
    """Add an option for each field of a config."""
    for option in reversed(_field_options()):
        function = option(function)
    return function


def _field_options() -> list[Callable[[F], F]]:
    made = [
        click.option("--cron", "--schedule-cron", "schedule_cron", metavar="CRON",
                     help='Schedule as a cron expression, such as "0 2 * * *".'),
        click.option("--every", "--schedule-interval-minutes", "schedule_interval_minutes",
                     type=MINUTES, metavar="MINUTES",
                     help="Interval in minutes, or with a unit: 90s, 5m, 1h."),
        click.option("--param", "param", multiple=True, metavar="KEY=VALUE",
                     help="Set one parameter."),
        click.option("--parameters", type=JSON, metavar="JSON",
                     help="Parameters as JSON, or @FILE."),
        click.option("--event-mapping", "event_mapping", type=JSON, metavar="JSON",
                     help="Sources of parameters and partition in a message, as JSON or @FILE."),
        click.option("--retry", "retry", multiple=True, metavar="KEY=VALUE",
                     help="Set max_attempts, base_delay_minutes, backoff_multiplier, "
                          "max_delay_minutes or timeout_multiplier."),
        click.option("--catch-up", "catch_up", type=_choice(CatchUp),
                     help="Which missed occurrences start after an outage."),
        click.option("--overlap", "overlap", type=_choice(Overlap),
                     help="What to do if the previous run has not ended."),
    ]  # fmt: skip
    for name, text in _TEXT.items():
        made.append(click.option(f"--{name.replace('_', '-')}", name, help=text, metavar="TEXT"))
    for name, (kind, text) in _NUMBERS.items():
        made.append(click.option(f"--{name.replace('_', '-')}", name, help=text, type=kind))
    return made


def given_config_fields(given: dict[str, Any]) -> dict[str, Any]:
    """Return the config fields that were given as options."""
    names = ("schedule_cron", "schedule_interval_minutes", "event_mapping", "catch_up", "overlap",
             *_TEXT, *_NUMBERS)  # fmt: skip
    fields = {name: given[name] for name in names if given.get(name) is not None}
    if given.get("parameters") is not None or given.get("param"):
        fields["parameters"] = {
            **(given["parameters"] or {}),
            **parse_pairs(given["param"], "param"),
        }
    if given.get("retry"):
        fields["retry_config"] = parse_pairs(given["retry"], "retry")
    return fields


@click.command("create", cls=Command)
@click.argument("customer", required=False)
@click.argument("pipeline", required=False)
@config_field_options
@click.option("--inactive", is_flag=True, help="Create the config disabled.")
@click.option("--file", "file", type=click.Path(path_type=Path), metavar="FILE",
              help="Create many: JSON, JSON lines or TOML [[configs]]; - is stdin.")  # fmt: skip
@click.option("--another", is_flag=True,
              help="Create it although an active config has the same schedule.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Validate only; create nothing.")
@click.option("--reason", default="", metavar="TEXT", help="Reason, recorded in the audit trail.")
@click.pass_obj
def create(app: App, /, **given: Any) -> None:
    r"""Create a config for a customer, or many from a file; one invalid config rejects the whole
    file.

    \b
    penstock configs create acme cost_billing --cron "0 2 * * *" --timezone America/New_York
    """
    if not given["file"]:
        _check_one_schedule(given)
    wanted, places = _from_file(given) if given["file"] else _from_flags(given)
    configs = _converted(wanted, places)
    # Errors of a file have the names that it uses.
    with app.connect() as client, contextlib.nullcontext() if places else api_names():
        if places or given["dry_run"] or not given["another"]:
            _check(client, configs, places, is_another=given["another"])
        if given["dry_run"]:
            pipelines = {config.pipeline for config in configs}
            record = {"checked": len(configs), "created": 0}
            text = (f"{output.plural(len(configs), 'config')} of "
                    f"{output.plural(len(pipelines), 'pipeline')} would be created; "
                    "nothing was created.")  # fmt: skip
            app.emit(record, lambda: click.echo(text))
            return
        made = _create(client, configs, given["reason"])
        now = client.now()
        shown = [] if app.is_json else made[:20]
        firsts = {
            config.config_id: client.configs.preview(config.config_id, 1).occurrences
            for config in shown
            if config.next_run_time
        }

    def print_text() -> None:
        for config in made[:20]:
            nxt = output.format_time(config.next_run_time, now)
            when = f"first run {nxt}" if config.next_run_time else "starts on demand"
            when += "".join(target_text(one) for one in firsts.get(config.config_id, ()))
            if config.event_topic:
                when = _EVENT_HINT.format(topic=config.event_topic, config_id=config.config_id)
            click.echo(f"{config.config_id}  {config.customer}  {config.pipeline}  {when}")
        if len(made) > 20:
            click.echo(f"… and {output.plural(len(made) - 20, 'more', 'more')}")

    app.emit(Page(items=made), print_text)


def target_text(one: FutureOccurrence) -> str:
    """Return the partition and the mode of an occurrence as text."""
    partition = "" if one.partition is None else f" · partition {one.partition}"
    return partition if one.mode is None else f"{partition} · mode {one.mode}"


def _create(client: UseCaseGroups, configs: Sequence[NewConfig], reason: str) -> list[StoredConfig]:
    """Create configs; several of them in bulk requests."""
    explained = [
        one if one.reason is not None else msgspec.structs.replace(one, reason=reason)
        for one in configs
    ]
    if len(explained) == 1:
        (only,) = explained
        config = Config(**{name: getattr(only, name) for name in Config.__struct_fields__})
        return [client.configs.create(only.customer, config, reason=only.reason)]
    made: list[StoredConfig] = []
    for start in range(0, len(configs), BULK_MAX):
        part = explained[start : start + BULK_MAX]
        for outcome in client.configs.create_bulk(part, with_configs=True):
            if outcome.config is None:
                place = start + outcome.index + 1
                raise Conflict(
                    f"{len(made)} configs were created; item {place} was rejected: {outcome.detail}"
                )
            made.append(outcome.config)
    return made


def _check(
    client: UseCaseGroups, configs: Sequence[NewConfig], places: Sequence[str], *, is_another: bool
) -> None:
    """Raise the error of the first config that is invalid or, unless wanted, a duplicate."""
    for start in range(0, len(configs), BULK_MAX):
        part = configs[start : start + BULK_MAX]
        for config, outcome in zip(
            part, client.configs.create_bulk(part, dry_run=True), strict=True
        ):
            n = start + outcome.index
            if outcome.status == "refused":
                raise _placed(n, _refusal(outcome), places)
            if outcome.config_id is not None and config.is_active is not False and not is_another:
                raise _placed(n, _duplicate(config, outcome.config_id), places)
    if not is_another:
        _check_each_once(configs, places)


def _check_each_once(configs: Sequence[NewConfig], places: Sequence[str]) -> None:
    """Raise InvalidInput if two active configs of a file start the same."""
    times = Counter((one.customer, one.pipeline) for one in configs)
    earlier: dict[tuple[object, ...], int] = {}
    for n, config in enumerate(configs):
        if config.is_active is False or times[config.customer, config.pipeline] < 2:
            continue
        draft = parse_config_input(given_fields(config))
        before = earlier.setdefault((config.customer, *draft.start_key), n)
        if before != n:
            name, got = _schedule(config)
            expected = (
                f"a schedule that no other config of {config.pipeline} for {config.customer} in "
                "this file has with the same parameters"
            )
            fix = (
                f"{places[before]} has it, so each partition would be processed twice. Remove "
                "one of them, or add --another to create both."
            )
            raise _placed(n, InvalidInput(name, expected, got, fix), places)


def _duplicate(config: NewConfig, config_id: str) -> InvalidInput:
    """Return the error of a config that starts the same as an active config."""
    name, got = _schedule(config)
    return InvalidInput(
        name,
        f"a schedule that no active config of {config.pipeline} for {config.customer} has with "
        "the same parameters",
        got,
        f"{config_id} has it, so each partition would be processed twice. Change that one with "
        f"`penstock configs update {config_id}`, or add --another to create a second one.",
    )


def _schedule(config: NewConfig) -> tuple[str, object]:
    """Return the field that starts a config, and its value."""
    given = to_json_value(config)
    names = ("schedule_cron", "schedule_interval_minutes", "event_topic")
    return next((name, given[name]) for name in names if given.get(name) is not None)


def _refusal(outcome: BulkOutcome) -> PenstockError:
    # Imported here because only a refused config needs it.
    from penstock.remote.problems import error_from_code

    given = {
        "field": outcome.field, "expected": outcome.expected, "got": outcome.got,
        "fix": outcome.fix,
    }  # fmt: skip
    detail = {name: text for name, text in given.items() if text is not None}
    return error_from_code(str(outcome.code), str(outcome.detail), detail)


def _converted(wanted: GivenConfigs, places: Sequence[str]) -> list[NewConfig]:
    configs: list[NewConfig] = []
    for n, fields in enumerate(wanted):
        try:
            check_customer(fields["customer_id"])
            configs.append(convert_input(fields, NewConfig))
        except InvalidInput as error:
            raise _placed(n, error, places) from None
    return configs


def _from_flags(given: dict[str, Any]) -> tuple[GivenConfigs, list[str]]:
    for name in ("customer", "pipeline"):
        if not given[name]:
            fix = "penstock configs create CUSTOMER PIPELINE …, or --file FILE for many."
            raise InvalidInput(name, f"a {name} as argument", None, fix)
    names = {"customer_id": given["customer"], "pipeline_template": given["pipeline"]}
    fields = given_config_fields(given) | names
    if given["inactive"]:
        fields["is_active"] = False
    return [fields], []


def _from_file(given: dict[str, Any]) -> tuple[GivenConfigs, list[str]]:
    """Read the configs of the file, and the location of each one in it."""
    also = [
        *given_config_fields(given),
        *(n for n in ("customer", "pipeline") if given[n]),
    ]
    if also:
        raise InvalidInput("file", "no other fields with --file", ", ".join(also))
    wanted: GivenConfigs = []
    places = []
    for where, item in read_records(given["file"]):
        place = f"{given['file'].name} {where}"
        customer = item.get("customer_id")
        if not isinstance(customer, str):
            raise InvalidInput(f"{place}: customer_id", "the id of the customer", customer)
        wanted.append(item)
        places.append(place)
    return wanted, places


def _placed(n: int, error: PenstockError, places: Sequence[str]) -> PenstockError:
    """Return the error with the location of the config in the file, in the words of the file."""
    if places and isinstance(error, InvalidInput):
        head = error.field.partition(".")[0]
        error.rename({head: f"{places[n]}: {head}"})
        error.text = error.message  # type: ignore[attr-defined]  # without names of options
    return error
