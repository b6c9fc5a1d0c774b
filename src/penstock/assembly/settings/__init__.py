"""Settings: read once from file and environment, checked, frozen, passed down.

`setting.py` in this package reads one value. The fields of `Settings` declare each setting once:
name, type, default, help, bounds and flag. Environment names (`PENSTOCK_…`), the keys of the TOML
file, the options of commands, the reference page and the checks are derived from it. No other
module interprets environment variables. Commands import this module for their help, so it imports
the parsers of large values on first use.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from penstock.assembly.settings.database_urls import (
    check_database_url,
    check_pooler,
    check_read_url,
)
from penstock.assembly.settings.setting import PREFIX, Kind, Setting, read_value
from penstock.core.errors import SettingsError
from penstock.egress.addresses import parse_named_addresses
from penstock.egress.policy import EgressRules

SECRET_PREFIX = "PENSTOCK_SECRET_"  # noqa: S105 - the start of a name, not a secret
KEY_VARIABLE = "PENSTOCK_API_KEY"
NOT_SETTINGS = ("PENSTOCK_TEST_", SECRET_PREFIX, KEY_VARIABLE)
NOT_IN_FILES = ("url", "url_plain")
"""Settings that a file may not contain: a file in any folder must not choose where the API key is
sent.
"""
KEY_SUFFIX = ".key"
"""Suffix of the development key's file, stored next to a SQLite file."""
ENCRYPTION_SUFFIX = ".encryption-key"
DEFAULT_DATABASE = "sqlite:penstock.db"
TOKEN_MIN = 16
"""Minimum length of the scheduler's token, in characters."""

_SWITCH = ("never", "allowed")
_KINDS: Mapping[type, Kind] = {
    str: "text",
    int: "int",
    float: "float",
    tuple: "list",
    dict: "table",
}


def _setting(default: Any, help: str, **more: Any) -> Any:
    """Declare a setting; its kind follows from the default."""
    declared = {"kind": _KINDS[type(default)], "default": default, "help": help, **more}
    return field(metadata=declared)


