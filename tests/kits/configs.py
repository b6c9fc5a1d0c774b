"""Configs for tests: records from the API's names, and ids as the client takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.client import Client
from penstock.core.ids import decode, encode
from penstock.core.records.validation import convert_input
from penstock.schedules.records import Config, ConfigChange, NewConfig
from penstock.schedules.rows import ConfigRow
from penstock.schedules.store.configs import config_get


def config_of(fields: Mapping[str, Any]) -> Config:
    """Return the record of fields under the API's names; raise InvalidInput."""
    made: Config = convert_input(dict(fields), Config)
    return made


def new_configs(wanted: list[tuple[str, dict[str, Any]]]) -> list[NewConfig]:
    """Return records to create, from pairs of customer and fields."""
    return [
        convert_input({"customer_id": customer, **fields}, NewConfig) for customer, fields in wanted
    ]


def change_of(fields: Mapping[str, Any]) -> ConfigChange:
    """Return a change of fields under the API's names; raise InvalidInput."""
    made: ConfigChange = convert_input(dict(fields), ConfigChange)
    return made


def cfg(config: ConfigRow | int) -> str:
    """Return the public id of a row, or of its number."""
    return encode("cfg", config if isinstance(config, int) else config.config_id)


def config_row(client: Client, config_id: str | int) -> ConfigRow:
    """Return the row of a config."""
    number = decode("cfg", config_id) if isinstance(config_id, str) else config_id
    found = client.store.read(lambda tx: config_get(tx, number))
    assert found is not None, config_id
    return found


def create_config(client: Client, customer: str, fields: Mapping[str, Any]) -> ConfigRow:
    """Create a config and return its row."""
    return config_row(client, client.configs.create(customer, config_of(fields)).config_id)


def start(client: Client, config: ConfigRow | int, **more: Any) -> list[int]:
    """Start a config and return the numbers of its runs."""
    return [decode("run", run_id) for run_id in client.configs.start(cfg(config), **more).run_ids]
