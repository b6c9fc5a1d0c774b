"""Opening the store that the settings name."""

import pytest

from penstock.assembly.database import open_store
from penstock.assembly.settings import load
from tests.kits.databases import Admin

OPENED = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}' AND application_name = "
    "'penstock'"
)


@pytest.mark.postgres
@pytest.mark.parametrize("pipeline", ["on", "off"])
def test_the_first_connection_is_kept(
    pg_migrated_dsn: str, pg_migrated_name: str, pg_admin: Admin, pipeline: str
) -> None:
    """The connection that checks the server is the store's first one: a command opens one."""
    settings = load({}, overrides={"database_url": pg_migrated_dsn, "postgres_pipeline": pipeline})
    (kept,) = pg_admin.execute(OPENED.format(name=pg_migrated_name)).fetchall()[0]
    store = open_store(settings)
    try:
        assert store.read(lambda tx: tx.now()) > 0
        (found,) = pg_admin.execute(OPENED.format(name=pg_migrated_name)).fetchall()[0]
        assert found - kept == 1
    finally:
        store.close()