def _duration(default: str, help: str, **more: Any) -> Any:
    """Declare a setting that is read as a duration; `low` and `high` are seconds."""
    return _setting(default, help, kind="duration", **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, checked. Durations are microseconds.

    Each is declared here once: default, help, bounds and flag.
    """

    database_url: str = _setting(
        DEFAULT_DATABASE,
        "Database to use: sqlite:PATH, or postgresql://… with one or several hosts.",
        flag="--database-url",
        metavar="URL",
    )
    url: str = _setting(
        "", "URL of the API that commands use instead of a database.", flag="--url", metavar="URL"
    )
    url_plain: str = _setting(
        "never",
        "Whether an API key may be sent over plain http to other machines.",
        choices=_SWITCH,
    )
    pipelines: tuple[str, ...] = _setting(
        (),
        "Modules or files that declare pipelines; separate several with commas.",
        flag="--pipelines",
        metavar="MODULE|FILE",
    )
    pool: str = _setting(
        "default", "Pool whose runs the worker executes.", flag="--pool", metavar="NAME"
    )
    worker_slots: int = _setting(
        5,
        "Number of runs a worker executes concurrently.",
        low=1,
        high=10_000,
        flag="--slots",
        metavar="N",
    )
    worker_batch: int = _setting(500, "Maximum number of runs per claim.", low=1, high=10_000)
    session_lease: int = _duration(
        "30s", "Time without a heartbeat after which a worker is considered dead.", low=5
    )
    session_beat: int = _duration("10s", "Interval of heartbeats, under half the lease.", low=0.5)
    drain: int = _duration("30s", "Time for active runs and requests when a process stops.", low=0)
    scheduler_batch: int = _setting(
        5_000, "Maximum number of configs started per transaction.", low=1, high=100_000
    )
    catch_up_rate: float = _setting(
        500.0, "Maximum late runs per second, over all configs and schedulers.", low=0.01, high=1e6
    )
    sweep_interval: int = _duration("5s", "Interval of sweeps for expired leases.", low=0.1)
    seal_interval: int = _duration("10s", "Interval at which the journal is sealed.", low=0.1)
    seal_heads_file: str = _setting(
        "", "File to which the heads of sealed blocks are appended; keep it outside the database."
    )
    audit_sink: str = _setting(
        "",
        "Audit sink that the journal and the logs are shipped to: `parquet:DIR` or "
        "`bigquery:PROJECT.DATASET`; empty for none.",
    )
    audit_sink_interval: int = _duration(
        "30s", "Interval at which new rows are shipped to the audit sink.", low=1
    )
    prune_behind_sink: str = _setting(
        "no",
        "Whether retention deletes rows of the journal and the logs only once the audit sink has "
        "them: `no` or `yes`.",
        choices=("no", "yes"),
    )
    prune_interval: int = _duration(
        "60s", "Interval at which retention and other upkeep are applied.", low=1
    )
    history_retention: int = _duration("365d", "How long ended runs are kept.", low=3_600)
    journal_retention: int = _duration("365d", "How long the journal is kept.", low=3_600)
    flows_retention: int = _duration(
        "7d", "How long ended flows are kept with their phases and completions.", low=3_600
    )
    logs_retention: int = _duration(
        "365d",
        "How long gate decisions and the logs of phases, checks and executions are kept.",
        low=3_600,
    )
    alerts_retention: int = _duration("90d", "How long resolved alerts are kept.", low=3_600)
    dead_letters_retention: int = _duration(
        "90d",
        "How long replayed and discarded dead letters are kept; for open ones, history_retention.",
        low=3_600,
    )
    interventions_retention: int = _duration(
        "90d", "How long resolved interventions are kept.", low=3_600
    )
    overrides_retention: int = _duration(
        "90d", "How long overrides are kept after they expire.", low=3_600
    )
    warehouses: tuple[str, ...] = _setting(
        (), "Warehouses that gates probe: NAME=ADDRESS for each name in pipelines."
    )
    pool_size: int = _setting(
        10, "Maximum number of PostgreSQL connections per process.", low=2, high=1_000
    )
    database_pooler: str = _setting(
        "none",
        "Pooler that database_url points to, such as PgBouncer: none, session or transaction.",
        choices=("none", "session", "transaction"),
    )
    database_direct_url: str = _setting(
        "", "URL that bypasses the pooler, for wake-ups and vacuum; empty means database_url."
    )
    database_read_url: str = _setting("", "URL of a replica for analytics, history and exports.")
    database_read_lag: int = _duration("10s", "Lag above which the replica is not used.", low=1)
    sqlite_preallocation: str = _setting(
        "off",
        "Whether a new process extends SQLite's write-ahead log ahead of its commits.",
        choices=("on", "off"),
    )
    postgres_pipeline: str = _setting(
        "on",
        "Whether several statements are sent to PostgreSQL in one round trip. off uses only "
        "psycopg's documented interface and is slower.",
        choices=("on", "off"),
    )
    secrets_dir: str = _setting("", "Folder with a file for each secret that parameters refer to.")
    encryption_key_file: str = _setting(
        "",
        "File whose key encrypts the token-signing key in the database; by default a file next to "
        "a SQLite database, none for PostgreSQL.",
    )
    api_host: str = _setting(
        "127.0.0.1", "Address the API listens on.", flag="--host", metavar="ADDRESS"
    )
    api_port: int = _setting(
        8080,
        "Port the API listens on; 0 picks a free one.",
        low=0,
        high=65_535,
        flag="--port",
        metavar="N",
    )
    api_threads: int = _setting(3, "Number of requests processed concurrently.", low=1, high=1_000)
    api_inflight: int = _setting(
        64, "Maximum number of requests in progress or waiting; others get 503.", low=1, high=1e5
    )
    api_worker_inflight: int = _setting(
        100, "Like api_inflight, for workers' start, heartbeat and result calls.", low=1, high=1e5
    )
    api_connections: int = _setting(
        2_000,
        "Maximum number of open connections; at the maximum the longest idle one is closed.",
        low=8,
        high=1e5,
    )
    api_rate: float = _setting(
        500.0,
        "Requests per second for each API key without its own rate, in each API process.",
        low=0.1,
        high=1e6,
    )
    api_body_max: int = _setting(
        1_048_576, "Maximum size of a request body, in bytes.", low=1_024, high=1e9
    )
    pubsub_port: int = _setting(
        -1,
        "Port that serves Google Pub/Sub's gRPC services; 0 picks a free one, -1 disables it.",
        low=-1,
        high=65_535,
        flag="--pubsub-port",
        metavar="N",
    )
    pubsub_host: str = _setting(
        "127.0.0.1", "Address of the Pub/Sub port; only loopback unless API keys are required."
    )
    pubsub_keys: str = _setting(
        "optional",
        "Whether Pub/Sub clients must send an API key as a bearer token.",
        choices=("optional", "required"),
    )
    pubsub_project: str = _setting(
        "penstock",
        "Project whose topics belong to no customer; every other project is a customer.",
        flag="--pubsub-project",
        metavar="NAME",
    )
    pubsub_threads: int = _setting(4, "Number of concurrent Pub/Sub calls.", low=1, high=1_000)
    scheduler_token: str = _setting(
        "",
        "Token required in the X-Scheduler-Token header to trigger a tick, at least 16 characters; "
        "empty disables it.",
    )
    environment: str = _setting("", "Environment shown in the dashboard, such as production.")
    public_url: str = _setting(
        "",
        "URL at which other systems reach this API: HTTP processors report to it, and it is the "
        "issuer of tokens sent with requests.",
    )
    trusted_proxies: tuple[str, ...] = _setting(
        (), "Networks of proxies whose X-Forwarded-For is believed; see docs/how-to/dashboard.md."
    )
    egress_http: str = _setting(
        "never", "Whether outgoing requests may use plain http.", choices=_SWITCH
    )
    egress_private: str = _setting(
        "never", "Whether outgoing requests may reach private networks.", choices=_SWITCH
    )
    egress_ca_file: str = _setting("", "PEM file of certificates to trust instead of the system's.")
    push_threads: int = _setting(64, "Number of concurrent push requests.", low=1, high=1_000)
    http_threads: int = _setting(
        128, "Number of concurrent requests to HTTP processors, in each process.", low=1, high=1_000
    )
    incoming_push: Mapping[str, Any] = _setting(
        {}, "External subscriptions that may push here, by name; see docs/how-to/push-messages.md."
    )
    transport_url: str = _setting(
        "",
        "Transport of programs that call `open_transport`, and of `penstock subscriptions diff`: "
        "sqlite:…, postgresql://…, https://…, nats://… or pubsub://…; empty for the database.",
    )
    declarations: tuple[str, ...] = _setting(
        (), "Modules or files whose topics and subscriptions are compared with the transport."
    )
    bridges: Mapping[str, Any] = _setting(
        {},
        "Topics that are sent to and received from other brokers, by the bridge's name; see "
        "docs/how-to/move-between-transports.md.",
    )
    service: str = _setting("", "Service that executions are recorded under; default: K_SERVICE.")
    revision: str = _setting("", "Revision of that service's code; K_REVISION when it is not set.")
    alerts: Mapping[str, Any] = _setting(
        {}, "Channels, routes, rules and windows of alerts; see docs/how-to/alerts.md."
    )
    slos: Mapping[str, Any] = _setting(
        {}, "Window, targets and objectives of service levels; see docs/how-to/slos.md."
    )
    login: Mapping[str, Any] = _setting(
        {}, "Identity provider of the dashboard, and its roles; see docs/how-to/dashboard.md."
    )
    telemetry: Mapping[str, Any] = _setting(
        {}, "OpenTelemetry, OpenLineage, Sentry and labels; see docs/how-to/telemetry.md."
    )
    metrics_host: str = _setting("127.0.0.1", "Address of the metrics of workers and schedulers.")
    metrics_port: int = _setting(
        0,
        "Port on which workers and schedulers serve their metrics at /metrics; 0 disables it.",
        low=0,
        high=65_535,
        flag="--metrics-port",
        metavar="N",
    )
    log_format: str = _setting("human", "Format of log lines.", choices=("human", "json"))
    log_level: str = _setting(
        "info", "Lowest level logged.", choices=("debug", "info", "warning", "error")
    )


PLATFORM_VARIABLES: Mapping[str, str] = {"K_SERVICE": "service", "K_REVISION": "revision"}
"""Variables that container platforms set, and the settings whose defaults they replace."""

SETTINGS: tuple[Setting, ...] = tuple(
    Setting(name=declared.name, **declared.metadata) for declared in fields(Settings)
)
_BY_NAME = {setting.name: setting for setting in SETTINGS}


def setting_named(name: str) -> Setting:
    """Return the declaration of a setting."""
    return _BY_NAME[name]


def load(
    environment: Mapping[str, str],
    file: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
    """Load settings from defaults, a TOML file, the environment, and overrides; later ones win."""
    values: dict[str, Any] = {setting.name: setting.default for setting in SETTINGS}
    for variable, name in PLATFORM_VARIABLES.items():
        values[name] = environment.get(variable, "")
    if file is not None:
        values |= _from_file(file)
    for variable, text in environment.items():
        if variable.startswith(PREFIX) and not variable.startswith(NOT_SETTINGS):
            name = variable.removeprefix(PREFIX).lower()
            if name not in _BY_NAME:
                raise _unknown(variable, name)
            values[name] = text
    for name, value in (overrides or {}).items():
        if name not in _BY_NAME:
            raise _unknown(name, name)
        if value is not None:
            values[name] = value
    settings = Settings(
        **{name: read_value(_BY_NAME[name], value) for name, value in values.items()}
    )
    _check(settings)
    return settings


def secrets_from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets of the environment: `PENSTOCK_SECRET_DB_PASSWORD` is db_password."""
    return {
        variable.removeprefix(SECRET_PREFIX).lower(): value
        for variable, value in environment.items()
        if variable.startswith(SECRET_PREFIX)
    }


def api_key_from_environment(environment: Mapping[str, str]) -> str | None:
    """Return the API key for `url`; read only from the environment, because other users may see
    command lines and files.
    """
    return environment.get(KEY_VARIABLE) or None


def sqlite_path(url: str) -> Path | str:
    """Return the file of a sqlite: URL, or `:memory:`."""
    path = url.removeprefix("sqlite:")
    path = path.removeprefix("///") if path.startswith("////") else path
    if not path:
        raise SettingsError("database_url", "a file after sqlite:", url, "sqlite:penstock.db")
    return ":memory:" if path == ":memory:" else Path(path).expanduser()


def store_file(database_url: str) -> Path | None:
    """Return the SQLite file with Penstock's state; None for a server or memory."""
    path = sqlite_path(database_url) if database_url.startswith("sqlite:") else None
    return path if isinstance(path, Path) else None


def key_file(database_url: str) -> Path | None:
    """Return the file of the development key next to a SQLite file; None for other databases."""
    path = store_file(database_url)
    return None if path is None else path.with_name(path.name + KEY_SUFFIX)


def encryption_key_file(settings: Settings) -> Path | None:
    """Return the file whose key encrypts stored private keys; None if there is none."""
    if settings.encryption_key_file:
        return Path(settings.encryption_key_file).expanduser()
    path = store_file(settings.database_url)
    return None if path is None else path.with_name(path.name + ENCRYPTION_SUFFIX)


def egress_rules(settings: Settings) -> EgressRules:
    """Return the rules for outgoing requests."""
    return EgressRules(
        allow_http=settings.egress_http == "allowed",
        allow_private=settings.egress_private == "allowed",
    )


def _from_file(file: Path) -> dict[str, Any]:
    import tomllib  # on use: see the module's docstring

    try:
        values = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise SettingsError("config file", "a readable file", str(file), reason) from None
    except (ValueError, RecursionError) as error:  # not TOML or UTF-8, or too large a number
        raise SettingsError("config file", "valid TOML", str(file), str(error)) from error
    for name in values:
        if name not in _BY_NAME:
            raise _unknown(name, name)
        if name in NOT_IN_FILES:
            fix = f"Set {_BY_NAME[name].variable}: a file must not choose where a key is sent."
            raise SettingsError(name, "an environment variable or a flag", str(file), fix)
    return values


def _unknown(shown: str, name: str) -> SettingsError:
    """Suggest a similar name, compared without the prefix that all variables share."""
    is_variable = shown != name
    near = difflib.get_close_matches(name, _BY_NAME, n=1)
    names = [_BY_NAME[n].variable if is_variable else n for n in near or sorted(_BY_NAME)]
    fix = f"Did you mean {names[0]}?" if near else f"Known: {', '.join(names)}."
    return SettingsError(shown, "a known setting", shown, fix)


def _check(settings: Settings) -> None:
    parse_named_addresses(settings.warehouses, "warehouses")
    check_database_url(settings.database_url)
    check_pooler(settings.database_url, settings.database_pooler, settings.database_direct_url)
    check_read_url(settings.database_url, settings.database_read_url)
    if 0 < len(settings.scheduler_token) < TOKEN_MIN:
        raise SettingsError(
            "scheduler_token",
            f"at least {TOKEN_MIN} characters",
            f"{len(settings.scheduler_token)} (not shown)",
            "For example: openssl rand -hex 16",
        )
    if settings.incoming_push:
        from penstock.bus.incoming.inbound_push import parse_incoming  # on use: see the docstring

        parse_incoming(settings.incoming_push, egress_rules(settings))
    if settings.bridges:
        from penstock.bus.transports.bridges import parse_bridges  # on use: see the docstring

        parse_bridges(settings.bridges)
    if settings.alerts:
        from penstock.alerts.rules import check_alerts  # on use: see the docstring

        check_alerts(settings.alerts, egress_rules(settings))
    if settings.slos:
        from penstock.slos.declared import parse_slos  # on use: see the docstring

        parse_slos(settings.slos)
    if settings.login:
        from penstock.web.login.identity import parse_identity  # on use: see the docstring

        parse_identity(settings.login)
    if settings.trusted_proxies:
        from penstock.web.login.proxies import TrustedProxies  # on use: see the docstring

        TrustedProxies(settings.trusted_proxies)
    if settings.telemetry:
        from penstock.telemetry.declared import parse_telemetry  # on use: see the docstring

        parse_telemetry(settings.telemetry)
    if settings.session_beat * 2 >= settings.session_lease:
        half = f"less than half of session_lease ({settings.session_lease / 1e6:g}s)"
        raise SettingsError("session_beat", half, f"{settings.session_beat / 1e6:g}s")
